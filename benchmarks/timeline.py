"""What a timeline costs a training step: off (as always), and while it is recorded.

python -m benchmarks.timeline [--json PATH]
"""

from __future__ import annotations

import tempfile
import timeit
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.measure import interleaved, parse_arguments, print_table, write_json
from sparse_ring.config import Config
from sparse_ring.observe.timeline import Timeline, Track, now
from sparse_ring.observe.trace_file import read_events
from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import TopK
from sparse_ring.session import Session
from sparse_ring.transport.threads import ThreadWorld

LAYERS, WIDTH, BATCH = 24, 64, 16
REPEATS = 300


def off_seconds_per_span() -> float:
    """Seconds of a clock reading and a span while nothing is recorded: what the code pays at each place."""
    timeline = Timeline()
    calls = 200_000
    return min(timeit.repeat(lambda: timeline.span(Track.ENGINE, "x", now()), number=calls, repeat=5)) / calls


def main() -> None:
    arguments = parse_arguments(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))
    inputs = torch.randn(BATCH, WIDTH)
    with Session(ThreadWorld(1).transport(0), Config()) as session, tempfile.TemporaryDirectory() as folder:
        optimizer = DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.01), model.named_parameters(), TopK(), session=session
        )

        def step(recorded: bool) -> None:
            session.timeline.on = recorded
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()

        path = Path(folder) / "trace.json"
        session.recording.start(str(path), mark_cycles=False)
        seconds = interleaved({"off": lambda: step(False), "on": lambda: step(True)}, REPEATS)
        session.timeline.on = True
        session.recording.close()
        session.recording.join()
        events = sum(event["ph"] == "X" for event in read_events(path)) / (REPEATS + 1)
    off, on = seconds["off"], seconds["on"]
    figures: dict[str, Any] = {
        "step_seconds_off": off,
        "step_seconds_on": on,
        "spans_a_step": events,
        "off_seconds_a_span": off_seconds_per_span(),
    }
    figures["off_share_of_step"] = events * figures["off_seconds_a_span"] / off
    print_table(
        f"{2 * LAYERS} parameters, one rank, a step of {off * 1e3:.1f} ms",
        ["", "per step", "of a step"],
        [
            ["spans", f"{events:.0f}", ""],
            [
                "timeline off",
                f"{events * figures['off_seconds_a_span'] * 1e6:.1f} us",
                f"{figures['off_share_of_step']:.2%}",
            ],
            ["timeline on", f"{(on - off) * 1e6:.0f} us", f"{on / off - 1:.1%}"],
        ],
    )
    write_json(arguments.json, "timeline", figures)


if __name__ == "__main__":
    main()

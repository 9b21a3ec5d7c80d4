"""The figures as tables and sentences, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.codec.bits import CODES
from benchmarks.codec.passes import STEPS
from benchmarks.codec.peers import AIM

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
STREAM_AIM = 0.8


def pass_rows(figures: dict[str, Any]) -> Table:
    """The fused pass against the stream."""
    rows = [
        [
            f"{name}, {found['density']:.1%}",
            f"{found[name]['stream_gb_s']:.1f}",
            f"{found[name]['fused_gb_s']:.1f}",
            f"{found[name]['share']['median']:.0%}",
            f"{found[name]['share']['at_least']:.0%}",
        ]
        for found in figures["fused"]
        for name in ("with velocity", "without velocity")
    ]
    return ["fused pass", "stream GB/s", "fused GB/s", "of the stream", "at least"], rows


def selector_rows(figures: dict[str, Any]) -> Table:
    """The selector's steps against the stream."""
    rows = [
        [
            f"ExactTopK, {found['density']:.1%}",
            f"{found['stream_gb_s']:.1f}",
            f"{found['selector_gb_s']:.1f}",
            f"{found['share_of_totals']:.0%}",
            f"{found['share_of_processor']:.0%}",
            f"{found['share']['median']:.0%}",
            f"{found['share']['at_least']:.0%}",
            f"{found['hit_share_of_processor']:.0%}",
            " ".join(str(step) for step in found["misses"]) or "none",
            f"{1e3 * found['hit_seconds']:.1f}",
            f"{1e3 * found['miss_seconds']:.1f}" if found["misses"] else "-",
        ]
        for found in figures["selector"]
    ]
    header = ["selector", "stream GB/s", "all steps GB/s", "of the stream", "by processor time"]
    header += ["median hit", "at least", "hits by processor time", "misses at steps", "hit ms", "miss ms"]
    return header, rows


def time_rows(figures: dict[str, Any]) -> Table:
    """Nanoseconds a kept element."""
    found = figures["nanoseconds"]
    names = list(found)
    rows = [[code, *(f"{found[name][code]:.2f}" for name in names)] for code in found[names[0]]]
    return ["code", *names], rows


def _bits(name: str, row: dict[str, Any]) -> list[str]:
    best = min(row[f"{code}_bits"] for code in CODES)
    columns = [row["limit_bits"], *(row[f"{code}_bits"] for code in CODES)]
    return [name, f"{row['kept']:,}", *(f"{value:.3f}" for value in columns), f"{best / row['limit_bits'] - 1:+.2%}"]


BIT_HEADER = ["support", "kept", "limit", *CODES, "best above the limit"]


def bit_rows(figures: dict[str, Any]) -> Table:
    """Bits an index on uniform and real supports."""
    rows = [_bits(f"uniform, {row['density']:.1%}", row) for row in figures["uniform"]]
    rows += [_bits(name, row) for name, row in figures["real"]["groups"].items()]
    return BIT_HEADER, rows


def parameter_rows(figures: dict[str, Any]) -> Table:
    """The same by parameter."""
    return BIT_HEADER, [_bits(name, row) for name, row in figures["real"]["parameters"].items()]


def structure_rows(figures: dict[str, Any]) -> Table:
    """What counting rows or columns would take, beside what we have."""
    rows = [
        [
            name,
            *(
                f"{row[key]:.3f}"
                for key in (
                    "limit_bits",
                    "golomb_bits",
                    "interpolative_bits",
                    "row_counts_bits",
                    "column_counts_bits",
                )
            ),
        ]
        for name, row in figures["real"]["groups"].items()
    ]
    return ["real supports", "limit", "golomb", "interpolative", "rows counted", "columns counted"], rows


def peer_rows(figures: dict[str, Any]) -> Table:
    """A whole step."""
    found = figures["end_to_end"]
    rows = []
    for name, seconds in found["seconds"].items():
        ratio = found["ratios"].get(name)
        times = [f"{ratio['median']:.1f}", f"{ratio['at_least']:.1f}"] if ratio else ["1", "1"]
        rows.append([name, f"{1e3 * seconds:.1f}", f"{found['bytes'][name]:,}", *times])
    return ["step end to end", "ms", "bytes", "times ours", "at least"], rows


def compressor_rows(figures: dict[str, Any]) -> Table:
    """General compressors and codecs."""
    found = figures["compressors"]
    raw = next(iter(found["bytes"].values()))
    rows = [
        [
            name,
            f"{size:,}",
            f"{8 * size / found['kept']:.1f}",
            f"{raw / size:.2f}",
            f"{1e3 * found['seconds'][name]:.2f}" if name in found["seconds"] else "-",
        ]
        for name, size in found["bytes"].items()
    ]
    return ["coding", "bytes", "bits an element", "times smaller than raw", "ms"], rows


def verdicts(figures: dict[str, Any]) -> list[str]:
    """The aims, and how far they are met."""
    lines = []
    for found in figures["fused"]:
        share = found["with velocity"]["share"]
        lines.append(
            f"fused pass at {found['density']:.1%}: {share['median']:.0%} of the stream, at least {share['at_least']:.0%} "
            f"(aim {STREAM_AIM:.0%})"
        )
    for found in figures["selector"]:
        lines.append(
            f"ExactTopK at {found['density']:.1%}: steps that hit {found['share']['median']:.0%} of the stream, at least "
            f"{found['share']['at_least']:.0%}, by processor time {found['hit_share_of_processor']:.0%}; all {STEPS} steps "
            f"{found['share_of_totals']:.0%}, by processor time {found['share_of_processor']:.0%} (aim {STREAM_AIM:.0%})"
        )
    for name, row in figures["real"]["groups"].items():
        lines.append(
            f"{name}: interpolative {row['interpolative_bits'] / row['limit_bits'] - 1:+.1%} of the uniform limit, "
            f"golomb {row['golomb_bits'] / row['limit_bits'] - 1:+.1%} (aim: below 0)"
        )
    ratio = figures["end_to_end"]["ratios"]["torch.topk"]
    lines.append(
        f"a step: {ratio['median']:.1f} times torch.topk's pace, at least {ratio['at_least']:.1f} (aim {AIM:.0f})"
    )
    return lines

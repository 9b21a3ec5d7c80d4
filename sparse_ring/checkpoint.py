"""Checkpoints of a job: one plain torch file that anyone can load, and one file a rank with what only that rank has.

A checkpoint is a folder:

    manifest.json           what belongs together; replaced last and atomically, so the folder is the old or the new checkpoint
    model-<save>.pt         plain torch: {"model", "optimizer", "extra"}; loads without sparse_ring
    rank-3-of-4-<save>.pt   residuals, velocities, warm-up position of rank 3

``save`` and ``load`` are collective. On several hosts the folder may be shared or each host's own.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from sparse_ring.errors import SparseRingError
from sparse_ring.functions import allgather_object, broadcast_object
from sparse_ring.optimizer.state import (
    exchange_state,
    folded_state,
    load_exchange_state,
    plain_state,
    start_from_momentum,
)
from sparse_ring.optimizer.wrapping import distributed
from sparse_ring.session import Session, current

FORMAT = 1
MANIFEST = "manifest.json"


class CheckpointError(SparseRingError, OSError):
    """A checkpoint could not be written or read. Raised on all ranks; an older checkpoint in the folder stays whole.

    Attributes: ``path``, ``failures`` (text by rank).
    """

    def __init__(self, path: Path, failures: Mapping[int, str]) -> None:
        self.path, self.failures = path, dict(failures)
        said = "; ".join(f"rank {rank}: {text}" for rank, text in failures.items())
        SparseRingError.__init__(self, f"Checkpoint '{path}': {said}")


def save_checkpoint(
    path: str | os.PathLike[str],
    optimizer: Any,
    model: torch.nn.Module | None = None,
    extra: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> None:
    """Write the job's state into the folder ``path``; every rank calls it, between steps.

    optimizer
        A distributed optimizer. The plain file gets the ranks' mean velocity as SGD's momentum where a recipe took it over.
    model
        Its ``state_dict()`` is rank 0's; replicas are equal.
    extra
        Tensors, numbers, strings, lists and dicts of these (what ``torch.load(weights_only=True)`` takes), of rank 0.

    Raises CheckpointError on all ranks where one could not write (a full disk, say); the folder's last checkpoint stays.
    ValueError for an optimizer that is not distributed.
    """
    session = session or current()
    optimizer = distributed(optimizer)
    folder = Path(path)
    token = broadcast_object(secrets.token_hex(4), session=session)
    own = f"rank-{session.rank}-of-{session.size}-{token}.pt"
    plain = f"model-{token}.pt"
    optimizer_state = plain_state(optimizer)

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / own, exchange_state(optimizer._reducer, optimizer._takeover))
        if session.local_rank == 0:
            contents = {"optimizer": optimizer_state, "extra": dict(extra or {})}
            _write(folder / plain, contents if model is None else {"model": model.state_dict(), **contents})

    def undo() -> None:
        for name in (own, plain):
            (folder / name).unlink(missing_ok=True)

    _together(write, folder, session, undo)
    manifest = {"format": FORMAT, "size": session.size, "step": optimizer._reducer.step, "token": token}

    def commit() -> None:
        if session.local_rank == 0:
            temporary = folder / f"{MANIFEST}.{token}"
            _flushed(temporary, lambda file: file.write(json.dumps(manifest).encode()))
            os.replace(temporary, folder / MANIFEST)

    _together(commit, folder, session)
    if session.local_rank == 0:
        for old in [*folder.glob("rank-*.pt"), *folder.glob("model-*.pt")]:
            if token not in old.name:
                old.unlink(missing_ok=True)


def load_checkpoint(
    path: str | os.PathLike[str],
    optimizer: Any,
    model: torch.nn.Module | None = None,
    session: Session | None = None,
) -> dict[str, Any]:
    """Take over what ``save_checkpoint`` wrote, or a plain torch file; every rank calls it. Returns ``extra``.

    With the same number of ranks, training goes on as if it had not stopped, bit for bit. With another number P', old rank
    r folds into r mod P', scaled so that what the ranks owe together (the mean residual under Average, the sum under Sum) stays.
    ``path`` may also be a file with {"model", "optimizer"} of plain torch: its momentum becomes every rank's velocity.

    Raises CheckpointError on all ranks where one can't read its part; ValueError where it does not fit model or optimizer, or
    for an optimizer that is not distributed.
    """
    session = session or current()
    optimizer = distributed(optimizer)
    source = Path(path)
    contents: dict[str, Any] = {}
    states: list[dict[str, Any]] = []

    def read() -> None:
        if source.is_file():
            contents.update(torch.load(source, map_location="cpu", weights_only=True))
            return
        manifest = _manifest(source)
        contents.update(_load(source / f"model-{manifest['token']}.pt"))
        size = manifest["size"]
        # Rank 0's comes first: it also has what is the same on all ranks.
        own = [session.rank] if size == session.size else [0, *range(session.rank, size, session.size)]
        states.extend(_load(source / f"rank-{rank}-of-{size}-{manifest['token']}.pt") for rank in own)
        contents["size"] = size

    _together(read, source, session)
    if model is not None and "model" in contents:
        model.load_state_dict(contents["model"])
    state = contents["optimizer"]
    torch.optim.Optimizer.load_state_dict(optimizer, state)
    reducer, takeover = optimizer._reducer, optimizer._takeover
    takeover.read_groups()
    if "size" not in contents:
        start_from_momentum(takeover, reducer)
    else:
        takeover.forget_momentum()
        exact = contents["size"] == session.size
        folded = states[0] if exact else folded_state(states[0], states[1:], contents["size"], reducer)
        load_exchange_state(folded, reducer, takeover)
    extra: dict[str, Any] = contents.get("extra", {})
    return extra


def _together(
    work: Callable[[], None], path: Path, session: Session, undo: Callable[[], object] = lambda: None
) -> None:
    """Do something that may fail on this rank alone; raise CheckpointError on all ranks where it failed on any."""
    failure = ""
    try:
        work()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    failures = {rank: text for rank, text in enumerate(allgather_object(failure, session=session)) if text}
    if failures:
        undo()
        raise CheckpointError(path, failures)


def _manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    if manifest.get("format") != FORMAT:
        raise ValueError(f"the checkpoint has format {manifest.get('format')}, but this version reads {FORMAT}")
    return manifest


def _load(path: Path) -> dict[str, Any]:
    contents: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return contents


def _write(path: Path, contents: object) -> None:
    _flushed(path, lambda file: torch.save(contents, file))


def _flushed(path: Path, write: Callable[[Any], object]) -> None:
    # On the disk before the manifest names it: a crash must not leave a manifest of empty files.
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


__all__ = ["CheckpointError", "load_checkpoint", "save_checkpoint"]

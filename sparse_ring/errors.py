"""Every error that the library raises on purpose, each derived from the built-in a caller would guess.

A message says what happened, where (tensor, rank) and what to do; the same facts are attributes, so that
code need not parse text.
"""

from __future__ import annotations

from collections.abc import Sequence


class SparseRingError(RuntimeError):
    """Base of all errors raised by sparse_ring at run time."""


class NotInitializedError(SparseRingError, ValueError):
    """A function was called before ``init()`` or after ``shutdown()``."""

    def __init__(self, what: str = "sparse_ring") -> None:
        super().__init__(f"{what} has not been initialized; use hvd.init().")


class ConfigError(SparseRingError, ValueError):
    """A setting has a value that it cannot have.

    Attributes: ``field`` (its name), ``value`` (what was given).
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field, self.value = field, value
        super().__init__(f"{field} is {value!r}, but must be {expected}.")


class MismatchError(SparseRingError):
    """Ranks disagree about one tensor. Raised on every rank; the job stays usable.

    Attributes: ``tensor`` (name).
    """

    def __init__(self, tensor: str, text: str) -> None:
        self.tensor = tensor
        super().__init__(f"Tensor '{tensor}': {text}")


class StallError(SparseRingError, TimeoutError):
    """A wait passed its deadline.

    Attributes: ``what`` (tensor or transfer), ``ranks`` (those that are missing), ``seconds`` waited.
    """

    def __init__(self, what: str, ranks: Sequence[int], seconds: float) -> None:
        self.what, self.ranks, self.seconds = what, tuple(ranks), seconds
        missing = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"ranks {list(self.ranks)}"
        super().__init__(
            f"{what}: {missing} missing after {seconds:.0f} s. See whether it still runs and calls the same "
            f"collectives; SPARSE_RING_STALL_SHUTDOWN_TIME_SECONDS sets this deadline."
        )


class RankLostError(SparseRingError):
    """A rank ended while others wait for it.

    Attributes: ``rank``, ``tensor`` (what was waited for; "" where only the connection is known to have ended), ``what`` the
    rank has done.
    """

    def __init__(self, rank: int, tensor: str, what: str = "has shut down and will not take part") -> None:
        self.rank, self.tensor, self.what = rank, tensor, what
        super().__init__(f"Tensor '{tensor}': rank {rank} {what}." if tensor else f"Rank {rank} {what}.")


class MessageError(SparseRingError, ValueError):
    """Bytes from another rank are damaged or do not fit what was agreed.

    Attributes: ``reason``; ``rank`` and ``parameter`` where they are known.
    """

    def __init__(self, reason: str, *, rank: int | None = None, parameter: str | None = None) -> None:
        self.reason, self.rank, self.parameter = reason, rank, parameter
        where = [f"rank {rank}" if rank is not None else "", f"parameter '{parameter}'" if parameter else ""]
        prefix = ", ".join(part for part in where if part)
        super().__init__(f"Message from {prefix}: {reason}" if prefix else reason)

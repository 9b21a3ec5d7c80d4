"""Whether the ranks mean the same by one name, and the sentence that says where they don't."""

from __future__ import annotations

from collections.abc import Sequence

from sparse_ring.engine.operation import Request


def mismatch(requests: Sequence[Request]) -> str | None:
    """Compare all ranks' requests of one name (index = rank); return what differs, or None.

    The wording is Horovod's where it has one, followed by which ranks had what.
    """
    if all(request is requests[0] for request in requests):
        return None
    requests = _adapted(requests)
    first = requests[0]
    kinds = [request.kind for request in requests]
    if _differ(kinds):
        one, other = _two(kinds)
        return (
            f"Mismatched operations: One rank did {_article(one)} {one}, but another rank did {_article(other)} "
            f"{other}. {_who(kinds)}"
        )
    dtypes = [request.dtype for request in requests]
    if _differ(dtypes):
        one, other = _two(dtypes)
        return f"Mismatched data types: One rank had type {one}, but another rank had type {other}. {_who(dtypes)}"
    if _differ([_fixed_shape(request) for request in requests]):
        shapes = [str(list(request.shape)) for request in requests]
        one, other = _two(shapes)
        return (
            f"Mismatched {first.kind.upper()} tensor shapes: One rank sent a tensor of shape {one}, but another rank "
            f"sent a tensor of shape {other}. {_who(shapes)}"
        )
    settings = [request.detail for request in requests]
    if not _differ(settings):
        settings = [f"ragged={request.ragged}" for request in requests]
    if _differ(settings):
        return f"Mismatched {first.kind.upper()} settings: {', but '.join(_groups(settings))}. Give all ranks the same."
    return None


def _adapted(requests: Sequence[Request]) -> Sequence[Request]:
    """Let absent ranks mean what the present ones do, where only the kind differs: they take part in whatever it is."""
    present = next((request for request in requests if not request.absent), requests[0])

    def adapts(request: Request) -> bool:
        alike = request.dtype == present.dtype and request.shape[1:] == present.shape[1:]
        return request.absent and request.kind != present.kind and alike

    return [present if adapts(request) else request for request in requests]


def _fixed_shape(request: Request) -> tuple[int, ...]:
    """Return what must be equal on all ranks: the number of dimensions and all of them, but for a ragged first one."""
    return (len(request.shape), *(request.shape[1:] if request.ragged else request.shape))


def _differ(values: Sequence[object]) -> bool:
    return any(value != values[0] for value in values)


def _two(values: Sequence[str]) -> tuple[str, str]:
    return values[0], next(value for value in values if value != values[0])


def _groups(values: Sequence[str]) -> list[str]:
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(rank)
    return [
        f"{f'rank {members[0]}' if len(members) == 1 else f'ranks {members}'} had {value or 'none'}"
        for value, members in ranks.items()
    ]


def _who(values: Sequence[str]) -> str:
    return f"({'; '.join(_groups(values))})"


def _article(word: str) -> str:
    return "an" if word[:1] in "aeiou" else "a"

"""Which agreed operations travel together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from sparse_ring.engine.operation import Agreed, Operation


def buckets(agreed: Sequence[Agreed], threshold_bytes: int) -> list[list[Agreed]]:
    """Group operations of one class and one fusion key, in agreed order; a bucket closes once it holds the threshold.

    Buckets come in the order of their first members. Equal on all ranks, since order, keys and bytes are.
    A threshold of 0, and a key of None, send an operation alone.
    """
    result: list[list[Agreed]] = []
    growing: dict[tuple[type[Operation], Hashable], tuple[list[Agreed], int]] = {}
    for item in agreed:
        fusion_key = item.operation.fusion_key
        if fusion_key is None:
            result.append([item])
            continue
        key = (type(item.operation), fusion_key)
        bucket, size_bytes = growing.get(key, ([], 0))
        if not bucket:
            result.append(bucket)
        bucket.append(item)
        size_bytes += item.operation.nbytes
        if size_bytes >= threshold_bytes:
            growing.pop(key, None)
        else:
            growing[key] = (bucket, size_bytes)
    return result

"""How ranks introduce themselves: versions that must agree, and the hosts from which local and cross ranks follow."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from sparse_ring.engine.engine import Engine
from sparse_ring.errors import SparseRingError
from sparse_ring.exchange.allgather import Allgather, Gathered
from sparse_ring.exchange.exchanges import Exchanges

logger = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a rank tells the others.

    version
        Of sparse_ring.
    cpu_capability
        Instruction set of torch's kernels; where it differs, equal inputs may give different bits.
    host
        Host name and boot id: equal for ranks on one machine.
    cores
        CPU numbers this process may use.
    timeline
        File of the timeline that its settings name, "" for none; rank 0's counts for all.
    """

    version: str
    cpu_capability: str
    host: str
    cores: tuple[int, ...]
    timeline: str = ""

    @classmethod
    def of_this_process(cls) -> Identity:
        """Describe this process, but for its settings."""
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        return cls(
            version=_version(),
            cpu_capability=torch.backends.cpu.get_cpu_capability(),
            host=f"{socket.gethostname()} {boot}",
            cores=tuple(sorted(_usable_cores())),
        )


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a rank is.

    local_rank, local_size
        Among the ranks of its host, by rank.
    cross_rank, cross_size
        Among the ranks with this local rank, by rank.
    cores, sharing_ranks
        How many cores it may use, and how many ranks of its host (itself included) may use one of these.
    """

    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    cores: int
    sharing_ranks: int

    @classmethod
    def of(cls, rank: int, everyone: Sequence[Identity]) -> Placement:
        """Place ``rank`` among all ranks' identities."""
        local = _local_ranks([identity.host for identity in everyone])
        neighbours = [i for i, other in enumerate(everyone) if other.host == everyone[rank].host]
        cross = [i for i, number in enumerate(local) if number == local[rank]]
        cores = set(everyone[rank].cores)
        return cls(
            local_rank=local[rank],
            local_size=len(neighbours),
            cross_rank=cross.index(rank),
            cross_size=len(cross),
            cores=len(cores),
            sharing_ranks=sum(not cores.isdisjoint(everyone[i].cores) for i in neighbours),
        )


def introduce(identity: Identity, engine: Engine, exchanges: Exchanges) -> list[Identity]:
    """Exchange identities and compare them; returns those of all ranks. Collective.

    Raises SparseRingError on all ranks where versions differ; logs a warning, on all ranks, where CPU capabilities do.
    """
    data = np.frombuffer(json.dumps(asdict(identity)).encode(), dtype=np.uint8)
    name = "sparse_ring.handshake"
    operation = Allgather(name, data, dtype="uint8", shape=data.shape, row_bytes=1, mesh=exchanges.messages)
    gathered: Gathered = engine.submit(operation).wait()
    ends = np.cumsum(gathered.rows)
    everyone = []
    for length, end in zip(gathered.rows, ends, strict=True):
        fields = json.loads(gathered.data[end - length : end].tobytes())
        everyone.append(Identity(**{**fields, "cores": tuple(fields["cores"])}))
    versions = _ranks_by([other.version for other in everyone])
    if len(versions) > 1:
        raise SparseRingError(
            f"Ranks run different versions of sparse_ring: {_listed(versions)}. Install one on all hosts."
        )
    capabilities = _ranks_by([other.cpu_capability for other in everyone])
    if len(capabilities) > 1:
        logger.warning(
            "torch uses different CPU kernels on different ranks: %s. Parameters may drift apart in their last bits; "
            "set ATEN_CPU_CAPABILITY to the lowest of them on all ranks.",
            _listed(capabilities),
        )
    return everyone


def _ranks_by(values: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        found.setdefault(value, []).append(rank)
    return found


def _listed(found: dict[str, list[int]]) -> str:
    return "; ".join(
        f"{value} on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" for value, ranks in found.items()
    )


def _local_ranks(hosts: Sequence[str]) -> list[int]:
    return [hosts[:rank].count(host) for rank, host in enumerate(hosts)]


def _usable_cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _version() -> str:
    try:
        return metadata.version("sparse-ring")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"

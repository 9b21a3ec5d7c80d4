"""Writes docs/environment.md from the table of settings in sparse_ring/config.py: ``make docs``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sparse_ring.config import PREFIX, Config

HEAD = """\
# Environment variables

Generated from `sparse_ring/config.py` by `make docs`; do not edit.

Each is read at `init()`, never at import. Where the last column names a `HOROVOD_` variable, that is read as well; ours
wins. An empty value counts as unset; a value that cannot be raises `ConfigError` naming the variable. Booleans are
1/true/yes/on or 0/false/no/off.

| variable | default | value | meaning | read as well |
|---|---|---|---|---|
"""
TAIL = """
## Variables of others

| variable | who reads it, and what for |
|---|---|
| `OMP_NUM_THREADS` | torch: threads of a rank. `sparse-ring-run` sets it to cores / ranks; set by you, it stays. |
| `PYTHONUNBUFFERED` | Python: set to 1 by `sparse-ring-run`, so that lines come when they are printed. |
| `PATH` | `sparse-ring-run`: where the command and mpiexec are looked for; the mpiexec beside its Python comes first. |
| `NO_COLOR` | `sparse-ring-run`: no colour on a terminal where it is not empty. |
| `TMPDIR` | `sparse-ring-run`: where the socket to its ranks lies while it runs. |
| `SLURM_JOB_ID`, `SLURM_JOB_NODELIST` | `sparse-ring-run`: in a Slurm allocation it starts the ranks with srun. |
| `HYDRA_LAUNCHER`, `HYDRA_LAUNCHER_EXTRA_ARGS` | MPICH: how it reaches hosts; set by `sparse-ring-run` with `-H`, `-p`, `-i`. |
| `UCX_NET_DEVICES`, `FI_TCP_IFACE` | MPI: its network interface; set by `--network-interface` unless you did. |
| `GLOO_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME` | torch, NCCL: the same. |
| `PMI_RANK`, `OMPI_COMM_WORLD_RANK`, `PMIX_RANK` | set by mpiexec: which rank a process is, before MPI has started. |
| `PMI_SIZE`, `OMPI_COMM_WORLD_SIZE`, `MV2_COMM_WORLD_SIZE` | set by mpiexec: how many ranks there are. |
| `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` | set by torchrun: who this rank is and where ranks meet. |
"""


def render() -> str:
    """Return the page."""
    return HEAD + "".join(f"{_row(entry)}\n" for entry in fields(Config)) + TAIL


def _row(entry: Any) -> str:
    name = entry.name.upper()
    default = f"{entry.default:.12g}" if isinstance(entry.default, bool | int | float) else entry.default or "unset"
    as_well = f"`HOROVOD_{name}`" if entry.metadata["horovod"] else ""
    cells = (f"`{PREFIX}{name}`", default, entry.metadata["expected"], entry.metadata["doc"], as_well)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(render(), end="")

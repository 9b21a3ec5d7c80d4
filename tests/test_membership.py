from pathlib import Path

from sparse_ring.membership import Membership


def test_the_file_and_the_hook_are_there_while_a_process_is_a_member(tmp_path: Path, monkeypatch) -> None:
    import sys

    seen, aborted = [], []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    plain = sys.excepthook
    member = Membership(str(tmp_path / "member"), aborted.append)
    assert not (tmp_path / "member").exists()
    member.join()
    assert (tmp_path / "member").exists()
    assert sys.excepthook != plain
    member.leave()
    assert not (tmp_path / "member").exists()
    assert sys.excepthook == plain
    member.leave()


def test_an_uncaught_exception_is_shown_first_and_then_ends_the_job(monkeypatch) -> None:
    import sys

    order = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: order.append(str(error)))
    member = Membership("", order.append)
    member.join()
    sys.excepthook(ValueError, ValueError("mine"), None)
    member.leave()
    assert order == ["mine", 1]

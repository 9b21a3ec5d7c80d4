import io
import sys
from pathlib import Path

from sparse_ring.membership import Membership


def test_the_file_and_the_hook_are_there_while_a_process_is_a_member(tmp_path: Path, monkeypatch) -> None:
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
    order = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: order.append(str(error)))
    member = Membership("", order.append)
    member.join()
    sys.excepthook(ValueError, ValueError("mine"), None)
    member.leave()
    assert order == ["mine", 1]


def test_a_hook_that_collects_what_is_shown_does_not_swallow_it(monkeypatch, capfd) -> None:
    # As torch.distributed's does, which is put around this one when a process group starts.
    member = Membership("", lambda code: None)
    member.join()
    collected = io.StringIO()
    monkeypatch.setattr(sys, "stderr", collected)
    sys.excepthook(ValueError, ValueError("mine"), None)
    monkeypatch.undo()
    member.leave()
    assert capfd.readouterr().err.count("ValueError: mine") == 1
    assert "mine" not in collected.getvalue()

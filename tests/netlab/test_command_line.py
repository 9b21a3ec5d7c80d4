"""``python -m benchmarks.netlab``: its table, exit codes, and what it says where it cannot work."""

from __future__ import annotations

import pytest

from benchmarks.netlab import LabError, missing, namespaces
from benchmarks.netlab.__main__ import main


@pytest.mark.usefixtures("possible")
def test_command_runs_and_a_table_follows(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--hosts", "3", "--rate", "1gbit", "--with", "torch", "--", "sh", "-c", "echo rank $RANK; exit 5"])
    assert code == 5
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("[rank ") for line in lines)
    title = next(place for place, line in enumerate(lines) if line.startswith("3 hosts, links 1gbit"))
    assert [line.split()[0] for line in lines[title + 1 :]] == ["host", "host1", "host2", "host3", "all"]


@pytest.mark.usefixtures("possible")
def test_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--timeout", "1", "--with", "torch", "sleep", "1000"]) == 124
    assert "ended after 1 s" in capsys.readouterr().err


def test_all_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda name, path: None if name in ("ip", "tc") else f"/bin/{name}")
    assert main(["true"]) == 2
    said = capsys.readouterr().err
    assert "need root" in said
    assert "ip is not installed: it is in the package iproute2" in said
    assert "tc is not installed" in said
    assert "unshare" not in said


def test_a_kernel_that_refuses_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> str:
        raise LabError("mount --make-shared /run/netns failed: Operation not permitted")

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, path: f"/bin/{name}")
    monkeypatch.setattr(namespaces, "system", refuse)
    assert missing() == [
        "network namespaces cannot be made here: mount --make-shared /run/netns failed: Operation not permitted"
    ]


def test_wrong_rate_is_refused_with_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rate", "fast", "true"])
    assert "'fast' is no rate; write 100mbit" in capsys.readouterr().err

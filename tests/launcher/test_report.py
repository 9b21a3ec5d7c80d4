"""``--report``: early refusals, and a page after the job."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from sparse_ring.errors import SparseRingError
from sparse_ring.launcher.report import report_environment, write_report
from tests.launcher.support import Starter

TRAIN = (
    "import sys, torch, sparse_ring.torch as hvd\n"
    "hvd.init()\n"
    "model = torch.nn.Linear(2, 1)\n"
    "optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())\n"
    "for _ in range(3):\n"
    "    optimizer.zero_grad()\n"
    "    loss = model(torch.ones(4, 2)).pow(2).mean()\n"
    "    loss.backward()\n"
    "    optimizer.step()\n"
    "    hvd.report(loss=loss)\n"
    "if len(sys.argv) > 3: sys.exit(5)\n"
)


def test_metrics_go_into_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert report_environment(str(folder)) == {"SPARSE_RING_METRICS": str(folder / "metrics.jsonl")}
    assert folder.is_dir()


def test_what_cannot_be_is_said_before_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SparseRingError, match=r"^--report .*file: File exists; give a folder that can be written$"):
        report_environment(str(tmp_path / "file"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparseRingError, match=r"--report needs matplotlib: pip install 'sparse-ring\[report\]'"):
        report_environment(str(tmp_path))


def test_a_job_that_recorded_nothing_is_told_apart(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    assert write_report(str(tmp_path), {}) == (
        f"no report: no rank has written {metrics}; does the command call hvd.init()?"
    )
    metrics.write_text("x\n")
    assert write_report(str(tmp_path), {}).startswith(f"No report: {metrics} holds no record")


@pytest.mark.ranks
@pytest.mark.parametrize(("arguments", "code"), [((), 0), (("fail",), 5)])
def test_a_job_ends_with_its_page(starter: Starter, arguments: tuple[str, ...], code: int) -> None:
    folder = starter.folder / "out"
    result = starter.launch(2, TRAIN, *arguments, options=["--report", str(folder)]).end()
    assert result.code == code, result.stderr
    assert result.stderr.splitlines()[-1] == f"sparse-ring-run: Report: {folder / 'index.html'}"
    assert "3 steps on 2 ranks" in (folder / "index.html").read_text()
    assert (folder / "loss.png").stat().st_size > 1000


@pytest.mark.ranks
def test_a_refusal_starts_no_rank(starter: Starter) -> None:
    result = starter.launch(2, "print('started')", options=["--report", sys.executable]).end()
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("sparse-ring-run: --report ")

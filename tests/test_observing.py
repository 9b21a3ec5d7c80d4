"""What a training loop reports arrives in the records; the residuals' norm is that of the state."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from sparse_ring.config import Config
from sparse_ring.observing import report
from sparse_ring.recipe import TopK
from sparse_ring.session import Session
from tests.helpers import run_ranks
from tests.optimizer.models import loss_of, model_of, wrapped


def test_losses_and_residual_norms_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "metrics-%r"

    def job(session: Session) -> list[tuple[float, float]]:
        model = model_of()
        optimizer = wrapped(session, model, TopK(density=0.1, minimum_elements=10))
        seen = []
        for step in range(3):
            optimizer.zero_grad()
            loss = loss_of(model, step, session.rank, session.size)
            report(loss=loss, half=loss.item() / 2, session=session)
            loss.backward()
            optimizer.step()
            state = optimizer.state_dict()["sparse_ring"]["parameters"].values()
            norm = math.hypot(*(float(entry["residual"].norm()) for entry in state))
            seen.append((loss.item(), norm))
        assert session.metrics.steps == 3
        return seen

    config = Config(metrics=str(path), metrics_steps=1, metrics_residual=True)
    for rank, seen in enumerate(run_ranks(2, job, config)):
        records = [json.loads(line) for line in Path(str(path).replace("%r", str(rank))).read_text().splitlines()][1:]
        assert [record["reported"] for record in records] == [{"loss": loss, "half": loss / 2} for loss, _ in seen]
        assert [record["residual_norm"] for record in records] == pytest.approx([norm for _, norm in seen], rel=1e-5)
        assert min(norm for _, norm in seen) > 0


def test_a_reported_tensor_holds_no_graph_and_is_one_number() -> None:
    def job(session: Session) -> None:
        weight = torch.ones(1, requires_grad=True)
        report(loss=(2 * weight).sum(), session=session)
        loss = session.reported.loss
        assert isinstance(loss, torch.Tensor)
        assert not loss.requires_grad
        with pytest.raises(ValueError, match=r"report\(accuracy=…\): a tensor of shape \(2, 3\) is no number"):
            report(accuracy=torch.ones(2, 3), session=session)

    run_ranks(1, job)


def test_the_loss_is_in_the_progress_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparse_ring.observe.progress.PLAIN_INTERVAL_SECONDS", 0.0)

    def job(session: Session) -> None:
        report(loss=torch.tensor(0.25), session=session)
        for _ in range(2):
            session.step_done(False, lambda: 0.0)

    run_ranks(1, job, Config(progress="1"))
    assert " · loss 0.25 · " in capsys.readouterr().err

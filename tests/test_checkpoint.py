"""Collective checkpoints: resume exactly, on other numbers of ranks, from and to plain torch, whatever fails."""

import json

import pytest
import torch

from sparse_ring import checkpoint
from sparse_ring.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from sparse_ring.ops import Sum, barrier
from sparse_ring.recipe import DGC, Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of, wrapped

GRADSA = GradSA(density=0.1, minimum_elements=10, warmup_steps=4)
COMPENSATED = GradSA(
    density=0.1,
    minimum_elements=10,
    warmup_steps=4,
    compensation="taylor_adaptive+history",
    momentum="global",
    scope="model",
)
RECIPES = [
    Dense(),
    TopK(density=0.1, minimum_elements=10),
    GRADSA,
    COMPENSATED,
    DGC(density=0.1, minimum_elements=10, warmup_steps=4, clip=1.0),
]


def train(session, model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step, session.rank, session.size).backward()
        optimizer.step()


def make(session, recipe=GRADSA, **options):
    model = model_of()
    return model, wrapped(session, model, recipe, **options)


def save(size, path, recipe=GRADSA, steps=7, **options):
    """Train and save on ``size`` ranks; returns each rank's model and residuals."""

    def job(session):
        model, optimizer = make(session, recipe, **options)
        train(session, model, optimizer, range(steps))
        save_checkpoint(path, optimizer, model, {"epoch": 3}, session=session)
        return model, optimizer.state_dict()["sparse_ring"]["parameters"]

    return run_ranks(size, job)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("stop", [2, 7])
def test_resume_equals_no_interruption_bit_for_bit(tmp_path, recipe, stop):
    def straight(session):
        model, optimizer = make(session, recipe)
        train(session, model, optimizer, range(10))
        return flat(model)

    def resumed(session):
        model, optimizer = make(session, recipe)
        extra = load_checkpoint(tmp_path / "c", optimizer, model, session=session)
        assert extra == {"epoch": 3}
        train(session, model, optimizer, range(stop, 10))
        return flat(model)

    save(2, tmp_path / "c", recipe, stop)
    expected = run_ranks(2, straight)
    for got, wanted in zip(run_ranks(2, resumed), expected, strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 3), (2, 4), (3, 1)])
@pytest.mark.parametrize("sums", [False, True])
def test_another_number_of_ranks_owes_what_the_old_ones_owed(tmp_path, before, after, sums):
    options = {"op": Sum} if sums else {}
    old = save(before, tmp_path, **options)

    def load(session):
        model, optimizer = make(session, **options)
        load_checkpoint(tmp_path, optimizer, model, session=session)
        state = optimizer.state_dict()["sparse_ring"]
        train(session, model, optimizer, range(7, 9))
        return state, flat(model)

    new = run_ranks(after, load)
    for name in ("0.weight", "2.weight"):
        for kind in ("residual", "velocity"):
            owed = sum(entry[name][kind].double() for _, entry in old) / (1 if sums else before)
            zeros = torch.zeros_like(owed)
            now = sum(state["parameters"][name].get(kind, zeros).double() for state, _ in new) / (1 if sums else after)
            assert float(owed.norm()) > 0
            assert float((now - owed).norm() / owed.norm()) < 1e-7
    assert all(state["step"] == 7 for state, _ in new)
    assert all(torch.equal(model, new[0][1]) for _, model in new)


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3)])
def test_on_another_number_of_ranks_the_history_of_aggregates_stays(tmp_path, before, after):
    """It is the same on all ranks; what is a rank's own besides the residual starts afresh."""
    old = save(before, tmp_path, COMPENSATED)
    history = old[0][1]["0.weight"]["history"]
    assert history.any()
    assert all(torch.equal(entry["0.weight"]["history"], history) for _, entry in old)
    assert "mean_square" in old[0][1]["0.weight"]

    def load(session):
        model, optimizer = make(session, COMPENSATED)
        load_checkpoint(tmp_path, optimizer, model, session=session)
        state = optimizer.state_dict()["sparse_ring"]["parameters"]["0.weight"]
        train(session, model, optimizer, range(7, 9))
        return state, flat(model)

    new = run_ranks(after, load)
    for state, model in new:
        assert torch.equal(state["history"], history)
        assert "mean_square" not in state
        assert state["threshold"] == 0
        assert torch.equal(model, new[0][1])


def plain(steps, checkpoint_file=None, weight_decay=0.0):
    """Train with plain torch on the union batch, from a plain checkpoint where one is given."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=weight_decay)
    if checkpoint_file is not None:
        contents = torch.load(checkpoint_file, weights_only=True)
        model.load_state_dict(contents["model"])
        optimizer.load_state_dict(contents["optimizer"])
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("recipe", [Dense(), GradSA(density=1.0, minimum_elements=10)])
def test_a_plain_checkpoint_is_loaded_and_given_back(tmp_path, recipe):
    """Everything sent each step, so plain torch before, ours between and plain torch after equal plain torch throughout."""
    model, optimizer = plain(range(4))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "plain.pt")

    def job(session):
        model, optimizer = make(session, recipe)
        assert load_checkpoint(tmp_path / "plain.pt", optimizer, model, session=session) == {}
        train(session, model, optimizer, range(4, 8))
        save_checkpoint(tmp_path / "ours", optimizer, model, session=session)

    run_ranks(2, job)
    (file,) = (tmp_path / "ours").glob("model-*.pt")
    back, _ = plain(range(8, 12), file)
    assert distance(back, plain(range(12))[0]) < 1e-5


def test_weight_decays_own_momentum_is_given_back(tmp_path):
    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.05)
        optimizer = checkpoint_optimizer(optimizer, model, session)
        train(session, model, optimizer, range(6))
        save_checkpoint(tmp_path, optimizer, model, session=session)

    run_ranks(2, job)
    (file,) = tmp_path.glob("model-*.pt")
    back, _ = plain(range(6, 10), file, weight_decay=0.05)
    assert distance(back, plain(range(10), weight_decay=0.05)[0]) < 1e-5


def checkpoint_optimizer(optimizer, model, session):
    from sparse_ring.optimizer import DistributedOptimizer

    recipe = GradSA(density=1.0, minimum_elements=10)
    return DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)


def test_saving_leaves_the_run_untouched(tmp_path):
    def job(session, saves):
        model, optimizer = make(session)
        for step in range(8):
            train(session, model, optimizer, [step])
            if saves:
                save_checkpoint(tmp_path, optimizer, model, session=session)
        return flat(model)

    with_saves, without = run_ranks(2, lambda s: job(s, True)), run_ranks(2, lambda s: job(s, False))
    assert torch.equal(with_saves[0], without[0])


def test_a_new_checkpoint_replaces_the_old_one_whole(tmp_path):
    save(2, tmp_path, steps=3)
    save(2, tmp_path, steps=5)
    assert json.loads((tmp_path / "manifest.json").read_text())["step"] == 5
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["files", "manifest"])
def test_a_failure_on_one_rank_is_told_on_all_and_keeps_the_old_checkpoint(tmp_path, monkeypatch, moment):
    save(2, tmp_path, steps=3)
    honest = checkpoint._flushed

    def full(path, write):
        if ("manifest" in path.name) if moment == "manifest" else ("rank-1" in path.name):
            raise OSError(28, "No space left on device", str(path))
        honest(path, write)

    monkeypatch.setattr(checkpoint, "_flushed", full)

    def job(session):
        model, optimizer = make(session)
        train(session, model, optimizer, range(5))
        with pytest.raises(CheckpointError, match=r"rank \d: OSError: .*No space left on device") as caught:
            save_checkpoint(tmp_path, optimizer, model, session=session)
        return sorted(caught.value.failures)

    failing = [0] if moment == "manifest" else [1]
    assert run_ranks(2, job) == [failing, failing]
    monkeypatch.undo()

    def load(session):
        model, optimizer = make(session)
        load_checkpoint(tmp_path, optimizer, model, session=session)
        return optimizer._reducer.step

    assert run_ranks(2, load) == [3, 3]


def test_what_is_missing_or_foreign_is_named(tmp_path):
    def job(session):
        model, optimizer = make(session)
        with pytest.raises(
            CheckpointError, match=r"rank 0: FileNotFoundError.*manifest\.json.*rank 1: FileNotFoundError"
        ):
            load_checkpoint(tmp_path / "nothing", optimizer, model, session=session)
        save_checkpoint(tmp_path, optimizer, model, session=session)
        if session.rank == 0:
            next(tmp_path.glob("rank-1-of-2-*.pt")).unlink()
        barrier(session)
        with pytest.raises(CheckpointError, match=r"'.*': rank 1: FileNotFoundError") as caught:
            load_checkpoint(tmp_path, optimizer, model, session=session)
        assert list(caught.value.failures) == [1]
        if session.rank == 0:
            (tmp_path / "manifest.json").write_text('{"format": 99}')
        barrier(session)
        with pytest.raises(CheckpointError, match="has format 99, but this version reads 1"):
            load_checkpoint(tmp_path, optimizer, model, session=session)

    run_ranks(2, job)

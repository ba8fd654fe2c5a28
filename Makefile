# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench clean

demo: $(READY)
	$(BIN)/python -m experiments.synthetic --overwrite

# The kernels are compiled once, not by every worker. The examples of a document follow each other
# and must not be shared among workers.
test: lint
	$(BIN)/python -m ksubset.kernels.cpu
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal tests
	$(BIN)/python -m pytest src README.md docs

bench: $(READY)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/growth.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch by itself first: the pin decides which build is taken before anything else asks for it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) outputs .pytest_cache .mypy_cache .ruff_cache

# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint docs bench release clean

demo: $(READY)
	$(BIN)/python -m experiments.synthetic --overwrite

# The kernels are compiled once, not by every worker. conftest.py says what a worker runs next. A test
# that hangs ends its worker, and is named: no test takes more than 30 seconds on a quiet core, so that
# only a hang takes 20 minutes, on a machine that is busy as well.
test: lint
	$(BIN)/python -m ksubset.kernels.cpu
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto \
		-o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true

# The site, in build/site: the gallery's pictures, every warning an error, every link followed.
PICTURES := $(patsubst examples/%.py,docs/gallery/%.png,$(filter-out %/figures.py,$(wildcard examples/*.py)))

docs: $(READY) $(PICTURES)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/linkchecker --config docs/links.ini build/site/index.html

docs/gallery/%.png: examples/%.py examples/figures.py | $(READY)
	$(BIN)/python $< --output $@

bench: $(READY)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/growth.py

# Wheel and sdist in dist/, checked; the README's examples in an environment with the wheel and torch, and
# those of the page for JAX in one with the wheel and JAX.
release: $(READY)
	rm -rf dist build/empty
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet --constraint constraints.txt torch
	build/empty/bin/pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[torch]"
	build/empty/bin/python -I tests/installed.py README.md ksubset.functional torch
	rm -rf build/empty
	$(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[jax]"
	build/empty/bin/python -I tests/installed.py docs/jax.md ksubset.jax jax

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
	rm -rf $(VENV) build docs/gallery/*.png outputs .pytest_cache .mypy_cache .ruff_cache

# Everything is set up on a machine with Python 3.11 or later: start with `make demo` or `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-torch test-ray lint coverage docs wheel test-lowest bench test-campaigns-load lock clean

demo: $(VENV)/installed  ## Install, run the toy experiment in a quick version, say where the report is
	rm -rf runs/demo
	$(BIN)/ncprior paper toy --quick --out runs/demo

test: $(VENV)/tested lint  ## Linters, spelling, types, layers, tests and doctests
	$(BIN)/python -m pytest

test-torch: $(VENV)/torch  ## The tests and doctests of ncprior.torch, whose extra is too large for `make test`
	$(BIN)/python -m pytest src/ncprior/torch $(wildcard tests/test_torch_*.py)

test-ray: $(VENV)/ray  ## The tests of --engine ray, on a cluster of two nodes on this machine
	NCPRIOR_NEED_RAY=1 $(BIN)/python -m pytest --numprocesses=0 tests/test_ray.py

lint: $(VENV)/tested  ## What `make test` checks before it runs the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

coverage: $(VENV)/tested  ## The tests with coverage; fails below the floor in pyproject.toml
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered

docs: $(VENV)/documented  ## The documentation with its tutorials run, offline; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "documentation: $(CURDIR)/docs/_build/html/index.html"

wheel: $(VENV)/tested  ## Build wheel and sdist, install the wheel in a fresh environment, and try it
	rm -rf dist build/wheel
	$(PIP) install --quiet --constraint requirements.lock build
	$(BIN)/pyproject-build --outdir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --constraint requirements.lock dist/ncprior-*.whl
	cd build && wheel/bin/ncprior --version && wheel/bin/python ../tests/smoke.py

test-lowest: ## The tests with the oldest dependencies that pyproject.toml allows
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet "pip>=25.1"
	$(PYTHON) tests/lowest.py pyproject.toml > build/lowest/constraints.txt
	build/lowest/bin/python -m pip install --quiet --constraint build/lowest/constraints.txt -e ".[campaigns,flights]" --group test
	build/lowest/bin/python -m pytest

bench: $(VENV)/tested  ## Speed as ratios of what the machine can do; a table and bench.json
	$(BIN)/python -m benchmarks.speed --out bench.json

test-campaigns-load: $(VENV)/tested  ## Campaigns under load, with kills and a full disk, on both databases
	for storage in sqlite postgresql; do \
	  $(BIN)/python -m benchmarks.campaigns load --storage $$storage && \
	  $(BIN)/python -m benchmarks.campaigns kill --storage $$storage || exit 1; \
	done
	$(BIN)/python -m benchmarks.campaigns speed
	test "$$(id -u)" != 0 || $(BIN)/python -m benchmarks.campaigns disk

# The exact versions that these commands install. Package indexes differ from machine to machine, so the file holds
# names and versions only.
lock:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet "pip>=25.1"
	$(PIP) install --quiet -e ".[campaigns,flights,ray,torch]" --group dev
	$(PIP) freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

$(VENV)/installed: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint requirements.lock -e ".[campaigns,flights]"
	touch $@

$(VENV)/tested: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet "pip>=25.1"
	$(PIP) install --quiet --constraint requirements.lock -e ".[campaigns,flights]" --group test
	touch $@

$(VENV)/documented: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet "pip>=25.1"
	$(PIP) install --quiet --constraint requirements.lock -e ".[campaigns,flights,torch]" --group docs
	touch $@

$(VENV)/torch: $(VENV)/tested
	$(PIP) install --quiet --constraint requirements.lock -e ".[campaigns,flights,torch]" --group test --group torch
	touch $@

$(VENV)/ray: $(VENV)/tested
	$(PIP) install --quiet --constraint requirements.lock -e ".[campaigns,flights,ray]" --group test
	touch $@

clean:
	rm -rf $(VENV) build dist runs docs/_build docs/api docs/commands bench.json

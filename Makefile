# Two commands set up everything on a machine with Python 3.11 or later: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test bench lock clean

demo: $(VENV)/installed  ## Install, run the toy experiment in a quick version, say where the report is
	rm -rf runs/demo
	$(BIN)/ncprior paper toy --quick --out runs/demo

test: $(VENV)/tested  ## Linters, types, layers and tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest

bench: $(VENV)/tested  ## Speed as ratios of what the machine can do; a table and bench.json
	$(BIN)/python -m benchmarks.speed --out bench.json

# The exact versions that the two commands install. Package indexes differ from machine to machine, so the file holds
# names and versions only.
lock:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "pip>=25.1"
	$(BIN)/python -m pip install --quiet -e ".[flights]" --group test
	$(BIN)/python -m pip freeze --exclude-editable > requirements.lock

$(VENV)/installed: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock -e ".[flights]"
	touch $@

$(VENV)/tested: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint requirements.lock -e ".[flights]" --group test
	touch $@

clean:
	rm -rf $(VENV) runs bench.json

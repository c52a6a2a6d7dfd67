# `make` prints this help. Every target first makes its own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# uv reads no pip configuration: a mirror that pip is told of serves uv, too.
UV := UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}}" $(BIN)/uv
# Tests and figures start hundreds of processes: each would compile turnout and its libraries again.
unexport PYTHONDONTWRITEBYTECODE
# One more than there are cores: many tests wait for a disk, a socket or a process.
JOBS ?= $(shell expr $$(nproc) + 1)
UPGRADE ?= --upgrade

.DEFAULT_GOAL := help
.PHONY: help setup paper test test-deployment test-release coverage mutants check bench docs format lock paper-map clean

help: ## Print this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'

setup: $(READY) ## Make the environment (.venv) from the pinned versions

$(READY): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "turnout needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "1 of 4: a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2 of 4: uv, which installs the rest, by pip; its pinned version is in requirements/dev.lock"
	@sed -n '/^uv==/,/# via/p' requirements/dev.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/uv.lock
	@echo "3 of 4: the libraries and tools of requirements/dev.lock"
	@$(UV) pip install --python $(BIN)/python --require-hashes -r requirements/dev.lock
	@echo "4 of 4: turnout itself, from this folder"
	@$(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

paper: $(READY) ## Reproduce the paper: figures, results.json and report.html in results/paper
	$(BIN)/turnout paper --output results/paper

test: $(READY) ## Run the tests (the long ones: test-deployment, test-release)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-deployment: $(READY) ## Run the tests that take long: real SuperLinks, Ray, fleets and faults, large runs, the benchmark
	$(BIN)/python -m pytest -m deployment tests --ignore tests/test_release.py --ignore tests/test_fresh_clone.py

test-release: $(READY) ## Build, install from the wheel with each extra, follow the README in a fresh clone
	$(BIN)/python -m pytest -m deployment tests/test_release.py tests/test_fresh_clone.py

coverage: $(READY) ## Run all tests with coverage, subprocesses included
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n $(JOBS) --dist worksteal
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

mutants: $(READY) ## Make small mistakes in algorithm/ and privacy/: do the tests notice? (a sample)
	$(BIN)/python tools/mutation.py --packages src/turnout/algorithm src/turnout/privacy \
		--tests tests/algorithm tests/privacy tests/conformance tests/client tests/audit src/turnout/algorithm src/turnout/privacy \
		--sample 300 --seed 0

check: $(READY) ## Lint, types, layers, docs and the paper map, without running tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/paper_map.py --check
	$(MAKE) --no-print-directory docs

bench: $(READY) ## Measure speed against plain Python, NumPy, JAX, C and Flower; JSON and page in results/bench
	$(BIN)/python benchmarks/bench.py --output results/bench

docs: $(READY) ## Build the site, strictly, into docs/_build/html
	$(BIN)/sphinx-build --quiet -W --keep-going -n -b html docs docs/_build/html
	@echo docs/_build/html/index.html

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

paper-map: $(READY) ## Write docs/paper-map.md anew from the docstrings
	$(BIN)/python tools/paper_map.py

lock: $(READY) ## Pin the newest versions (UPGRADE= keeps those that still fit)
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(UPGRADE) \
		--extra lab --extra server --extra postgres --extra flower --extra gpu --extra cluster --extra dev pyproject.toml --output-file requirements/dev.lock

clean: ## Remove what was built
	rm -rf $(VENV) results docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

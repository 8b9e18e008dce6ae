# labkit on this machine, from a fresh checkout: needs make and any Python from 3.11 on.
# Without make: docs/windows.md. `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
WORKSPACE := binder/jupyter/workspace.json
STAMP := $(VENV)/labkit-is-set-up
CHOICES := $(VENV)/choices.mk

# What was chosen at the last set-up stays chosen.
-include $(CHOICES)
# The first of these that runs, is at least 3.11 and can make virtual environments is used.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
# Installed first and pinned, so that nothing later picks another build.
TORCH ?= torch==2.13.0
# Where torch comes from; empty is pip's own default.
TORCH_INDEX ?=
# Parts of `make bench`, for example BENCH="dlrm_step scaling"; empty is all.
BENCH ?=
# Extra arguments of pytest, for example PYTEST_ARGS="-k resume".
PYTEST_ARGS ?=
# How many tests run at once: one more than the machine has cores, four at most.
WORKERS ?= --numprocesses auto --maxprocesses 4
# The seeds that each campaign of `make soak` draws, FIRST:END; `make test` draws the first four.
SOAK ?= 4:120

PIP := $(BIN)/python -m pip --disable-pip-version-check $(if $(CI),--quiet)

.DEFAULT_GOAL := help
.PHONY: help setup tour test soak bench bench-peers bench-perfmodel claims docs lab clean redo

help:
	@echo 'make setup   create .venv and install labkit into it'
	@echo 'make tour    train both jobs under every budget of this machine and write report/index.html'
	@echo 'make test    run every test, including the style checks'
	@echo 'make soak    the long robustness tests: damaged inputs, killed launchers and writers (make test runs a sample of them)'
	@echo 'make bench   measure what the fast paths gain here (half an hour); BENCH="dlrm_step" runs that part only'
	@echo 'make claims  run the notebooks and write what they say of the papers (an hour)'
	@echo 'make docs    build the pages of docs/ and the API reference into site/docs'
	@echo 'make lab     open JupyterLab on the notebooks'
	@echo 'make clean   remove .venv and what the tools cached here; runs/ and report/ stay'
	@echo
	@echo 'Each target sets up what it needs first. Another Python, or another build of torch (here: the small CPU build):'
	@echo '  make setup PYTHON=python3.12 TORCH="torch==2.11.0" TORCH_INDEX=https://download.pytorch.org/whl/cpu'

# Of a Python: is it new enough, and can it make virtual environments?
IS_NEW := import sys; sys.exit(sys.version_info < (3, 11))
HAS_VENV := import ensurepip, venv
# Of .venv: does its Python start, and does it see this checkout (and not the folder that this one was copied from)?
IS_WHOLE := import labkit, os, sys; sys.exit(not os.path.samefile(os.path.dirname(labkit.__file__), "labkit"))

# A .venv that is broken, or was made for another choice of Python or torch, is made again.
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell $(BIN)/python -P -c '$(IS_WHOLE)' >/dev/null 2>&1 && cat $(STAMP)),$(strip $(PYTHON) $(TORCH) $(TORCH_INDEX)))
REDO := redo
endif
endif

setup: $(STAMP)

# The stamp is written last: where it is missing, a set-up was interrupted and starts again from nothing.
# Where it is only older than pyproject.toml, pip brings the environment up to date.
$(STAMP): pyproject.toml $(REDO)
	@if [ -z '$(REDO)' ] && [ -f $(STAMP) ]; then rm $(STAMP); exit 0; fi; \
	new=''; chosen=''; \
	for python in $(PYTHON); do \
	    if "$$python" -c '$(IS_NEW)' >/dev/null 2>&1; then \
	        new="$${new:-$$python}"; \
	        if "$$python" -c '$(HAS_VENV)' >/dev/null 2>&1; then chosen="$$python"; break; fi; \
	    fi; \
	done; \
	if [ -z "$$new" ]; then \
	    echo 'labkit needs Python 3.11 or newer, and none of these is one: $(PYTHON).' >&2; \
	    echo 'Install one (Debian, Ubuntu: sudo apt install python3 python3-venv; macOS: brew install python@3.12),' >&2; \
	    echo 'or name yours: make setup PYTHON=/path/to/python3' >&2; exit 1; \
	fi; \
	if [ -z "$$chosen" ]; then \
	    echo "$$new cannot make virtual environments: its ensurepip module is missing." >&2; \
	    echo 'On Debian and Ubuntu it comes with: sudo apt install python3-venv' >&2; exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$chosen: a few minutes, once."; \
	rm -f $(STAMP); "$$chosen" -m venv --clear $(VENV)
	@$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)' || { \
	    echo '$(TORCH) did not install. If pip found no matching distribution, this Python or machine has no build of it:' >&2; \
	    echo 'choose another, for example make setup PYTHON=python3.12, or TORCH="torch>=2.11,<2.16".' >&2; exit 1; }
	@$(PIP) install -e '.[test]'
	@printf '%s\n' 'PYTHON ?= $(PYTHON)' 'TORCH ?= $(TORCH)' 'TORCH_INDEX ?= $(TORCH_INDEX)' > $(CHOICES)
	@echo '$(strip $(PYTHON) $(TORCH) $(TORCH_INDEX))' > $(STAMP)

tour: setup
	@$(BIN)/python -m labkit tour

test: setup
	@$(BIN)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

# Damaged data, manifests, plans, traces and run folders; SOAK=17:18 repeats the case of seed 17.
soak: setup
	@LABKIT_SOAK=$(SOAK) $(BIN)/python -m pytest --timeout 3600 tests/soak tests/launch/test_kills.py tests/launch/test_ranked_runs.py \
	    tests/launch/test_warm_runs.py tests/course/test_grading.py tests/placement/test_sharded.py $(PYTEST_ARGS)

# What the fast paths gain on this machine: ratios within one run, written to benchmarks/results/.
bench: setup
	@$(BIN)/python benchmarks/bench.py $(BENCH)

# Predicted beside recorded and measured training steps, on all of two cores and on one (twenty minutes).
bench-perfmodel: setup
	@$(BIN)/python benchmarks/recorded_step.py
	@$(BIN)/python benchmarks/step_prediction.py
	@$(BIN)/python benchmarks/step_prediction.py --threads 1
	@$(BIN)/python benchmarks/what_if.py
	@$(BIN)/python benchmarks/target_prediction.py

# labkit beside other libraries, which are installed where nothing but this benchmark finds them.
bench-peers: setup
	@$(PIP) install --quiet --no-deps --upgrade --target $(VENV)/peers --requirement benchmarks/peers.txt
	@$(BIN)/python benchmarks/peers.py

# Runs the notebooks again, which takes about an hour, and writes docs/reproductions.md from what they found.
claims: setup
	@$(BIN)/python -m labkit course run --profile standard --out course-run
	@$(BIN)/python -m labkit claims --executed course-run

# A broken link, inside or outside of docs/, is an error.
docs: setup
	@$(BIN)/python -m mkdocs build --strict --quiet

# On PATH, so that `!labkit` in a notebook and a terminal of JupyterLab find what .venv has. The settings are a student's:
# solutions are not listed, and nothing is asked or offered that a student has no use of.
lab: setup
	@if [ "$$(id -u)" = 0 ]; then echo 'You are root: whoever reaches this JupyterLab is, too. Use it in a container only.'; fi
	@export PATH="$(CURDIR)/$(BIN):$$PATH" JUPYTER_CONFIG_PATH="$(CURDIR)/binder/jupyter" \
	    JUPYTERLAB_WORKSPACES_DIR="$(CURDIR)/$(VENV)/workspaces"; \
	[ -d "$$JUPYTERLAB_WORKSPACES_DIR" ] || $(BIN)/python -m jupyter lab workspaces import $(WORKSPACE) >$(VENV)/workspace.log 2>&1; \
	$(BIN)/python -m jupyter lab notebooks/00_start_here.ipynb

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

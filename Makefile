# Everything runs in .venv, made on first use from pyproject.toml and constraints.txt. `make` alone lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= toolformer-data
N ?= 10
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install dev demo test chaos check format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.run ## .venv with what a user needs
dev: $(VENV)/.dev ## .venv with the checkers and tests as well

# torch first and alone: another package's open requirement would pull the CUDA build.
$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.run ## corpus to C* on the embedded corpus and model (DATA=folder)
	$(BIN)/toolformer demo --data $(DATA)

test: $(VENV)/.dev ## pass the tests
	$(BIN)/pytest

chaos: $(VENV)/.run ## kill a build N times at random moments, compare with one left alone (N=10)
	$(BIN)/python benchmarks/chaos.py --kills $(N)

check: $(VENV)/.dev ## format, lint, types and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## put the format right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove .venv, caches and ./toolformer-data
	rm -rf $(VENV) toolformer-data .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

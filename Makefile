# Everything runs in .venv, made on first use from pyproject.toml and constraints.txt. `make` alone lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= toolformer-data
N ?= 10
RUNNER ?= threads
CERTIFY ?= .certify
STUDY = smollm2$(if $(PART),-$(PART))
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export GOMP_SPINCOUNT := 20000
# what is compiled once, tests and the processes that they start by the hundred read
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install dev demo test fuzz test-slow test-machines test-mcp certify case-study chaos guards image bench system check format docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.run ## .venv with what a user needs
dev: $(VENV)/.dev ## .venv with the checkers and tests as well

# torch first and alone: another package's open requirement would pull the CUDA build. pip compiles in
# one process, which takes longer than all the rest: compileall has all cores, and only what is not compiled to do.
PIP_INSTALL := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
$(VENV)/.run: pyproject.toml constraints.txt
	@echo "Installing into $(VENV), which takes about two minutes"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) --editable .
	$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP_INSTALL) --editable '.[dev]'
	$(COMPILE)
	@touch $@

demo: $(VENV)/.run ## corpus to C* on the embedded corpus and model (DATA=folder)
	$(BIN)/toolformer demo --data $(DATA)

test: $(VENV)/.dev system ## pass the tests, in two processes, a file in one
	$(BIN)/pytest --numprocesses 2 --dist loadfile

fuzz: $(VENV)/.dev system ## pass the property tests with 2,000 examples each, drawn anew each time (SEED=n: as then)
	@seed=$(or $(SEED),$$RANDOM); echo "the same again: make fuzz SEED=$$seed"; \
	$(BIN)/pytest -m hypothesis --hypothesis-profile=fuzz --hypothesis-seed=$$seed --numprocesses 2 --dist loadfile

test-slow: $(VENV)/.dev system ## pass the tests that take long: workers, cancelled and killed flow runs, further cases of quick tests
	$(BIN)/pytest -m slow

test-machines: $(VENV)/.dev ## pass the tests on a real Slurm, PostgreSQL and Swift, which it installs where it may (root, Debian)
	@.ci/system machines
	$(PIP_INSTALL) kubernetes-validate
	$(BIN)/pytest -m machines tests/machines

test-mcp: $(VENV)/.dev ## ask MCP servers that others wrote, fetched from the package registries (MCP=folder to keep them)
	MCP=$(MCP) $(BIN)/pytest tests/real_mcp_servers.py

certify: $(VENV)/.run ## minutes: TRL, datasets, axolotl and LLaMA-Factory read our exports, each in its own environment (CERTIFY=folder, ONLY=trl)
	$(BIN)/python -m certify --environments $(CERTIFY) $(if $(ONLY),--only $(ONLY))

case-study: $(VENV)/.run ## a real model on real text (TEXTS=folder with math/ and lm/; PART=quick: calculator, an hour or two; PART=tools: the others; else a day)
	@test -f "$(TEXTS)/math/gsm8k.train.jsonl" || { echo 'TEXTS=folder: see docs/real-model.md for what lies in it'; exit 2; }
	$(PIP_INSTALL) --editable '.[gguf]'
	mkdir -p case-study && ln -sfn "$(abspath $(TEXTS))" case-study/texts
	test -d case-study/smollm2 || $(BIN)/python recipes/fetch_smollm2.py case-study/smollm2
	test -f case-study/gsm8k/gold.jsonl || $(BIN)/python recipes/gsm8k.py case-study/texts/math/gsm8k.train.jsonl --answers \
		--out case-study/gsm8k --without case-study/texts/math/gsm8k.test.jsonl --without case-study/texts/math/SVAMP.json
	test ! -f case-study/texts/wiki/passages.jsonl || test -d case-study/wiki || \
		$(BIN)/python recipes/wiki.py case-study/texts/wiki/passages.jsonl --out case-study/wiki
	test ! -d case-study/texts/mt || test -f case-study/tatoeba.jsonl || \
		$(BIN)/python recipes/tatoeba.py case-study/texts/mt --out case-study/tatoeba.jsonl
	$(BIN)/toolformer run recipes/$(STUDY).yaml --data case-study/$(STUDY)-data
	$(BIN)/python -m recipes.case_study recipes/$(STUDY).yaml --data case-study/$(STUDY)-data --gold case-study/gsm8k \
		--out case-study/$(STUDY).md

chaos: $(VENV)/.run ## kill a build N times at random moments, compare with one left alone (N=10, RUNNER=dask)
	$(BIN)/python benchmarks/chaos.py --kills $(N) --runner $(RUNNER)

guards: $(VENV)/.dev system ## minutes: take out guards against crashes, damage and full disks, one at a time, and see a test fail
	$(BIN)/python tests/guards.py

image: ## build the container image, run doctor and a short demo in it, print its size (KIND=gpu: torch with CUDA)
	.ci/image $(KIND)

bench: $(VENV)/.dev ## speed, as ratios within one run: finetuning against the Trainer, decoding against generate, serving, annotating
	$(BIN)/python benchmarks/finetune.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/lm_engine.py

system: ## what tests of SSH and of web pages need from Debian, where it may be installed; without it they are skipped
	@.ci/system

check: $(VENV)/.dev ## format, lint, types and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## put the format right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev ## build the documentation into ./site, strictly and offline
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo site/index.html

clean: ## remove .venv, caches, ./site and ./toolformer-data
	rm -rf $(VENV) toolformer-data site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# Three commands do everything, set-up included: `make run`, `make demo`, `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install run demo docs test test-all test-slice faults quick lint browser postgresql simulator ui schedule services services-stop bench gpu league clean

PYTHON ?= python3.11
RECIPE ?= recipes/arithmetic.yaml
# More for the command behind run, demo, ui, schedule, services, bench, gpu and league, as in: make ui OPTIONS="--mlflow-port 5001"
OPTIONS ?=
# Test processes side by side; tests that share a server or an engine stay in one. 0: pytest's own alone.
WORKERS ?= 2
SLICE ?= 0/8
# CUDA=1 or CUDA=0 decides by hand; otherwise a working nvidia-smi does.
CUDA ?= $(shell nvidia-smi >/dev/null 2>&1 && echo 1 || echo 0)
LOCK := $(if $(filter 1,$(CUDA)),cuda.lock,cpu.lock)
BIN := .venv/bin
PYTEST = $(BIN)/python -m pytest --no-loadscope-reorder

help: ## Show what can be made
	@echo "Rewardflow. Usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Options: RECIPE=path (run), OPTIONS=... (run, demo, ui, schedule, services, bench, gpu, league), CUDA=0|1 (lock file; here $(LOCK)), PYTHON=python3.11"

install: .venv/.installed ## Install the locked environment into .venv

.venv/.installed: $(LOCK) pyproject.toml
	@PYTHON='$(PYTHON)' LOCK='$(LOCK)' bash .ci/install

run: .venv/.installed ## Main job: data, validation, warm start, reward model, RL, evaluation, promotion
	@$(BIN)/rewardflow run $(RECIPE) $(OPTIONS)

demo: .venv/.installed ## A real language model learns to follow instructions: installs it, trains, evaluates, promotes
	@$(BIN)/rewardflow base add smollm2-135m-instruct
	@$(BIN)/rewardflow run real/smollm2_instructions $(OPTIONS)

# Style, types and imports are checked at the same time as the tests; their output is shown if they fail.
test: .venv/.installed browser postgresql simulator ## Run all tests except the thorough ones; check style, types and imports
	@$(MAKE) --no-print-directory lint >.lint.log 2>&1 & lint=$$!; \
	echo "== pytest, $(WORKERS) processes; ruff, mypy and import-linter at the same time"; \
	$(PYTEST) -n $(WORKERS) -m 'not thorough' --durations=10 && status=0 || status=$$?; \
	wait $$lint || { cat .lint.log; status=1; }; rm -f .lint.log; exit $$status

test-all: .venv/.installed browser postgresql simulator lint ## Run every test in one process: also long runs, faults, and every recipe's smoke
	@$(PYTEST) -n 0 --durations=10

test-slice: .venv/.installed postgresql simulator ## Run a slice of the thorough tests: SLICE=K/N, every N-th beginning with the K-th
	@$(PYTEST) -n 0 -m thorough --slice $(SLICE) --durations=10

faults: .venv/.installed postgresql ## Inject every fault into real runs and write the outcomes to docs/faults.md
	@FAULT_TABLE=docs/faults.md $(PYTEST) -n $(WORKERS) -m faults --durations=10

quick: .venv/.installed ## Run the core's tests: a minute
	@$(PYTEST) -n $(WORKERS) -m quick -q

lint: .venv/.installed ## Check style (ruff), types (mypy), imports between layers (import-linter) and the language
	@echo "== ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== mypy" && $(BIN)/mypy
	@echo "== import-linter" && $(BIN)/lint-imports --no-logo
	@echo "== language" && $(BIN)/python .ci/language.py

docs: .venv/.installed ## Build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

browser: ## Get Debian's chromium for the test of the MLflow UI, where that is possible
	@bash .ci/browser

postgresql: ## Get Debian's PostgreSQL for `make services` and its tests, where that is possible
	@bash .ci/postgresql

simulator: ## Get Debian's Icarus Verilog for rewards that test circuits, where that is possible
	@bash .ci/simulator

ui: .venv/.installed ## Start the MLflow and Prefect servers and print their addresses
	@$(BIN)/rewardflow ui $(OPTIONS)

schedule: .venv/.installed ## Serve the deployments of prefect.yaml on their schedules
	@$(BIN)/rewardflow schedule $(OPTIONS)

services: .venv/.installed postgresql ## Start PostgreSQL, an S3 server, MLflow and Prefect without containers; print what to export
	@$(BIN)/rewardflow services start $(OPTIONS)

services-stop: ## End those that `make services` started; what they hold stays
	@$(BIN)/rewardflow services stop $(OPTIONS)

# With --no-deps, as the lock: what else TRL asks for is there.
bench: .venv/.installed ## Measure speed and memory beside TRL (about 15 minutes); OPTIONS="--only grpo_32" for one
	@$(BIN)/python -c 'import trl' 2>/dev/null || $(BIN)/python -m pip install --quiet --no-deps \
		'trl>=1.16,<1.17' 'datasets>=5.2,<6' 'multiprocess>=0.70,<0.71' 'xxhash>=4,<5'
	@$(BIN)/python -m benchmarks $(OPTIONS)

gpu: .venv/.installed ## Test and measure all that only a GPU can show, in 12 minutes; OPTIONS="--minutes 6" for fewer
	@$(BIN)/python -m benchmarks.gpu.checks --out .rewardflow/gpu $(OPTIONS)

league: .venv/.installed ## Train every recipe at one budget and write docs/league.md (under 4 hours; resumes where it was)
	@$(BIN)/python -m benchmarks.league $(OPTIONS)

clean: ## Remove the environment and the caches of tools; runs, models and data stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist *.egg-info

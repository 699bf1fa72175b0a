# GraphGuard's commands; `make help` lists them.
SHELL := /bin/bash
# The first Python on the path that runs and is new enough.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
# The version that is tested. Set TORCH to another requirement, or PIP_ARGS to an index, to test against another build.
TORCH ?= torch==2.13.0
PIP_ARGS ?=
# Test files that run at once.
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
# What builds the documentation: no torch, nothing of ours.
DOCS := .venv-docs
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Every process would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-all lint unit rest long client-test e2e soak diagnosis trust bench docs generated frameworks scripts matrix package clean

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready ## make the environment in .venv

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "GraphGuard needs Python 3.11 or newer: install one, or say where it is with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) "$(TORCH)"
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --editable ".[dask,mcp,server]" --group dev
	@touch $@

node_modules/.ready: package.json package-lock.json
	npm ci --no-audit --no-fund
	@touch $@

demo: setup ## check the examples: what is proved, what is broken, where, and the proved fix
	@$(BIN)/graphguard check examples; status=$$?; \
	if [ $$status -le 1 ]; then echo; echo "The findings above are in examples that are broken on purpose."; else exit $$status; fi

test: setup node_modules/.ready lint unit client-test ## lint, types, unit tests, cases, the extension: what a contributor waits for

test-all: test rest long ## every test that needs no editor

lint: setup ## ruff and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: setup ## the Python tests of `make test`
	$(BIN)/pytest tests/unit tests/cases --tier core -n $(JOBS) --dist worksteal

rest: setup ## all other Python tests: whole programs, real bugs, the server, real processes
	$(BIN)/pytest --tier rest -n $(JOBS) --dist worksteal

long: setup ## tests that take a minute and more each: run them before a release, and after a change of what they are about
	$(BIN)/pytest --tier long -n $(JOBS) --dist worksteal

client-test: node_modules/.ready ## the extension's type check and unit tests
	npm run --silent check
	npm run --silent test

e2e: setup node_modules/.ready ## real editors: VS Code and Neovim open an example, show the finding, apply the fix
	PATH="$(CURDIR)/$(BIN):$$PATH" bash tests/e2e/run.sh

package: node_modules/.ready setup ## build the .vsix
	npm run --silent package

soak: setup ## the language server under faults, random messages and half an hour of edits
	$(BIN)/python -m benchmarks.server_faults
	$(BIN)/python -m benchmarks.server_fuzz
	$(BIN)/python -m benchmarks.soak

diagnosis: setup ## how well spoiled programs and the corpus of real bugs are diagnosed: docs/diagnosis.md, docs/corpus.md
	$(BIN)/python -m benchmarks.diagnosis --jobs 2 --save .diagnosis.json
	$(BIN)/python -m benchmarks.diagnosis --table .diagnosis.json > docs/diagnosis.md
	$(BIN)/python -m benchmarks.corpus > docs/corpus.md

trust: setup ## the long soundness runs: rules, random programs, mutants of traced programs, programs on real processes
	$(BIN)/python -m benchmarks.trust rules
	$(BIN)/python -m benchmarks.trust fuzz --nodes 10000000
	$(BIN)/python -m benchmarks.trust mutate --mutants 2000
	$(BIN)/python -m benchmarks.trust world --programs 5000
	$(BIN)/python -m benchmarks.trust world --cache --programs 400
	$(BIN)/python -m benchmarks.trust classes --programs 500

bench: setup ## every benchmark, as ratios within one run
	$(BIN)/python -m benchmarks.tracing
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.whole

frameworks: setup ## optional frameworks, traced and replayed on numbers
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --group frameworks
	$(BIN)/pytest -m frameworks

# Each Python with each torch; a torch of "none" is an environment without, which records in .venv; "system" is what the Python has. TORCH_ARGS go to pip where it installs torch.
PYTHONS ?= $(PYTHON)
TORCHES ?= 2.13.0 none
matrix: setup ## install the wheel into fresh environments and try it there: PYTHONS="python3.11 python3.13" TORCHES="2.13.0 none"
	@$(BIN)/python tests/install/matrix.py "$(PYTHONS)" "$(TORCHES)"

scripts: setup ## public training scripts, fetched: as they are, and each with a planted mistake
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --group scripts
	$(BIN)/python -m tests.frameworks.test_scripts
	$(BIN)/pytest -m frameworks tests/frameworks/test_scripts.py

docs: $(DOCS)/.ready ## the documentation as a site, in dist/site, its links checked
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict

$(DOCS)/.ready: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(DOCS)/bin/python -m pip install --quiet $(PIP_ARGS) --group docs
	@touch $@

generated: setup ## regenerate the generated documents
	$(BIN)/python -m graphguard.report.pages docs/rules
	$(BIN)/python -m graphguard.rules.document > docs/operators.md
	$(BIN)/python -m tests.cases.messages

clean: ## remove what the other commands made
	rm -rf .scripts $(VENV) $(DOCS) node_modules dist client/out .e2e .mypy_cache .ruff_cache .pytest_cache

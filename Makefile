# Every target makes the virtual environment .venv, with everything in it, if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HELM := $(VENV)/helm/helm
HELM_VERSION := v3.19.0
ARCHIVES := $(VENV)/class-archives/.made
REPEATS := 3

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all test-changed test-parts test-stress check unit integration chaos bench test-browser chart docs clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 15

venv: $(STAMP)  ## make .venv with everything in it

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "SparkRelay needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11.")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	$(BIN)/python -c 'from sparkrelay.records import compile_kernels; compile_kernels()'
	touch $@

$(ARCHIVES): $(STAMP) tests/class_archives.py
	$(BIN)/python -m tests.class_archives
	touch $@

demo: venv  ## two instances, one SIGKILL, one exact answer
	$(BIN)/sparkrelay demo

check: venv  ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: venv  ## tests that need neither broker nor Spark (two minutes)
	$(BIN)/pytest -n 2 tests/unit

integration: venv  ## tests on a real Kafka and a real Spark
	$(BIN)/pytest tests/integration

test: venv $(ARCHIVES)  ## what must pass before a change lands: a quarter of an hour
	$(BIN)/python -m tests.parts --quick

test-all: venv $(ARCHIVES)  ## every test, hours, part by part; continues after an interruption (PARTS="units driver" for some)
	$(BIN)/python -m tests.parts $(PARTS)

test-changed: check $(ARCHIVES)  ## the tests of `make test` that a change can reach (BASE=REV; else since the upstream, or origin's branch)
	@selected="$$($(BIN)/python -m tests.selection $(BASE:%=--base %))" || exit; \
	case "$$selected" in \
	everything) $(BIN)/python -m tests.parts --quick;; \
	"") ;; \
	*) $(BIN)/python -m tests.parts --files $$selected;; \
	esac

test-stress: venv $(ARCHIVES)  ## tests beside busy loops, shuffled, REPEATS=3 times: the changed test files, or TESTS="..."
	$(BIN)/python -m tests.stress --repeats $(REPEATS) $(TESTS)

test-parts: venv  ## the parts of test-all, and how each of them ended last
	@$(BIN)/python -m tests.parts --list

chaos: venv $(ARCHIVES)  ## the whole kill suite
	$(BIN)/python -m tests.parts kills-at-points kills-at-moments kills-with-features kills-of-clusters

test-browser: venv  ## the live page in a real browser: needs Chromium (CHROMIUM=/usr/bin/chromium)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group browser
	$(BIN)/pytest tests/browser

$(HELM):
	@command -v go > /dev/null || { echo "make chart builds Helm, which needs Go 1.24 or newer: https://go.dev/dl" >&2; exit 1; }
	GOBIN=$(abspath $(@D)) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

chart: venv $(HELM)  ## the Helm chart: lint it, and check what it makes against Kubernetes' schemas (needs Go)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group chart
	HELM=$(abspath $(HELM)) $(BIN)/pytest tests/chart

bench: venv  ## drain and latency, ours beside its peers, as ratios
	$(BIN)/python -m bench

docs: venv  ## the pages of docs/ as a site, in site/index.html
	$(BIN)/zensical build --clean --strict

clean:  ## remove caches (keeps .venv)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse artifacts site .cache

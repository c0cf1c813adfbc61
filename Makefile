# Every target makes the virtual environment .venv, with everything in it, if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HELM := $(VENV)/helm/helm
HELM_VERSION := v3.19.0
ARCHIVES := $(VENV)/class-archives/.made

# They need a broker and no Spark, and mostly wait: several at once.
WITHOUT_SPARK := $(addprefix tests/integration/,client consumer devkafka doctor packaging records security) tests/chaos/consumer

# Each of the two has a Spark of its own; some files hold tests that follow on one another. tests/conftest.py orders them.
WITH_SPARK := -n 2 --dist loadfile --no-loadscope-reorder

SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-with-spark test-without-broker test-without-spark check unit integration chaos test-long bench test-browser chart docs clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 14

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

unit: venv  ## tests that need neither broker nor Spark (seconds)
	$(BIN)/pytest -n 2 tests/unit

integration: venv  ## tests on a real Kafka and a real Spark
	$(BIN)/pytest tests/integration

# Two parts at a time, of which each keeps the cores busy while the other waits. What a part says is printed whole once
# it has ended, by a make that can do that (GNU make 4); a part that fails does not end the others.
test: check $(ARCHIVES)  ## everything that must hold before a change lands
	$(MAKE) --no-print-directory --keep-going --jobs 2 $(SYNC) test-with-spark test-without-broker test-without-spark

test-with-spark: venv
	$(BIN)/pytest $(WITH_SPARK) -m 'not long' tests/integration tests/chaos $(WITHOUT_SPARK:%=--ignore=%)

test-without-broker: venv
	$(BIN)/pytest -n 2 tests/unit tests/oracle

test-without-spark: venv
	$(BIN)/pytest -n 3 -m 'not long' $(WITHOUT_SPARK)

chaos: venv  ## the whole kill suite
	$(BIN)/pytest $(WITH_SPARK) tests/chaos

test-browser: venv  ## the live page in a real browser: needs Chromium (CHROMIUM=/usr/bin/chromium)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group browser
	$(BIN)/pytest tests/browser

test-long: venv  ## what takes hours: millions of damaged batches (FUZZ_INPUTS=N for fewer), every scenario and example
	HYPOTHESIS_PROFILE=whole $(BIN)/pytest -n 2 tests/unit
	$(BIN)/pytest -m long tests/long tests/integration/consumer

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

# Every target sets up what it needs on a bare machine: Python 3.11 to 3.13 with pip, nothing else.
.DEFAULT_GOAL := help
SHELL := /bin/bash -eo pipefail

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q
# Worker processes with one thread each: torch's own threads would fight over two cores, and a third
# worker has work while tests of the deployment wait. A fourth costs more than it gives.
WORKERS ?= 3
# Hundreds of processes import the library: they read what the first of them has compiled.
unexport PYTHONDONTWRITEBYTECODE
RUN ?= runs/first

# Stamps, so that nothing is installed again until the project's requirements change.
READY_RUN := .venv/.ready-run
READY := .venv/.ready
READY_DOCS := .venv/.ready-docs
READY_RELEASE := build/release/.ready
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# A pip of today finds versions in half the time of the one that comes with Python 3.11. Compiling
# is left to all cores, without large packages of which a test imports little or nothing; some
# packages hold templates that are no Python, which is no error.
RARE := /(tests|pip|setuptools|sumo|mlflow|sympy|ray|onnx|pandas|networkx|opentelemetry|sqlalchemy)/
define INSTALL
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt pip
	$(PIP) --no-compile -c constraints.txt -e ".[$(1)]"
	$(BIN)/python -W ignore -m compileall -qq -j 0 -x '$(RARE)' .venv/lib fedwatt || true
endef

$(READY_RUN): pyproject.toml constraints.txt
	$(call INSTALL,train)
	touch $@

# The development tools include all that a run needs.
$(READY): pyproject.toml constraints.txt
	$(call INSTALL,dev)
	touch $(READY_RUN) $@

$(READY_DOCS): $(READY)
	$(call INSTALL,docs)
	touch $@

# Apart from .venv: twine needs a newer packaging than Flower allows.
$(READY_RELEASE): Makefile
	$(PYTHON) -m venv build/release
	build/release/bin/pip install --disable-pip-version-check -q build==1.6.1 twine==7.0.0
	touch $@

.PHONY: help setup run test pytest flower lint types reproduce bench docs dist wheel clean

help: ## Show this list.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(READY) ## Create .venv and install fedwatt with its development tools.

run: $(READY_RUN) ## Train FedAvg and FO-RI-FedAvg on the built-in fleet and write a report.
	$(BIN)/fedwatt run $(if $(wildcard $(RUN)/config.toml),--resume) --out $(RUN)
	@echo "The report is $(RUN)/report.html"

# Side by side: style and types are checked while tests wait for processes.
test: $(READY) ## Lint, types, import contracts and every test.
	$(MAKE) -j3 lint types pytest

# Whole files, so that what a file's tests share is made once; tests/conftest.py has their order.
pytest: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

flower: $(READY) ## Tests of the deployment with Flower 1.41 and 1.42, fast path on and off.
	test -d build/flower || $(BIN)/pip install --disable-pip-version-check -q --no-deps \
		--target build/flower flwr==1.42.0
	for folder in "" build/flower; do for fast in 1 0; do \
		echo "Flower from $${folder:-.venv}, FEDWATT_FAST_PATH=$$fast"; \
		PYTHONPATH=$$folder:$(CURDIR) FEDWATT_FAST_PATH=$$fast $(BIN)/pytest -q tests/deploy; \
	done; done

lint: $(READY) ## Style, format, limits of size and import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/limits.py
	$(BIN)/lint-imports --no-logo

types: $(READY) ## Static types.
	$(BIN)/mypy --num-workers 2

reproduce: $(READY) ## The paper's report from committed records, and every study at smoke scale.
	OMP_NUM_THREADS=1 $(BIN)/fedwatt reproduce report --out build/reproduction/report.html
	OMP_NUM_THREADS=1 $(BIN)/fedwatt reproduce all --dataset synthetic --dataset synthetic-enriched \
		--out build/reproduction

bench: $(READY) ## Measure speed here and write the tables of docs/performance.md and methods.md.
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/probe.py
	$(BIN)/python benchmarks/engine.py --tables
	$(BIN)/python benchmarks/method_costs.py
	$(BIN)/fedwatt bench latency
	$(BIN)/python -m benchmarks.growth

docs: $(READY_DOCS) ## Build the documentation of this version into build/site/VERSION.
	$(BIN)/mkdocs build --strict --site-dir build/site/$(VERSION)

dist: $(READY_RELEASE) ## Build the wheel and the source archive into dist/, and check them.
	build/release/bin/python -m build
	build/release/bin/twine check --strict dist/*

wheel: dist ## Install the wheel into a clean environment, and train and predict with it.
	rm -rf build/wheel
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install --disable-pip-version-check -q -c constraints.txt "$$(ls dist/*.whl)[train]"
	cd build/wheel && bin/fedwatt run --vehicles 4 --rounds 2 --seeds 1 --out run && bin/fedwatt runs list .
	cd build/wheel && bin/fedwatt export run --out model.onnx && bin/fedwatt inspect model.onnx
	build/wheel/bin/fedwatt route examples/across-town.gpx --model leaf-24 --temperature -3 --soc 62%

clean: ## Remove .venv, caches and build output; runs and fleets stay.
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find fedwatt reproduction benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

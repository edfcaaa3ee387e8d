# Every recipe sets up what it needs; `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Tests run side by side. Tests on Spark and with servers often wait, so there are two processes more than cores.
PARALLEL ?= -n $(shell expr $$(nproc 2>/dev/null || echo 2) + 2)
export SPARK_LOCAL_IP := 127.0.0.1
# Modules are compiled once and kept, also where the environment says otherwise: tests and clusters start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test everything all-tests equipment java check lint types imports pure spark-tests service-tests browser-tests docs lock clean help

# Make .venv with pinned dependencies and the resurge command, and see to Java.
setup: $(STAMP)

$(STAMP): requirements.txt pyproject.toml scripts/ensure_java.sh scripts/install_pinned.sh | java
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned dependencies into $(VENV) (a minute or two the first time) ..."
	@bash scripts/install_pinned.sh $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -c "import pyspark.sql, resurge.runtime.driver.engine, resurge.runtime.worker.daemon, resurge.cli.main"
	@touch $(STAMP)

# Spark needs Java; installed where it may be.
java:
	@bash scripts/ensure_java.sh

# 15 queries on a cluster of four nodes, two of which are killed: they come back, and every row is checked.
demo: setup
	@$(BIN)/resurge demo

# Everything that CI runs: lint, types and imports beside all tests, on real Spark, against real servers and in a real browser.
test:
	@$(MAKE) --no-print-directory -j 4 everything

everything: lint types imports all-tests

# All tests in one go; what needs a server or a browser that cannot be had is skipped by name.
all-tests: setup equipment
	@$(BIN)/python -m pytest $(PARALLEL) -rs tests; status=$$?; bash scripts/services.sh stop; exit $$status

# A Kafka broker, PostgreSQL and Chromium for the tests, while the dependencies are installed.
equipment: java
	@bash scripts/services.sh start >/dev/null
	@bash scripts/ensure_chromium.sh

# Lint, types, import contract, unit, property, simulation and architecture tests.
check: lint types imports pure

# Style and likely mistakes.
lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# Static types.
types: setup
	@$(BIN)/mypy

# Who may import whom.
imports: setup
	@$(BIN)/lint-imports --no-logo

# Tests that need no JVM.
pure: setup
	@$(BIN)/python -m pytest $(PARALLEL) tests/unit tests/properties tests/simulation tests/architecture

# Tests on real Spark processes.
spark-tests: setup
	@$(BIN)/python -m pytest $(PARALLEL) tests/spark

# Tests against a real Kafka broker and a real PostgreSQL, which are started and stopped; skipped by name where they cannot be had.
service-tests: setup
	@bash scripts/services.sh start
	@$(BIN)/python -m pytest -rs tests/services; status=$$?; bash scripts/services.sh stop; exit $$status

# Tests of the dashboard in a real browser; skipped by name where there is none.
browser-tests: setup
	@bash scripts/ensure_chromium.sh
	@$(BIN)/python -m pytest -rs tests/browser

# The documentation site, in build/site; every link is checked.
docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

# Pin anew what requirements.in asks for.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock && build/lock/bin/pip install -q -r requirements.in setuptools wheel
	build/lock/bin/pip freeze --all | grep -v '^pip==' > requirements.txt

# Remove what set-up and runs made.
clean:
	rm -rf $(VENV) build out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Every target sets up .venv by itself; PYTHON=python3.12 make ... chooses the Python of it.
# `make setup` (scripts/setup.py) is what every target runs first; it is silent and quick when there is nothing to do.

ifeq ($(origin PYTHON), undefined)
PYTHON := python3
KEEP := --keep
endif

BIN := .venv/bin
# Where the environment forbids compiled modules, as images of containers often do, each process would compile them again.
export PYTHONDONTWRITEBYTECODE :=
TESTS := -n 3 --dist loadfile --no-loadscope-reorder -m "not $(if $(CI),served,(heavy or slow))"
PORT ?= 3000
HISTORIES ?= 1000
DAGSTER_HOME ?= .dagster

.PHONY: help setup demo test laws check browser dev docs bench lock servers served clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1@/p' $(MAKEFILE_LIST) | awk -F@ '{printf "%-14s%s\n", $$1, $$2}'

setup:  ## make .venv ready (Python 3.11 or newer, Java 17 or newer)
	@$(PYTHON) scripts/setup.py $(KEEP)

demo: setup  ## a day that lands again corrected, then a refund on Thursday for an order of Monday
	@$(BIN)/python examples/01_a_corrected_day.py
	@$(BIN)/python examples/02_a_refund.py

check: setup  ## the tools alone: ruff, mypy, the import contracts
	@failed=0; $(CHECKS) exit $$failed

test: setup  ## the tools, then the suite in two processes (CI=1: the long histories too); a tool that fails does not hide the others, and fails the target
	@failed=0; $(if $(CI),$(FURTHER) &) $(CHECKS) wait; \
	$(BIN)/python -m pytest -q $(TESTS) || failed=1; exit $$failed

LAWS = $(shell grep -rl --include 'test_*.py' laws.amount tests | sort)

laws: setup  ## the laws over more random histories than CI runs (HISTORIES=1000)
	@FOLDHOUSE_LAW_HISTORIES=$(HISTORIES) $(BIN)/python -m pytest -q -n 2 --dist loadfile $(LAWS)

browser: setup  ## the Dagster page in a browser, clicked through (needs a Chromium; FOLDHOUSE_SCREENSHOTS=folder keeps pictures)
	@$(PLAYWRIGHT)
	@$(BIN)/python -m pytest -q tests/location/test_browser.py

dev: setup  ## the Dagster page on 127.0.0.1:3000 (PORT=... for another port)
	@mkdir -p "$(DAGSTER_HOME)"
	@test -e "$(DAGSTER_HOME)/dagster.yaml" || cp dagster.yaml "$(DAGSTER_HOME)/dagster.yaml"
	@DAGSTER_HOME="$$(cd "$(DAGSTER_HOME)" && pwd)" exec $(BIN)/foldhouse dev --port $(PORT)

docs:  ## the site of the documentation, into site/ (installs mkdocs the first time)
	@$(PYTHON) scripts/setup.py $(KEEP) --docs
	@$(BIN)/python scripts/commands_page.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "site/index.html is built"

bench: setup  ## the figures of the documentation, measured here (QUICK=1 in ten minutes; ARGS=... for some of them)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)

lock: setup  ## resolve the lock files again (UPGRADE=1 takes newer releases)
	$(COMPILE) pyproject.toml --extra dagster --group dev --output-file requirements.lock
	$(COMPILE) --group build --constraint requirements.lock --output-file requirements-build.lock
	$(COMPILE) --group deploy --constraint requirements.lock --output-file requirements-deploy.lock
	$(COMPILE) --group servers --constraint requirements.lock --output-file requirements-servers.lock
	$(COMPILE) --group browser --constraint requirements.lock --output-file requirements-browser.lock
	$(COMPILE) --group ci --constraint requirements.lock --constraint requirements-servers.lock --output-file requirements-ci.lock
	$(COMPILE) --group docs --constraint requirements.lock --output-file requirements-docs.lock
	@$(PYTHON) scripts/setup.py $(KEEP)

servers: setup  ## fetch what the tests over Postgres, S3 and REST need: Python packages by hash, jars by Maven
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --only-binary=:all: -r requirements-servers.lock
	$(BIN)/python tests/catalog_servers.py

served: setup  ## the tests over servers, which CI leaves out (needs `make servers`; more than an hour)
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m served

clean:  ## remove .venv, caches and what Spark left; lake/, landing/ and .dagster/ stay
	rm -rf .venv .setup.lock .servers build dist site spark-warehouse metastore_db derby.log
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find assets benchmarks examples jobs resources scripts src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What CI installs further: packages that the tests of the page in a browser, of servers, of `dg` and of `deploy/` need, the jars
# of Iceberg's REST server where there is a Maven, and an archive of Java's classes.
define FURTHER
{ $(BIN)/python -m pip install --quiet --no-deps --require-hashes --only-binary=:all: -r requirements-ci.lock || \
	echo "== requirements-ci.lock cannot be installed; tests of a browser, of servers and of dg are skipped"; \
timeout 300 $(BIN)/python tests/catalog_servers.py || echo "== no jars of Iceberg's REST server; tests over it are skipped"; \
$(BIN)/foldhouse warm || echo "== no archive of Java classes; each start of Spark takes 4 s longer"; }
endef

PLAYWRIGHT = $(BIN)/python -m pip install --quiet --require-hashes --only-binary=:all: -r requirements-browser.lock

define CHECKS
for tool in "ruff check --quiet --output-format concise ." "ruff format --check --quiet --output-format concise ." "mypy" "lint-imports --no-logo"; do \
	echo "== $$tool"; $(BIN)/$$tool || { failed=1; echo "== $$tool: FAILED"; }; \
done;
endef

COMPILE = $(BIN)/uv pip compile --quiet --no-config --python $(BIN)/python --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

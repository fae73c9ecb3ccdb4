# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser
# Test processes: one more than two processors, for tests often wait for a server, a process or a page.
JOBS ?= 3

.PHONY: demo demo-comms test test-15 check bench docs sync clean

demo: $(READY)  ## Watch a few hundred jobs live their lives on a PostgreSQL that came with the install.
	$(BIN)/dibs demo

demo-comms: $(READY)  ## Watch 500 supervised e-mails go out, past failures, crashes and a restart.
	$(BIN)/python -m examples.comms.demo

test: $(BROWSER)  ## The whole suite, on the embedded PostgreSQL (or on DIBS_PG_BIN's).
	$(BIN)/python -m pytest -q -n $(JOBS)

test-15: $(BROWSER)  ## The same on Debian's PostgreSQL 15, without what cannot depend on it.
	DIBS_PG_BIN=$$($(BIN)/python -m tools.postgres15) $(BIN)/python -m pytest -q -n $(JOBS) -m "not once"

check: $(READY)  ## Everything a machine can see without running the suite.
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tools/words.py
	$(BIN)/python tools/unasync.py --check
	$(BIN)/python tools/sqlref.py --check
	$(BIN)/python tools/pyref.py --check
	$(BIN)/python tools/website.py --check
	$(BIN)/python tools/lint_sql.py
	DIBS_PG_BIN=$$($(BIN)/python -m tools.postgres15 --plpgsql-check) $(BIN)/python tools/plpgsql_check.py

bench: $(READY)  ## A table of all measurements.
	$(BIN)/python -m bench

docs: $(READY)  ## Write the references, and build the pages into site/.
	$(BIN)/python tools/sqlref.py
	$(BIN)/python tools/pyref.py
	$(BIN)/python tools/website.py

sync: $(READY)  ## Write the sync half of the library from the async half.
	$(BIN)/python tools/unasync.py

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dibs needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# What only the browser tests need: Debian's Chromium, and what drives it.
$(BROWSER): $(READY)
	$(BIN)/python -m tools.chromium
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,browser]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis site

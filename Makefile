# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser
# Test processes: one more than two processors, for tests often wait for a server, a process or a page.
JOBS ?= 3
# LOCKED=1 installs exactly what requirements-dev.lock names, by hash, as CI does. Without it pip takes what pyproject.toml
# allows: a mirror that rebuilds wheels, or a folder of them, has other hashes.
LOCKED ?=
LOCK := requirements-dev.lock
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What `make lock` tells uv besides; UPGRADE=--upgrade takes the newest release of everything.
UPGRADE ?=

.PHONY: demo demo-comms test test-15 check bench docs sync lock dist clean

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
	$(BIN)/python tools/lint_yaml.py
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

lock: $(READY)  ## Write requirements-dev.lock: what development needs, by version and hash, for Python 3.11 to 3.14.
	$(PIP) 'uv>=0.5'
	$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command 'make lock' \
		--extra dev --extra browser --extra release $(UPGRADE) --output-file $(LOCK) pyproject.toml

dist: $(READY)  ## Build the sdist and the wheel into dist/, look into them, and try the wheel in an environment of its own.
	test -n "$(LOCKED)" || $(PIP) --editable '.[release]'
	$(BIN)/python tools/dist.py

$(READY): pyproject.toml $(if $(LOCKED),$(LOCK))
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dibs needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(PIP) --require-hashes --requirement $(LOCK)
	$(PIP) --no-deps --no-build-isolation --editable .
else
	$(PIP) --upgrade pip
	$(PIP) --editable '.[dev]'
endif
	touch $@

# What only the browser tests need: Debian's Chromium, and what drives it.
$(BROWSER): $(READY)
	$(BIN)/python -m tools.chromium
	test -n "$(LOCKED)" || $(PIP) --editable '.[dev,browser]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis site dist

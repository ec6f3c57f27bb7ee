# Every target sets up what it needs in .venv; a second call installs nothing.
#   make book                       build the pages
#   make test                       everything but real-model weights
#   make execute [CHAPTERS=...]     run chapters again and rewrite their stored outputs
PYTHON ?= python3
PORT ?= 8000
CHAPTERS ?=
# Seconds that one cell may take; `make execute` wants every cell under a third of it.
CELL_TIMEOUT ?= 300

# These run a real language model.
MODEL_CHAPTERS := book/unseen/09_the_unused_tokens_of_gemma.ipynb book/analogy/07_functors_in_gemma.ipynb

BIN := .venv/bin
NBVAL := --nbval --nbval-sanitize-with tests/nbval_sanitize.cfg --nbval-cell-timeout $(CELL_TIMEOUT)
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
BOOK_SOURCES := _config.yml _toc.yml $(shell find book lib -type f -not -path '*/_build/*' \
	-not -path '*/__pycache__/*' -not -path '*/.*')

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help book test test-models execute serve lab results bench

help:
	@echo "make book | test | test-models | execute | serve | lab | results | bench"

# ---- set-up: one stamp for each extra ----

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "No '$(PYTHON)' found: install Python 3.11-3.13 or say make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "'$(PYTHON)' is not Python 3.11-3.13: say make PYTHON=python3.11, for example."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "'$(PYTHON)' has no venv module: install it (python3-venv on Debian and Ubuntu)."; exit 1; }
	@$(PYTHON) -m venv .venv

# `test` and `lab` contain `book`, so their installation serves for it too.
.venv/.with-%: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the package with '$*' into .venv (minutes the first time) ..."
	@$(PIP) -e '.[$*]'
	@touch $@ $(if $(filter test lab,$*),.venv/.with-book)

# ---- pages ----

# From scratch each time something changed: Sphinx's own cache does not see changes in lib.
book/_build/.done: $(BOOK_SOURCES) constraints.txt | .venv/.with-book
	@rm -rf book/_build
	$(BIN)/jupyter-book build book -n -W --keep-going -q
	@touch $@

book: book/_build/.done
	@echo "Open $(CURDIR)/book/_build/html/index.html"

serve: book
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory book/_build/html $(PORT)

# ---- checks ----

test: .venv/.with-test book/_build/.done
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy lib
	$(BIN)/python -m pytest -q $(NBVAL) $(MODEL_CHAPTERS:%=--ignore=%) tests/unit tests/claims \
		tests/book book

test-models: .venv/.with-test .venv/.with-models
	$(BIN)/python -m pytest -q $$(grep -lE "needs the extra|importorskip" tests/unit/test_*.py)
	$(BIN)/python -m pytest -q -m weights tests/models
	$(BIN)/python -m pytest -q $(NBVAL) $(MODEL_CHAPTERS)

# ---- work ----

execute: .venv/.with-book .venv/.with-models
	$(BIN)/python tools/execute.py --timeout $(CELL_TIMEOUT) $(CHAPTERS)

results: .venv/.with-book .venv/.with-models
	$(BIN)/python -m lib sweep --all

bench: .venv/.with-book
	$(BIN)/python -m lib bench logic
	$(BIN)/python -m lib bench analogy

lab: .venv/.with-lab
	$(BIN)/jupyter lab book

# Two commands matter: `make demo` shows the whole loop, `make test` proves it.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test lint types docs bench live lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

install: $(STAMP) ## set up .venv from the lock file

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(STAMP) ## emulated server -> observe -> fit -> held-out replay -> report.html
	$(BIN)/vtwin demo

test: $(STAMP) ## everything that needs no GPU and no hour
	$(BIN)/python -m pytest

lint: $(STAMP) ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

lock: ## renew requirements.lock from pyproject.toml (names no index, no host)
	$(BIN)/pip-compile --quiet --extra dev --strip-extras --allow-unsafe --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml

clean: ## remove what the build leaves
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

# Every target that needs Python makes .venv first; nothing else has to be set up by hand.
PYTHON ?= python3
BIN := .venv/bin
DEMO := build/demo
# Test processes.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow check format clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: .venv/installed  ## make .venv and install bertpt with what its tests need

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,check]'
	@touch $@

demo: install  ## from Python's own documentation to an evaluated BERT, in three minutes
	BIN=$(BIN) OUT=$(DEMO) sh data/demo.sh

test: install  ## run the tests (under three minutes on 2 cores)
	$(BIN)/pytest -n $(JOBS) --dist loadfile

test-slow: install  ## run the tests that take minutes
	$(BIN)/pytest -m slow --timeout 3600

check: install  ## ruff, mypy, import-linter
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install  ## let ruff format and fix the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:  ## remove what the other targets made
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

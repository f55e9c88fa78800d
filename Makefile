# Every target explains itself: `make` prints this list.
SHELL := /bin/bash
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## print the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

$(VENV)/.installed: pyproject.toml deploy/requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r deploy/requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c 'import proton; assert proton.SSL.present(), "python-qpid-proton was built without TLS: install libssl-dev and pkg-config, then: rm -rf .venv && $(BIN)/pip cache remove python-qpid-proton"'
	touch $@

.PHONY: setup
setup: $(VENV)/.installed ## install everything that development needs into .venv

.PHONY: check
check: setup ## format, lint, types, import contracts, and the tests that need no broker (fast)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit

.PHONY: requirements
requirements: ## pin the dependencies again (needs uv)
	uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 -o deploy/requirements/runtime.txt pyproject.toml
	uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 -c deploy/requirements/runtime.txt -o deploy/requirements/dev.txt pyproject.toml deploy/requirements/dev.in

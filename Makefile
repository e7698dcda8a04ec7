# Two commands on a fresh machine: `make demo` and `make test`. Both do all set-up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint docs setup clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   set up, let four simulated hospitals learn in turn, write a report"
	@echo "make test   set up, check style, types and layers, run the tests"
	@echo "make docs   set up, build the documentation into docs/_build"

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,imaging,cluster,signing,docs]'
	@touch $@

setup: $(VENV)/.dev

demo: $(VENV)/.core
	$(BIN)/fcforge run experiments/demo.toml --out runs/demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n auto

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) runs docs/_build

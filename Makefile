# Two commands on a fresh machine: `make demo` and `make test`. Both do all set-up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test tables rounding lint docs wheel setup clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   set up, let four simulated hospitals learn in turn, write a report"
	@echo "make test   set up, check style, types and layers, run the tests, also as other CPUs round"
	@echo "make tables make every published table and figure again from results/"
	@echo "make docs   set up, build the documentation into docs/_build"
	@echo "make wheel  build the wheel and run the demo from it, without the repository"

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[train,dev,imaging,cluster,docs]'
	@touch $@

setup: $(VENV)/.dev

demo: $(VENV)/.core
	$(BIN)/fcforge demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n auto
	$(MAKE) --no-print-directory rounding

# Every published table and figure, from the scores in results/.
tables: $(VENV)/.core
	$(BIN)/python benchmarks/make_tables.py

# Other CPUs round differently, and no test may hang on it: the contracts that a rounded sum could
# decide, once without vector units and once with MKL's common order of sums.
ROUNDING := $(BIN)/pytest -m rounding $(addprefix tests/,capsule engine generators methods models replay)
rounding: $(VENV)/.dev
	ATEN_CPU_CAPABILITY=default $(ROUNDING) & MKL_CBWR=COMPATIBLE $(ROUNDING) && wait $$!

# The built wheel runs the demo in an environment and a folder of its own.
wheel: $(VENV)/.core
	rm -rf build/user dist && $(PYTHON) -m venv build/user
	$(BIN)/python -m pip wheel -q --no-deps -w dist .
	build/user/bin/python -m pip install -q -c constraints.txt "$$(ls dist/*.whl)[train]"
	cd build/user && bin/fcforge --version && bin/fcforge demo

docs: $(VENV)/.dev
	rm -rf docs/api  # stubs of names that are gone would be warnings
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) runs docs/_build

# Two commands on a fresh machine: `make demo` and `make test`. Both do all set-up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test tables bench rounding lint docs wheel setup clean sbom lock reproducible
.DEFAULT_GOAL := help

help:
	@echo "make demo   set up, run FORGE and its baselines on four simulated hospitals, write a report"
	@echo "make test   set up, check style, types and layers, run the tests, also as other CPUs round"
	@echo "make tables make every published table and figure again from paper/results/"
	@echo "make bench  measure the speed of FORGE, FCM-VAE, EWC and ER beside PyG, plain PyTorch and Avalanche"
	@echo "make docs   set up, build the documentation into docs/_build"
	@echo "make wheel  build the wheel and run the demo from it, without the repository"
	@echo "make sbom   write build/fcforge.cdx.json, what fcforge is made of (CycloneDX)"

# Files are compared with the hashes of the lock before anything of them runs. torch alone is not
# in it: its CPU build comes from an index of its own.
VERIFIED := -m pip install -q --require-hashes --no-deps -r

# The build backend runs at install: it is installed from its lock, not fetched by pip.
BUILT    := --no-build-isolation -c constraints.txt

$(VENV)/.core: pyproject.toml constraints.txt supply/build.lock supply/core.lock supply/train.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(VERIFIED) supply/build.lock
	$(BIN)/python $(VERIFIED) supply/core.lock
	$(BIN)/python $(VERIFIED) supply/train.lock
	$(BIN)/python -m pip install -q $(BUILT) -e '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core supply/dev.lock
	$(BIN)/python $(VERIFIED) supply/dev.lock
	$(BIN)/python -m pip install -q $(BUILT) -e '.[train,dev,imaging,cluster,docs]'
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
	$(BIN)/pytest -n auto --dist worksteal  # neighbours share what they set up
	$(MAKE) --no-print-directory rounding

# Every published table and figure, from the scores in paper/results/, and the tables of the registries.
tables: $(VENV)/.core
	$(BIN)/python paper/benchmarks/make_tables.py
	$(BIN)/python docs/tables.py

# Ratios to other programs, measured in one run. Avalanche brings some forty packages along and gets
# an environment of its own; where it cannot be installed, its rows are left out and the part says so.
PEER := build/avalanche
$(PEER)/.installed:
	rm -rf $(PEER) && $(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install -q "torch==$$($(BIN)/python -c 'import torch; print(torch.__version__.split("+")[0])')" \
	    torchvision avalanche-lib==0.6.0 && touch $@ || echo "Avalanche could not be installed: its rows are left out."

bench: $(VENV)/.dev
	@$(MAKE) --no-print-directory $(PEER)/.installed
	$(BIN)/python paper/benchmarks/bench.py $$(test -e $(PEER)/.installed && echo --avalanche $(PEER)/bin/python)

# Other CPUs round differently, and no test may hang on it: the contracts that a rounded sum could
# decide, once without vector units and once with MKL's common order of sums.
ROUNDING := $(BIN)/pytest -m rounding $(addprefix tests/,consortium training generators methods models replay)
rounding: $(VENV)/.dev
	ATEN_CPU_CAPABILITY=default $(ROUNDING) & MKL_CBWR=COMPATIBLE $(ROUNDING) && wait $$!

# The built wheel runs the demo in an environment and a folder of its own.
wheel: $(VENV)/.core
	rm -rf build/user dist && $(PYTHON) -m venv build/user
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist .
	build/user/bin/python $(VERIFIED) supply/core.lock
	build/user/bin/python $(VERIFIED) supply/train.lock
	build/user/bin/python -m pip install -q -c constraints.txt "$$(ls dist/*.whl)[train]"
	cd build/user && bin/fcforge --version && bin/fcforge demo

# What fcforge is made of, for whoever has to know.
sbom: $(VENV)/.core
	$(BIN)/python supply/sbom.py build/fcforge.cdx.json

# After a change of constraints.txt.
lock: $(VENV)/.dev
	$(BIN)/python supply/lock.py

# The same source gives the same wheel, byte by byte, wherever and whenever it is built.
reproducible: $(VENV)/.core
	rm -rf build/wheel && mkdir -p build/wheel/copy
	cp -r src pyproject.toml README.md LICENSE build/wheel/copy
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w build/wheel/one .
	cd build/wheel/copy && $(abspath $(BIN))/python -m pip wheel -q --no-deps --no-build-isolation -w ../two .
	cmp build/wheel/one/*.whl build/wheel/two/*.whl && sha256sum build/wheel/one/*.whl

docs: $(VENV)/.dev
	rm -rf docs/api  # stubs of names that are gone would be warnings
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) runs docs/_build

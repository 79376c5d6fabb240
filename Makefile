# make demo    from nothing to a report: install, make a language, train two models, compare them with the best possible score
# make test    install and run the tests
# make check   format, lint, types, tests: what CI runs
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(wildcard src/structattn/operators/*/*.cpp src/structattn/operators/*/*.h)
# Two workers of one thread each: with more, those of one wait for those of the other, and small trainings take four times as long.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: install demo test lint check bench clean

install: $(VENV)/installed
demo: $(VENV)/installed
	$(BIN)/structattn demo

# The second run holds the shapes in the signatures of layers and models to what passes through them; tracing cannot be watched
# that way, so compilation stays out of it.
test: $(VENV)/installed
	$(PYTEST)
	$(PYTEST) tests/contracts -k 'not compilation' -q --jaxtyping-packages=structattn.attention,structattn.models,beartype.beartype

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

bench: $(VENV)/installed
	$(BIN)/python benchmarks/operators.py

# torch first, and exactly: other packages would otherwise bring its newest build, with several GB of GPU libraries.
$(VENV)/torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch numpy
	touch $@

$(VENV)/installed: $(VENV)/torch $(SOURCES)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build

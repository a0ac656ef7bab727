# SPDX-License-Identifier: MIT
# `make demo` and `make test` do all the set-up they need; every step is skipped when nothing it reads has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
JOBS ?= $(shell nproc)

PY_SOURCES := $(shell find python -name '*.py' -o -name '*.pyi')
CPP_SOURCES := $(shell find cpp \( -name '*.cpp' -o -name '*.hpp' -o -name '*.c' -o -name '*.h' -o -name CMakeLists.txt \)) CMakeLists.txt
CPP_FORMATTED := $(shell find cpp \( -name '*.cpp' -o -name '*.hpp' \))

.PHONY: help setup build test test-cpp test-python lint format clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 24

setup: build ## system packages, venv, build: everything but the kernel

$(STAMPS)/venv: pyproject.toml
	@mkdir -p $(STAMPS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q 'scikit-build-core>=0.11' 'pybind11>=3.0' 'cmake>=3.25' ninja
	@touch $@

# Editable, without build isolation, so that a second build compiles only what changed.
$(STAMPS)/build: $(STAMPS)/venv $(CPP_SOURCES)
	$(BIN)/pip install -q --no-build-isolation -e '.[dev]' -C cmake.define.SAMPLEBLK_WERROR=ON
	@touch $@

build: $(STAMPS)/build ## the package, editable, in .venv

# C++ tests under the address and undefined-behaviour sanitizers.
build/asan/build.ninja: $(STAMPS)/venv
	$(BIN)/cmake -S . -B build/asan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSAMPLEBLK_TESTS=ON \
		-DSAMPLEBLK_WERROR=ON -DSAMPLEBLK_SANITIZE=address,undefined

test-cpp: build/asan/build.ninja ## GoogleTest, under ASan and UBSan
	$(BIN)/cmake --build build/asan
	$(BIN)/ctest --test-dir build/asan --output-on-failure -j $(JOBS)

test-python: build ## pytest
	$(BIN)/pytest

test: test-cpp test-python ## the fast lane

lint: build ## ruff, mypy, clang-format
	$(BIN)/ruff check python tests
	$(BIN)/ruff format --check python tests
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP_FORMATTED)

format: build ## rewrite to the project's format
	$(BIN)/ruff format python tests
	$(BIN)/ruff check --fix python tests
	$(BIN)/clang-format -i $(CPP_FORMATTED)

clean: ## remove what was built here
	rm -rf build dist $(STAMPS) $(VENV)

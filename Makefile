# SPDX-License-Identifier: MIT
# `make demo` and `make test` do all the set-up they need; a step is skipped when nothing that it reads has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
JOBS ?= $(shell nproc)

# The kernels that the tests run on. The first is the default of everything else.
KERNELS ?= 6.1,6.12
# Those of everything, slow cases too.
FULL_KERNELS ?= 5.10,6.1,6.12,7.2
comma := ,
KERNEL_STAMPS := $(patsubst %,$(STAMPS)/kernel-%,$(subst $(comma), ,$(KERNELS)))
FULL_KERNEL_STAMPS := $(patsubst %,$(STAMPS)/kernel-%,$(subst $(comma), ,$(FULL_KERNELS)))

CPP_SOURCES := $(shell find cpp -name '*.cpp' -o -name '*.hpp' -o -name '*.c' -o -name '*.h' -o -name CMakeLists.txt) CMakeLists.txt
CPP_FORMATTED := $(shell find cpp -name '*.cpp' -o -name '*.hpp')
MODULE_SOURCES := $(shell find module -name '*.[ch]' -o -name Makefile -o -name Kbuild)

.PHONY: help setup packages packages-tests browser build kernels demo test test-cpp test-python test-full lint tidy fuzz format bench-driver bench-driver-counted bench-vm bench-workload bench-trace bench-profile bench-plugin docs notebooks test-module-tsan test-debug-kernel dkms-install dkms-remove clean
.DELETE_ON_ERROR:

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 24

# --- set-up

packages: ## the Debian packages that are missing
	@packaging/install-packages.sh

packages-tests: ## the same, with those that only tests and benchmarks need
	@packaging/install-packages.sh --tests

$(STAMPS)/venv: pyproject.toml | packages
	@mkdir -p $(STAMPS)
	@echo "setting up $(VENV)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q 'scikit-build-core>=0.11' 'pybind11>=3.0' 'cmake>=3.25' ninja
	@touch $@

# Editable, and without build isolation, so that a second build compiles only what changed.
$(STAMPS)/build: $(STAMPS)/venv $(CPP_SOURCES)
	@echo "building the C++ core and installing the package with its tools"
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/pip install -q --no-build-isolation -e '.[dev]' \
		--config-settings=cmake.define.SAMPLEBLK_WERROR=ON
	@touch $@

build: $(STAMPS)/build ## the package, editable, in .venv

# Fetches the kernel, builds the driver for it, and leaves a saved machine behind.
$(STAMPS)/kernel-%: $(STAMPS)/build $(MODULE_SOURCES)
	@$(BIN)/sampleblk-lab vm run --kernel $* -- modprobe sampleblk
	@touch $@

kernels: $(KERNEL_STAMPS) ## the kernels of KERNELS, with the driver, in the per-user cache

setup: build kernels ## all of the above

# --- what it is for

demo: $(firstword $(KERNEL_STAMPS)) ## the article's first experiment, from the job to the driver
	@$(BIN)/sampleblk-lab demo --kernel $(firstword $(subst $(comma), ,$(KERNELS)))

# --- tests

# C++ tests under the address and undefined-behaviour sanitizers.
build/asan/build.ninja: $(STAMPS)/venv | packages-tests
	@$(BIN)/cmake -S . -B build/asan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSAMPLEBLK_TESTS=ON \
		-DSAMPLEBLK_WERROR=ON -DSAMPLEBLK_SANITIZE=address,undefined >/dev/null

test-cpp: build/asan/build.ninja ## GoogleTest, under ASan and UBSan
	$(BIN)/cmake --build build/asan -j $(JOBS)
	$(BIN)/ctest --test-dir build/asan --output-on-failure -j $(JOBS)

test-python: packages-tests build kernels ## pytest: on this host, and in a VM on each of KERNELS
	$(BIN)/pytest --sblk-kernel $(KERNELS) -m "not full"

# The driver's data structures again, for races.
build/tsan/build.ninja: $(STAMPS)/venv | packages-tests
	$(BIN)/cmake -S . -B build/tsan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSAMPLEBLK_TESTS=ON \
		-DSAMPLEBLK_WERROR=ON -DSAMPLEBLK_SANITIZE=thread

test-module-tsan: build/tsan/build.ninja ## the driver's store, cache and journal under TSan
	$(BIN)/cmake --build build/tsan --target test_module
	$(BIN)/ctest --test-dir build/tsan --output-on-failure -R '^module\.'

test-debug-kernel: build ## the driver's cases on a kernel with KASAN, lockdep, kmemleak and fault injection
	tree=$$(module/debug/build) && $(BIN)/python module/debug/run $$tree $(abspath $(BIN))/python -m pytest \
		-p no:cacheprovider -p no:xdist -p no:sampleblk -c /dev/null --rootdir=$(CURDIR) -v -s \
		$(abspath tests/vm)/test_device_*.py

# What drives JupyterLab in a browser, which only the slow cases need.
$(STAMPS)/browser: $(STAMPS)/build
	@$(BIN)/pip install -q 'jupyterlab>=4' 'ipywidgets>=8' 'playwright>=1.49'
	@touch $@

browser: packages-tests $(STAMPS)/browser ## JupyterLab and what drives it in the tests

test: lint test-cpp test-python ## the fast lane

test-full: lint tidy test-cpp fuzz test-module-tsan browser $(FULL_KERNEL_STAMPS) ## everything, on FULL_KERNELS
	$(BIN)/pytest --sblk-kernel $(FULL_KERNELS)
	SAMPLEBLK_MODEL_OPERATIONS=2000000 $(BIN)/ctest --test-dir build/asan --output-on-failure -R '^module\.'

FUZZ_SECONDS ?= 60
build/fuzz/build.ninja: $(STAMPS)/venv
	@PACKAGE_LIST=packaging/debian-fuzz.txt packaging/install-packages.sh
	@$(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSAMPLEBLK_FUZZ=ON \
		-DSAMPLEBLK_SANITIZE=address,undefined,fuzzer-no-link -DCMAKE_C_COMPILER=clang-19 \
		-DCMAKE_CXX_COMPILER=clang++-19 >/dev/null

fuzz: build/fuzz/build.ninja ## every parser under libFuzzer, FUZZ_SECONDS each
	$(BIN)/cmake --build build/fuzz -j $(JOBS)
	$(BIN)/python packaging/fuzz.py build/fuzz $(FUZZ_SECONDS)

lint: build ## ruff, mypy, clang-format
	$(BIN)/ruff check python tests packaging
	$(BIN)/ruff format --check python tests packaging
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FORMATTED)

tidy: build/asan/build.ninja ## clang-tidy
	$(BIN)/python packaging/tidy.py build/asan $(JOBS)

format: build ## rewrite to the project's format
	$(BIN)/ruff format python tests packaging
	$(BIN)/ruff check --fix python tests packaging
	$(BIN)/clang-format -i $(CPP_FORMATTED)

# --- the driver on this machine

dkms-install dkms-remove: ## the driver for the running kernel, rebuilt for each one to come; and away again
	@$(MAKE) -C module $@

# --- benchmarks: each ends with `ratio NAME VALUE`, how many times better than the peer

# Twice each: as our VMs are, and on QEMU's whole CPU, whose `rep movsb` changes what memcpy() costs (ratios erms_…).
BENCH_CPUS = "" max

bench-driver: packages-tests $(firstword $(KERNEL_STAMPS)) ## the driver in the guest, against brd and null_blk
	@for cpu in $(BENCH_CPUS); do \
		SAMPLEBLK_CPU=$$cpu $(BIN)/sampleblk-lab vm run --memory 1536M --timeout 1800 -- $(abspath $(BIN))/python \
			$(abspath tests/bench/bench_driver.py) || exit 1; \
	done

bench-driver-counted: packages-tests $(firstword $(KERNEL_STAMPS)) ## the same by counted instructions, which no load disturbs
	@for cpu in $(BENCH_CPUS); do \
		SAMPLEBLK_CPU=$$cpu SAMPLEBLK_QEMU=$(abspath tests/bench/qemu-counted) ROUNDS=1 $(BIN)/sampleblk-lab vm run \
			--accel tcg --cpus 1 --timeout 3600 -- $(abspath $(BIN))/python $(abspath tests/bench/bench_driver.py) || exit 1; \
	done

bench-vm: packages-tests $(firstword $(KERNEL_STAMPS)) ## starting a VM, against virtme-ng
	@$(BIN)/pip install -q virtme-ng==1.42
	@$(BIN)/python tests/bench/bench_vm.py

bench-workload: packages-tests build ## the workload's engines, against fio
	@$(BIN)/python tests/bench/bench_workload.py

bench-trace: packages-tests $(firstword $(KERNEL_STAMPS)) ## decoding trace.dat, against trace-cmd report; recording in the guest, against strace
	@$(BIN)/python tests/bench/bench_trace.py
	@$(BIN)/sampleblk-lab vm run --timeout 600 -- $(abspath $(BIN))/python $(abspath tests/bench/bench_trace_overhead.py)

bench-profile: packages-tests build ## perf.data to folded stacks to SVG, against stackcollapse-perf.pl and flamegraph.pl (in $$FLAMEGRAPH_DIR)
	@$(BIN)/python tests/bench/bench_profile.py

bench-plugin: packages-tests build ## what the plugin adds to a session that has nothing of ours
	@$(BIN)/python tests/bench/bench_plugin.py

docs: build ## the documentation, in build/docs; a warning is an error
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

notebooks: kernels ## run the notebooks and store them with their outputs
	@$(BIN)/python packaging/store_notebooks.py

clean: ## remove what was built here; the per-user cache stays
	rm -rf build dist $(STAMPS) $(VENV)

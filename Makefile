# SPDX-License-Identifier: Apache-2.0
# What a newcomer types. Everything below is CMake; see CMakePresets.json.

PACKAGES := ccache ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev libbenchmark-dev
JOBS     ?= $(shell nproc)
SECONDS  ?= 600
# Units that use a precompiled header are cached only by a ccache that is told so.
export CCACHE_SLOPPINESS := pch_defines,time_macros

.PHONY: help demo build test test-release test-sanitizers test-libtorch-sanitizers bench bench-libtorch install fuzz clean packages configured
help:
	@echo "make demo                 train ResNet-50 and a GPT at half their memory beside plain LibTorch"
	@echo "make build                the tool, at build/bin/remat"
	@echo "make test                 build and run every test; those of the core with sanitizers too"
	@echo "make test-libtorch-sanitizers   some tests of the LibTorch part with sanitizers, those of threads with TSan"
	@echo "make bench                the benchmarks (ratios and counts; see bench/README.md)"
	@echo "make bench-libtorch       those that train: half an hour or more, on a machine with nothing else to do"
	@echo "make install PREFIX=dir   the library for find_package(remat), and the tool, into that folder"
	@echo "make fuzz [SECONDS=600]   fuzz both parsers with clang's libFuzzer, each for that long"
	@echo "make clean                remove what was built"

# Installs what is missing and is quick when nothing is.
packages: .venv/installed
	@tools/install_packages.sh $(PACKAGES)

.venv/installed: requirements.txt
	@python3 -m venv .venv 2>/dev/null || { tools/install_packages.sh python3-venv && python3 -m venv .venv; }
	@.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

configured: packages
	@cmake --preset release >/dev/null

build: configured
	@cmake --build build -j $(JOBS) --target remat_cli

demo: build
	@build/bin/remat plan bench/graphs/resnet50.graph --budget 75%,50%,35% --strategy every_k,mutwo,auto
	@echo
	@build/bin/remat run resnet50 --image 192 --budget 50% --compare checkpoint
	@echo
	@build/bin/remat run gpt2_small --batch 2 --seq 512 --width 384 --budget 50% --compare checkpoint

# Two lines of work at once, so that no core waits for the last unit or the longest test of the other.
test: packages
	@$(MAKE) --no-print-directory -j 2 --output-sync=line test-release test-sanitizers

test-release: configured
	@cmake --build build -j $(JOBS)
	@ctest --test-dir build -j $(JOBS) --output-on-failure

# The random graphs of the property tests run in full in the optimised build; under the sanitizers,
# ten times slower, a fraction of them.
test-sanitizers: packages
	@cmake --preset dev >/dev/null
	@cmake --build build-dev -j $(JOBS)
	@REMAT_PROPERTY_PERCENT=10 ctest --test-dir build-dev -j $(JOBS) --output-on-failure

test-libtorch-sanitizers: packages
	@cmake --preset dev-torch >/dev/null
	@cmake --build build-dev-torch -j $(JOBS) --target remat_sanitized_tests
	@ctest --test-dir build-dev-torch -j $(JOBS) -L sanitized --output-on-failure
	@cmake --preset tsan >/dev/null
	@cmake --build build-tsan -j $(JOBS) --target checkpoint_threads_test
	@ctest --test-dir build-tsan -L threads --output-on-failure

bench: configured
	@cmake --build build -j $(JOBS) --target core_bench plan_bench place_bench
	@build/bin/core_bench --benchmark_counters_tabular=true
	@build/bin/plan_bench
	@build/bin/place_bench

bench-libtorch: configured
	@cmake --build build -j $(JOBS) --target run_bench eager_bench
	@build/bin/run_bench
	@build/bin/run_bench overhead
	@.venv/bin/python bench/eager_bench.py build/bin/eager_bench

install: configured
	@test -n "$(PREFIX)" || { echo "say where to: make install PREFIX=dir" >&2; exit 2; }
	@cmake --build build -j $(JOBS) --target remat_cli remat_core remat_libtorch
	@cmake --install build --prefix $(abspath $(PREFIX)) >/dev/null
	@echo "installed; give CMake -DCMAKE_PREFIX_PATH=$(abspath $(PREFIX))"

fuzz: packages
	@tools/install_packages.sh clang libclang-rt-14-dev
	@cmake --preset fuzz >/dev/null
	@cmake --build build-fuzz -j $(JOBS)
	@tools/fuzz.sh build-fuzz $(SECONDS)

clean:
	rm -rf build build-dev build-dev-torch build-core build-fuzz build-tsan

# SPDX-License-Identifier: Apache-2.0
# What a newcomer types. Everything below is CMake; see CMakePresets.json.

PACKAGES := ccache ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev libbenchmark-dev
JOBS     ?= $(shell nproc)
SECONDS  ?= 600

.PHONY: help demo build test bench fuzz clean packages
help:
	@echo "make demo                 plan ResNet-50 at three budgets and print the table"
	@echo "make build                the tool, at build/bin/remat"
	@echo "make test                 build and run every test; those of the core with sanitizers too"
	@echo "make bench                the benchmarks (ratios and counts; see bench/README.md)"
	@echo "make fuzz [SECONDS=600]   fuzz both parsers with clang's libFuzzer, each for that long"
	@echo "make clean                remove what was built"

# Installs what is missing and is quick when nothing is.
packages: .venv/installed
	@tools/install_packages.sh $(PACKAGES)

.venv/installed: requirements.txt
	@python3 -m venv .venv 2>/dev/null || { tools/install_packages.sh python3-venv && python3 -m venv .venv; }
	@.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

build: packages
	@cmake --preset release >/dev/null
	@cmake --build build -j $(JOBS)

demo: build
	@build/bin/remat plan bench/graphs/resnet50.graph --budget 75%,50%,35% --strategy all

# The random graphs of the property tests run in full in the optimised build; under the sanitizers,
# ten times slower, a fraction of them.
test: build
	@cmake --preset dev >/dev/null
	@cmake --build build-dev -j $(JOBS)
	@ctest --test-dir build -j $(JOBS) --output-on-failure
	@REMAT_PROPERTY_GRAPHS=500 ctest --test-dir build-dev -j $(JOBS) --output-on-failure

bench: build
	@build/bin/core_bench --benchmark_counters_tabular=true
	@build/bin/plan_bench
	@build/bin/place_bench

fuzz: packages
	@tools/install_packages.sh clang libclang-rt-14-dev
	@cmake --preset fuzz >/dev/null
	@cmake --build build-fuzz -j $(JOBS)
	@tools/fuzz.sh build-fuzz $(SECONDS)

clean:
	rm -rf build build-dev build-dev-torch build-core build-fuzz build-tsan

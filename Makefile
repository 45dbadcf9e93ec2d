# SPDX-License-Identifier: Apache-2.0
# What a newcomer types. Everything below is CMake; see CMakePresets.json.

PACKAGES := ccache ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev libbenchmark-dev liburing-dev graphviz
BROWSER  := chromium chromium-driver
JOBS     ?= $(shell nproc)
SECONDS  ?= 600
# Units that use a precompiled header are cached only by a ccache that is told so.
export CCACHE_SLOPPINESS := pch_defines,time_macros

.PHONY: help demo build built browser docs python wheel test test-release test-sanitizers test-families bench bench-libtorch bench-peers install fuzz clean packages configured
help:
	@echo "make demo                 train ResNet-50 and a GPT at half their memory beside plain LibTorch"
	@echo "make build                the tool, at build/bin/remat"
	@echo "make docs                 the pictures in docs/pictures, from pages in a browser"
	@echo "make python               the Python package, built into a wheel and installed into .venv"
	@echo "make test                 build and run every test; the core's, and some of LibTorch's, with sanitizers too"
	@echo "make test-release         those of the optimised build alone"
	@echo "make test-sanitizers      those with sanitizers alone"
	@echo "make test-families        train 120-odd model families of transformers inside budgets (an hour)"
	@echo "make bench                the benchmarks (ratios and counts; see bench/README.md)"
	@echo "make bench-libtorch       those that train: half an hour or more, on a machine with nothing else to do"
	@echo "make bench-peers          beside torch.utils.checkpoint and torch.compile (an hour, on an idle machine)"
	@echo "make install PREFIX=dir   the library for find_package(remat), and the tool, into that folder"
	@echo "make fuzz [SECONDS=600]   fuzz the parsers with clang's libFuzzer, each for that long"
	@echo "make clean                remove what was built"

# Installs what is missing and is quick when nothing is.
packages: .venv/installed
	@tools/install_packages.sh $(PACKAGES)
	@command -v npm >/dev/null || tools/install_packages.sh npm  # which Node's own packages bring along

.venv/installed: requirements.txt
	@python3 -m venv .venv 2>/dev/null || { tools/install_packages.sh python3-venv && python3 -m venv .venv; }
	@.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	@.venv/bin/python -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || \
	  tools/install_packages.sh python3-dev
	@touch $@

.venv/installed-test: requirements-test.txt .venv/installed
	@.venv/bin/pip install --quiet --disable-pip-version-check -r requirements-test.txt
	@touch $@

configured: packages
	@cmake --preset release >/dev/null

build: configured
	@cmake --build build -j $(JOBS) --target remat_cli

# Pillow is for this alone.
docs: build browser .venv/installed-test
	@.venv/bin/pip install --quiet --disable-pip-version-check pillow==13.0.0
	@cmake --build build -j $(JOBS) --target make_pages
	@.venv/bin/python tools/make_pictures.py build/bin/remat build/bin/make_pages docs/pictures

# What `pip install .` does, in the folder that `build` compiles in and with its options, so that nothing
# is compiled twice.
wheel: configured
	@cmake --build build -j $(JOBS) --target remat_python remat_command
	@rm -rf build/wheel
	@.venv/bin/pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir build/wheel \
	  $(addprefix --config-settings=,build-dir=build $(addprefix cmake.define.REMAT_,TESTS=ON BENCH=ON INSTALL=ON)) .

python: wheel
	@.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/wheel/*.whl
	@echo "installed: .venv/bin/python -c 'import remat', .venv/bin/remat"

demo: build
	@build/bin/remat plan bench/graphs/resnet50.graph --budget 75%,50%,35% --strategy every_k,mutwo,auto
	@echo
	@build/bin/remat run resnet50 --image 192 --budget 50% --compare checkpoint
	@echo
	@build/bin/remat run gpt2_small --batch 2 --seq 512 --width 384 --budget 50% --compare checkpoint

# Two lines of work at once, so that no core waits for the last unit or the longest test of the other; what only tests
# need is installed beside them.
test: packages
	@$(MAKE) --no-print-directory -j 3 --output-sync=line test-release test-sanitizers

test-release: built browser .venv/installed-test
	@ctest --test-dir build -j $(JOBS) --output-on-failure

built: configured
	@cmake --build build -j $(JOBS)
	@$(MAKE) --no-print-directory wheel

browser: packages
	@tools/install_packages.sh $(BROWSER)

# The random graphs of the property tests run in full in the optimised build; under the sanitizers,
# ten times slower, a fraction of them. ThreadSanitizer sees the tests of threads.
test-sanitizers: packages
	@cmake --preset dev >/dev/null
	@cmake --build build-dev -j $(JOBS)
	@REMAT_PROPERTY_PERCENT=10 ctest --test-dir build-dev -j $(JOBS) --output-on-failure
	@cmake --preset tsan >/dev/null
	@cmake --build build-tsan -j $(JOBS) --target checkpoint_threads_test packing_kernels_test channel_test
	@ctest --test-dir build-tsan -R libtorch/ --output-on-failure

test-families: python .venv/installed-test
	@OMP_WAIT_POLICY=PASSIVE .venv/bin/python python/tests/all_families.py

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

bench-peers: python .venv/installed-test
	@tools/install_packages.sh libtcmalloc-minimal4
	@.venv/bin/pip install --quiet --disable-pip-version-check -r bench/peers/requirements.txt
	@.venv/bin/python bench/python_step.py
	@.venv/bin/python bench/peers/peers.py build/peers.jsonl
	@.venv/bin/python bench/peers/table.py build/peers.jsonl bench/peers/README.md bench/peers/chart.svg

install: configured
	@test -n "$(PREFIX)" || { echo "say where to: make install PREFIX=dir" >&2; exit 2; }
	@cmake --build build -j $(JOBS) --target remat_cli remat_core remat_libtorch remat_report
	@cmake --install build --prefix $(abspath $(PREFIX)) >/dev/null
	@echo "installed; give CMake -DCMAKE_PREFIX_PATH=$(abspath $(PREFIX))"

fuzz: packages
	@tools/install_packages.sh clang libclang-rt-14-dev
	@cmake --preset fuzz >/dev/null
	@cmake --build build-fuzz -j $(JOBS)
	@tools/fuzz.sh build-fuzz $(SECONDS)

clean:
	rm -rf build build-dev build-core build-fuzz build-tsan

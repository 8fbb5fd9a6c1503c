#!/bin/sh
# Compiles the CUDA backend's sources as far as errors can be found without a GPU: scripts/check_cuda.sh BUILD. Kernels
# become PTX for Hopper, host code is parsed. Takes nvcc from the PATH, or NVIDIA's packages of PyPI (100 MB, kept in
# BUILD). tests/backend/cuda/run_time_kernels.cu stands for the kernels that are compiled at run time.
set -eu
cd "$(dirname "$0")/.."
build=$1

if [ $# -eq 3 ]; then  # one file
  include=$2
  case $3 in
    *.cu) compile="nvcc -arch=compute_90a --extended-lambda --expt-relaxed-constexpr -ptx -o /dev/null" ;;
    *) compile="g++ -fsyntax-only" ;;
  esac
  $compile -std=c++20 -Isrc -Iinclude -isystem "$include" "$3" || { echo "check-cuda: $3 does not compile" >&2; exit 1; }
  exit 0
fi

if command -v nvcc >/dev/null; then
  include=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")/include
else
  toolkit=$build/toolkit/nvidia/cu13
  if [ ! -e "$toolkit/include/cuda_runtime.h" ]; then
    echo "check-cuda: fetching NVIDIA's compiler from PyPI"
    python3 -m venv "$build/venv"
    "$build/venv/bin/pip" install -q --no-deps --only-binary=:all: --target "$build/toolkit" \
      nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 \
      nvidia-cuda-cccl==13.0.85
    chmod +x "$toolkit"/bin/* "$toolkit/nvvm/bin/cicc"
  fi
  include=$(pwd)/$toolkit/include
  PATH=$(pwd)/$toolkit/bin:$PATH
fi

# Left out: nvrtc.cc, which needs a header that CMake writes, and where its header is missing, what needs cuBLASLt.
files=$(find src/backend/cuda tests/backend/cuda/run_time_kernels.cu -name '*.cu' -o -path 'src/*' -name '*.cc' ! -name nvrtc.cc)
[ -e "$include/cublasLt.h" ] || files=$(echo "$files" | xargs grep -L "<cublasLt.h>")
echo "$files" | xargs -P "$(nproc)" -n 1 "$0" "$build" "$include"
echo "check-cuda: $(echo "$files" | wc -l) files compile"

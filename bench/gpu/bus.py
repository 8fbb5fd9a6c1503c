#!/usr/bin/env python3
"""Prints the limits of loading weights: the rate of copies from pinned memory to the GPU, and of copies from a file's
pages to memory.

  bench/gpu/bus.py FILE        a file of some GB; read once before, so that it is in the page cache
"""
import concurrent.futures
import ctypes
import os
import sys
import time

import numpy as np

PIECE, SHARE, HOST_TO_DEVICE = 16 << 20, 1 << 20, 1


def bus(n_bytes=1 << 30, repeat=8):
    cuda = ctypes.CDLL("libcudart.so")
    host, device = ctypes.c_void_p(), ctypes.c_void_p()

    def check(status):
        if status:
            sys.exit(f"CUDA error {status}")

    check(cuda.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(n_bytes)))
    check(cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(n_bytes)))
    best = 0
    for _ in range(repeat):
        begin = time.perf_counter()
        check(cuda.cudaMemcpy(device, host, ctypes.c_size_t(n_bytes), HOST_TO_DEVICE))
        best = max(best, n_bytes / (time.perf_counter() - begin))
    return best


def pages(path, n_threads, most=6 << 30):
    data = np.memmap(path, dtype=np.uint8, mode="r")
    size = min(data.size, most)
    piece = np.empty(PIECE, np.uint8)

    def copy(begin, end, at):
        piece[at:at + end - begin] = data[begin:end]

    with concurrent.futures.ThreadPoolExecutor(n_threads) as pool:
        begin = time.perf_counter()
        for start in range(0, size, PIECE):
            end = min(start + PIECE, size)
            list(pool.map(lambda at: copy(start + at, min(start + at + SHARE, end), at), range(0, end - start, SHARE)))
        return size / (time.perf_counter() - begin)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(PIECE):
            pass
    print(f"pinned memory to the GPU: {bus() * 1e-9:.1f} GB/s")
    for n_threads in sorted({1, 4, min(16, os.cpu_count())}):
        print(f"a file's pages to memory, {n_threads} threads: {pages(sys.argv[1], n_threads) * 1e-9:.1f} GB/s")


if __name__ == "__main__":
    main()

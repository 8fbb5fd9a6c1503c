#!/usr/bin/env python3
"""Golden blocks for the formats that ggml lacks: bytes, and the values that `mlx` (not ingot) decodes from them.

    pip install 'mlx[cpu]' numpy && python tools/quant_goldens/make_mlx.py tests/data/quant

AFFINE4_64.decode.bin  u32 n_blocks, the blocks, f32 weights: random codes with scales and minima that are f16, bf16, zero
F8_E4M3.decode.bin     the same: every code, under random f32 scales; F8_E4M3_32 too
NVFP4_SCALED.decode.bin  the same: random codes, every E4M3 that is a scale, under random f32 scales
"""
import pathlib
import struct
import sys

import mlx.core as mx
import numpy as np

N_BLOCKS = 24


def write(out, name, blocks, weights):
    data = struct.pack("<I", len(blocks)) + b"".join(blocks) + weights.astype("<f4").tobytes()
    (out / f"{name}.decode.bin").write_bytes(data)


def random_scales(rng, n):
    """f16 and bf16 numbers of any size and sign, as f32, and zeros."""
    f16 = rng.standard_normal(n).astype(np.float16).astype(np.float32) * np.float32(2.0) ** rng.integers(-10, 3, n)
    bf16 = ((rng.standard_normal(n) * 2.0 ** rng.integers(-40, 20, n)).astype("<f4").view("<u4") & 0xFFFF0000).view("<f4")
    values = np.where(rng.integers(0, 2, n) == 0, f16.astype(np.float32), bf16)
    values[rng.integers(0, n, 2)] = 0
    return values


def affine(out, rng, bits, size):
    codes = rng.integers(0, 1 << bits, (N_BLOCKS, size), dtype=np.uint8)
    scales, mins = random_scales(rng, N_BLOCKS), random_scales(rng, N_BLOCKS)
    bit_rows = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little").reshape(N_BLOCKS, -1)
    packed = np.packbits(bit_rows, axis=-1, bitorder="little").view("<u4")
    weights = mx.dequantize(mx.array(packed), mx.array(scales[:, None]), mx.array(mins[:, None]), group_size=size, bits=bits)
    assert weights.dtype == mx.float32
    stored = codes if bits == 8 else codes[:, :size // 2] | codes[:, size // 2:] << 4
    blocks = [struct.pack("<ff", s, m) + c.tobytes() for s, m, c in zip(scales, mins, stored)]
    write(out, f"AFFINE{bits}_{size}", blocks, np.array(weights))


def float8(out, rng, name, size):
    codes = rng.permutation(np.tile(np.arange(256, dtype=np.uint8), 3)).reshape(-1, size)
    scales = rng.standard_normal(len(codes)).astype(np.float32)
    numbers = np.array(mx.from_fp8(mx.array(codes), dtype=mx.float32))
    write(out, name, [struct.pack("<f", s) + c.tobytes() for s, c in zip(scales, codes)], scales[:, None] * numbers)


def nvfp4_scaled(out, rng):
    codes = rng.integers(0, 16, (32, 64), dtype=np.uint8)
    exponents = np.append(rng.permutation(127), 0x38).astype(np.uint8).reshape(32, 4)
    scales = random_scales(rng, 32)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).view("<u4")
    one = mx.full(exponents.shape, 0x38, dtype=mx.uint8)  # 1
    numbers = np.array(mx.dequantize(mx.array(packed), one, group_size=16, bits=4, mode="nvfp4", dtype=mx.float32)).reshape(32, 4, 16)
    of_groups = np.array(mx.from_fp8(mx.array(exponents), dtype=mx.float32)) * scales[:, None]
    halves = codes.reshape(32, 4, 2, 8)
    stored = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(32, 32)
    blocks = [struct.pack("<f", s) + e.tobytes() + c.tobytes() for s, e, c in zip(scales, exponents, stored)]
    write(out, "NVFP4_SCALED", blocks, (numbers + 0) * of_groups[..., None])  # its -0 is 0 in ggml


def main():
    out = pathlib.Path(sys.argv[1])
    mx.set_default_device(mx.cpu)
    rng = np.random.default_rng(20240229)
    for bits in (4, 8):
        for size in (32, 64):
            affine(out, rng, bits, size)
    float8(out, rng, "F8_E4M3_32", 32)
    nvfp4_scaled(out, rng)
    float8(out, rng, "F8_E4M3", 128)


if __name__ == "__main__":
    main()

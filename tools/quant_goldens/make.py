#!/usr/bin/env python3
"""Golden blocks for tests/quant: bytes, and the values that the `gguf` package (NumPy, not ingot) decodes from them.

    pip install gguf numpy && python tools/quant_goldens/make.py tests/data/quant [libggml-base.so]

Q4_K.decode.bin     u32 n_blocks, the blocks, f32 weights: random bytes, with f16 scales that are ordinary, subnormal,
                    zero, negative, largest
Q4_K.nonfinite.bin  the same with infinite and NaN scales
Q4_0.encode.bin     u32 n_blocks, f32 inputs, the blocks: for the formats that ingot writes

The package lacks Q1_0 and Q2_0. ggml's own C library makes those, if it is given (llama-cpp-python has one); then the
library must also agree with the package about the other formats.
"""
import ctypes
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

# Format: byte offsets of its f16 scale fields.
F16_FIELDS = {
    "F16": [], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ1_S": [0], "IQ1_M": [48], "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [], "TQ1_0": [52],
    "TQ2_0": [64], "Q1_0": [0], "Q2_0": [0],
}
ENCODED = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
ONLY_GGML = {"Q1_0": (128, 18), "Q2_0": (64, 18)}
# Zeros, subnormals, smallest normal, largest.
SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x83FF, 0x7BFF, 0xFBFF]
NONFINITE = [0x7C00, 0xFC00, 0x7E00]


def sizes(name):
    return ONLY_GGML[name] if name in ONLY_GGML else gguf.GGML_QUANT_SIZES[Type[name]]


def generator(name):
    return np.random.default_rng([20240229, *name.encode()])


def put_f16(name, blocks, offset, bits):
    """IQ1_M has its f16 in the top nibbles of four u16; the other formats have it in one piece."""
    if name != "IQ1_M":
        blocks[:, offset:offset + 2] = bits.astype("<u2")[:, None].view(np.uint8)
        return
    for i in range(4):
        nibble = (bits >> (4 * i) & 15).astype(np.uint8)
        blocks[:, offset + 2 * i + 1] = blocks[:, offset + 2 * i + 1] & 15 | nibble << 4


def random_blocks(rng, name, n, halves):
    """n blocks of random bytes, the scale fields drawn from halves (None: any finite f16)."""
    blocks = rng.integers(0, 256, (n, sizes(name)[1]), dtype=np.uint8)
    for offset in F16_FIELDS[name]:
        bits = rng.integers(0, 0x7C00, n, dtype=np.uint16) | (rng.integers(0, 2, n, dtype=np.uint16) << 15)
        if halves is not None:
            bits = np.array(halves, dtype=np.uint16)[rng.integers(0, len(halves), n)]
        put_f16(name, blocks, offset, bits)
    return blocks


def dequantize_by_ggml(library, name, blocks):
    weights = np.empty((len(blocks), sizes(name)[0]), dtype=np.float32)
    function = getattr(library, f"dequantize_row_{name.lower().replace('_k', '_K')}")
    function(blocks.ctypes.data_as(ctypes.c_void_p), weights.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(weights.size))
    return weights


def write_decode(path, name, blocks, library):
    if name not in ONLY_GGML:
        with np.errstate(all="ignore"):
            weights = gguf.dequantize(blocks, Type[name]).astype("<f4")
        if library:
            np.testing.assert_array_equal(weights, dequantize_by_ggml(library, name, blocks), name)
    else:
        weights = dequantize_by_ggml(library, name, blocks)
    path.write_bytes(np.uint32(len(blocks)).astype("<u4").tobytes() + blocks.tobytes() + weights.astype("<f4").tobytes())


def encode_inputs(rng, block_size):
    """Rows of several sizes and signs, zeros, ties, constants and a single spike."""
    n = 48 if block_size > 1 else 512
    x = (rng.standard_normal((n, block_size)) * 10.0 ** rng.integers(-5, 4, (n, 1))).astype(np.float32)
    if block_size == 1:
        x[:8, 0] = [0.0, -0.0, 65504, 65519.996, -65520, 6e-8, 2.0 ** -25, 1 + 2.0 ** -11]
        return x
    x[0] = 0
    x[1] = np.linspace(-8, 7, block_size)
    x[2] = np.arange(block_size) - 15.5
    x[3] = 1.25
    x[4] = 0
    x[4, 7] = -3
    x[5] = np.where(np.arange(block_size) % 2 == 0, 2.0, -2.0)
    return x


def main(folder, library=None):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    library = library and ctypes.CDLL(library)
    for name, fields in F16_FIELDS.items():
        block_size, _ = sizes(name)
        if block_size == 1 or name in ONLY_GGML and not library:
            continue  # dense formats: tests/base/half_test.cc tries every pattern
        rng = generator(name)
        n = 40 if block_size == 32 else 9
        blocks = np.concatenate([random_blocks(rng, name, n, None), random_blocks(rng, name, n // 2, SPECIAL)])
        if name == "MXFP4":
            blocks[:6, 0] = [0, 1, 2, 127, 254, 255]
        if name == "NVFP4":
            blocks[:3, :4] = [[0x00, 0x01, 0x07, 0x08], [0x7E, 0x7F, 0x80, 0xFF], [0x10, 0x38, 0x88, 0xFE]]
        write_decode(folder / f"{name}.decode.bin", name, blocks, library)
        if fields:
            write_decode(folder / f"{name}.nonfinite.bin", name, random_blocks(rng, name, 3, NONFINITE), library)
    for name in ENCODED:
        x = encode_inputs(generator(name), sizes(name)[0])
        with np.errstate(all="ignore"):
            blocks = gguf.quantize(x, Type[name])
        path = folder / f"{name}.encode.bin"
        path.write_bytes(np.uint32(len(x)).astype("<u4").tobytes() + x.astype("<f4").tobytes() + blocks.tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Golden blocks for tests/quant: bytes and what the `gguf` package (NumPy, not ingot) makes of them.

    pip install gguf numpy && python tools/quant_goldens/make.py tests/data/quant

Q4_K.decode.bin     u32 n_blocks, the blocks, f32 weights: random bytes, with f16 scales that are ordinary, subnormal,
                    zero, negative, largest
Q4_K.nonfinite.bin  the same with infinite and NaN scales
Q4_0.encode.bin     u32 n_blocks, f32 inputs, the blocks: for the formats that ingot writes
"""
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

# Format: byte offsets of its f16 scale fields.
F16_FIELDS = {
    "F16": [], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
    "TQ2_0": [64],  # the example of docs/add-a-format.md
}
ENCODED = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
# Zeros, subnormals, smallest normal, largest.
SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x83FF, 0x7BFF, 0xFBFF]
NONFINITE = [0x7C00, 0xFC00, 0x7E00]


def sizes(name):
    return gguf.GGML_QUANT_SIZES[Type[name]]


def random_blocks(rng, name, n, halves):
    """n blocks of random bytes, the scale fields drawn from halves (None: any finite f16)."""
    blocks = rng.integers(0, 256, (n, sizes(name)[1]), dtype=np.uint8)
    for offset in F16_FIELDS[name]:
        bits = rng.integers(0, 0x7C00, n, dtype=np.uint16) | (rng.integers(0, 2, n, dtype=np.uint16) << 15)
        if halves is not None:
            bits = np.array(halves, dtype=np.uint16)[rng.integers(0, len(halves), n)]
        blocks[:, offset:offset + 2] = bits.astype("<u2")[:, None].view(np.uint8)
    return blocks


def write_decode(path, name, blocks):
    with np.errstate(all="ignore"):
        weights = gguf.dequantize(blocks, Type[name]).astype("<f4")
    path.write_bytes(np.uint32(len(blocks)).astype("<u4").tobytes() + blocks.tobytes() + weights.tobytes())


def encode_inputs(rng, block_size):
    """Rows of several sizes and signs, zeros, ties, constants and a lone spike."""
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


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240229)
    for name, fields in F16_FIELDS.items():
        block_size, _ = sizes(name)
        if block_size == 1:
            continue  # tests/base/half_test.cc tries every pattern
        n = 40 if block_size == 32 else 9
        blocks = np.concatenate([random_blocks(rng, name, n, None), random_blocks(rng, name, n // 2, SPECIAL)])
        if name == "MXFP4":
            blocks[:6, 0] = [0, 1, 2, 127, 254, 255]
        write_decode(folder / f"{name}.decode.bin", name, blocks)
        if fields:
            write_decode(folder / f"{name}.nonfinite.bin", name, random_blocks(rng, name, 3, NONFINITE))
    for name in ENCODED:
        x = encode_inputs(rng, sizes(name)[0])
        with np.errstate(all="ignore"):
            blocks = gguf.quantize(x, Type[name])
        path = folder / f"{name}.encode.bin"
        path.write_bytes(np.uint32(len(x)).astype("<u4").tobytes() + x.astype("<f4").tobytes() + blocks.tobytes())


if __name__ == "__main__":
    main(sys.argv[1])

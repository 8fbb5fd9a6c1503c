#!/usr/bin/env python3
"""The error that ggml's quantizers leave on given weights: tests/data/quant/errors.json and errors.bin.

    pip install gguf numpy && python tools/quantizer/error_goldens.py libggml-base.so tests/data/quant

errors.bin: float32 weights [4, 1024] (a Gaussian, a heavy-tailed, a one-sided row, a row with outliers), then the
importance of each of the 1024 columns. errors.json: {type: [[plain, weighted], ...]}: for each row, the sum of squared
errors, and the importance-weighted sum for blocks made with the importance. ggml makes the codes, the gguf package
decodes them, and the sums are float64.
"""
import json
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type

from ggml import Ggml, squared_error

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]


def main(library, out):
    ggml, out = Ggml(library), pathlib.Path(out)
    rng = np.random.default_rng(20261121)
    n = 1024
    outliers = rng.standard_normal(n) * np.where(rng.random(n) < 0.02, 15, 1)
    rows = np.stack([rng.standard_normal(n), rng.standard_t(3, n), rng.random(n) + 0.5, outliers]).astype(np.float32) * np.float32(0.02)
    importance = np.exp(1.5 * rng.standard_normal(n)).astype(np.float32)
    (out / "errors.bin").write_bytes(rows.astype("<f4").tobytes() + importance.astype("<f4").tobytes())
    errors = {}
    for name in TYPES:
        quantize = lambda row, w: squared_error(row, ggml.quantize(row, Type[name], w), Type[name], w)
        errors[name] = [[quantize(row[None], None), quantize(row[None], importance)] for row in rows]
    lines = [f'"{name}": {json.dumps(values)}' for name, values in errors.items()]
    (out / "errors.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Small GGUF files for tests/io, written by the `gguf` package (not by ingot), and its table of tensor types.

    pip install gguf numpy && python tools/gguf_fixtures/make.py tests/data/gguf

all_types.gguf                   version 3: every value type, arrays of each, nested arrays; tensors of 1 to 4 dimensions
aligned.gguf                     version 2, alignment 64
split-0000N-of-00003.gguf        three parts, tensors in each
vocab_only.gguf                  no tensors
big_endian.gguf                  refused by name
ggml_types.txt                   id, name, block size, block bytes
"""
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFEndian, GGUFValueType, GGUFWriter

SCALARS = {
    "u8": (GGUFValueType.UINT8, 255), "i8": (GGUFValueType.INT8, -128),
    "u16": (GGUFValueType.UINT16, 65535), "i16": (GGUFValueType.INT16, -32768),
    "u32": (GGUFValueType.UINT32, 4294967295), "i32": (GGUFValueType.INT32, -2147483648),
    "u64": (GGUFValueType.UINT64, 18446744073709551615), "i64": (GGUFValueType.INT64, -9223372036854775808),
    "f32": (GGUFValueType.FLOAT32, 0.15625), "f64": (GGUFValueType.FLOAT64, 1e300),
    "true": (GGUFValueType.BOOL, True), "false": (GGUFValueType.BOOL, False), "str": (GGUFValueType.STRING, "h\u00e9llo \U0001f642"),
}
ARRAYS = {
    "u8": (GGUFValueType.UINT8, [1, 255]), "i8": (GGUFValueType.INT8, [-1, 127]),
    "u16": (GGUFValueType.UINT16, [1, 65535]), "i16": (GGUFValueType.INT16, [-1, 32767]),
    "u32": (GGUFValueType.UINT32, [1, 4294967295]), "i32": (GGUFValueType.INT32, [-1, 2147483647]),
    "u64": (GGUFValueType.UINT64, [1, 18446744073709551615]), "i64": (GGUFValueType.INT64, [-1, 9223372036854775807]),
    "f32": (GGUFValueType.FLOAT32, [0.5, -2.0]), "f64": (GGUFValueType.FLOAT64, [0.5, -2.0]),
    "bool": (GGUFValueType.BOOL, [True, False, True]), "str": (GGUFValueType.STRING, ["", "a", "\u6f22\u5b57"]),
    "nested": (GGUFValueType.ARRAY, [[1, 2, 3], [-4]]), "nested_str": (GGUFValueType.ARRAY, [["x"], ["y", "z"]]),
}


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def all_types(path):
    writer = GGUFWriter(path, "test")
    for name, (value_type, value) in SCALARS.items():
        writer.add_key_value(f"scalar.{name}", value, value_type)
    for name, (value_type, value) in ARRAYS.items():
        writer.add_key_value(f"array.{name}", value, GGUFValueType.ARRAY, sub_type=value_type)
    writer.add_tensor("one", np.arange(5, dtype=np.float32))
    writer.add_tensor("two.f16", np.arange(6, dtype=np.float16).reshape(2, 3))
    writer.add_tensor("three.i32", np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    writer.add_tensor("four", np.arange(8, dtype=np.float32).reshape(1, 2, 1, 4))
    writer.add_tensor("q8", gguf.quantize(np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64), Type.Q8_0), raw_dtype=Type.Q8_0)
    writer.add_tensor("iq2", np.arange(66, dtype=np.uint8).reshape(1, 66), raw_dtype=Type.IQ2_XXS)
    finish(writer)


def aligned(path):
    writer = GGUFWriter(path, "test")
    writer.add_custom_alignment(64)
    writer.add_tensor("a", np.arange(3, dtype=np.float32))
    writer.add_tensor("b", np.arange(3, 20, dtype=np.float32))
    finish(writer)
    data = bytearray(pathlib.Path(path).read_bytes())
    data[4] = 2  # versions 2 and 3 differ in this byte only
    pathlib.Path(path).write_bytes(data)


def split(path):
    writer = GGUFWriter(path, "test", split_max_tensors=2)
    writer.add_uint32("test.block_count", 5)
    for i in range(5):
        writer.add_tensor(f"blk.{i}.weight", np.full((2, 4), i, dtype=np.float32))
    finish(writer)


def vocab_only(path):
    writer = GGUFWriter(path, "test")
    writer.add_token_list(["<s>", "a", "b", "ab"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    finish(writer)


def big_endian(path):
    writer = GGUFWriter(path, "test", endianess=GGUFEndian.BIG)
    writer.add_tensor("a", np.arange(3, dtype=np.float32))
    finish(writer)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    all_types(folder / "all_types.gguf")
    aligned(folder / "aligned.gguf")
    split(folder / "split.gguf")
    vocab_only(folder / "vocab_only.gguf")
    big_endian(folder / "big_endian.gguf")
    rows = [f"{int(t)} {t.name} {block} {n_bytes}\n" for t, (block, n_bytes) in gguf.GGML_QUANT_SIZES.items()]
    (folder / "ggml_types.txt").write_text("".join(rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

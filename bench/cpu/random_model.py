#!/usr/bin/env python3
"""Writes a GGUF file with random weights in the shape of a real model, for speed alone.

    bench/cpu/random_model.py llama-3.2-1b model-f16.gguf
    bench/cpu/random_model.py llama-3.2-1b model-iq2_xxs.gguf --type IQ2_XXS     # a type that `ingot quantize` does not write
    bench/cpu/random_model.py llama-3.1-8b model-q4_k_m.gguf --type Q4_K_M       # in seconds, without a file in F16
    bench/cpu/random_model.py qwen3-30b-a3b model.gguf --type Q4_K --layers 8     # layers as large, but fewer

The weights of F16 are normal with a deviation of 1 / sqrt(columns), so that quantizers see usual values, and they are bf16 numbers,
because most F16 files are made from BF16 models. Other types get random bytes, and scales near those of a model; Q4_K_M has Q6_K in the
matrices where `ingot quantize` and llama.cpp put it. The vocabulary has the real size and made-up tokens. Only Python's own library
is needed.
"""
import argparse
import math
import pathlib
import random
import struct

from model_shapes import SHAPES, VALUES, keys_of, tensors_of

TYPES = {  # GGUF's id, the bytes of a block of 256 elements, its f16 scales: (place, value)
    "IQ2_XXS": (16, 66, [(0, 0.002)]), "IQ2_XS": (17, 74, [(0, 0.002)]), "IQ3_XXS": (18, 98, [(0, 0.002)]),
    "IQ1_S": (19, 50, [(0, 0.002)]), "IQ3_S": (21, 110, [(0, 0.002)]), "IQ2_S": (22, 82, [(0, 0.002)]), "IQ1_M": (29, 56, []),
    "TQ1_0": (34, 54, [(52, 0.002)]), "TQ2_0": (35, 66, [(64, 0.002)]),
    "Q4_0": (2, 144, [(at, 0.004) for at in range(0, 144, 18)]), "Q4_K": (12, 144, [(0, 0.0001), (2, 0.00075)]),
    "Q6_K": (14, 210, [(208, 0.00002)]), "F16": (1, 512, []), "F32": (0, 1024, []),
}
ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
CONTROL, UNKNOWN, NORMAL, BYTE = 3, 2, 1, 6  # types of tokens


def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, payload):
    return text(key) + struct.pack("<I", kind) + payload


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def vocabulary(n_tokens):
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    tokens += [f"\u2581{i}" for i in range(n_tokens - len(tokens))]
    types += [NORMAL] * (n_tokens - len(types))
    return [
        pair("tokenizer.ggml.model", STRING, text("llama")),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(t) for t in tokens])),
        pair("tokenizer.ggml.scores", ARRAY, array(F32, [struct.pack("<f", -i) for i in range(n_tokens)])),
        pair("tokenizer.ggml.token_type", ARRAY, array(I32, [struct.pack("<i", t) for t in types])),
        pair("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 1)),
        pair("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2)),
    ]


def pair_of(key, value):
    """A number, or a tuple with one for each layer."""
    if isinstance(value, tuple):
        return pair(key, ARRAY, array(I32, [struct.pack("<i", n) for n in value]))
    kind, form = {bool: (BOOL, "<?"), int: (U32, "<I"), float: (F32, "<f")}[type(value)]
    return pair(key, kind, struct.pack(form, value))


def metadata(name, n_layers):
    shape = SHAPES[name]
    arch = shape["arch"]
    pairs = [pair("general.architecture", STRING, text(arch)), pair("general.name", STRING, text(name))]
    keys = {"attention.layer_norm_rms_epsilon": 1e-5} | keys_of(shape, n_layers)
    pairs += [pair_of(f"{arch}.{key}", value) for key, value in keys.items()]
    return pairs + [pair("general.file_type", U32, struct.pack("<I", 1))] + vocabulary(shape["tokens"])


def tensors(name, n_layers=None):
    """(name, dims, whether it has the type of the file) of each tensor. The first of dims is the length of a row."""
    return tensors_of(SHAPES[name], n_layers or SHAPES[name]["layers"])


def normal_bf16_in_f16(count, deviation):
    floats = struct.pack(f"<{count}f", *(random.gauss(0, deviation) for _ in range(count)))
    words = (word & 0xFFFF0000 for word in struct.unpack(f"<{count}I", floats))
    return struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *words)))


def random_blocks(block_bytes, scales):
    data = bytearray(random.randbytes(4096 * block_bytes))
    for first, scale in scales:
        for at in range(first, len(data), block_bytes):
            data[at: at + 2] = struct.pack("<e", scale)
    return bytes(data)


def type_of(tensor, layers, kind):
    """The type of a matrix in a file of this kind. In Q4_K_M, the output and some layers' values and down projections have more bits."""
    if kind != "Q4_K_M":
        return kind
    parts = tensor.split(".")
    if parts[0] in ("token_embd", "output"):
        return "Q6_K"
    layer = int(parts[1])
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    return "Q6_K" if more and parts[2] in ("attn_v", "ffn_down") else "Q4_K"


def noise_of(kind, cols):
    """A MiB or more of random data of this type."""
    if kind == "F32":
        return struct.pack(f"<{1 << 18}f", *(random.gauss(0, cols ** -0.5) for _ in range(1 << 18)))
    return normal_bf16_in_f16(1 << 20, cols ** -0.5) if kind == "F16" else random_blocks(*TYPES[kind][1:])


def write(name, path, kind, n_layers=None):
    n_layers = n_layers or SHAPES[name]["layers"]
    entries = []  # name, dims, type, elements, whether the numbers are random
    for tensor, dims, has_type in tensors(name, n_layers):
        own = type_of(tensor, n_layers, kind) if has_type else "F32"
        entries.append((tensor, dims, own, math.prod(dims), has_type or tensor.endswith("ffn_gate_inp.weight")))
    sizes = [n * TYPES[own][1] // 256 for _, _, own, n, _ in entries]
    infos, at = [], 0
    for (tensor, dims, own, _, _), size in zip(entries, sizes):
        infos.append(text(tensor) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPES[own][0], at))
        at += -(-size // ALIGNMENT) * ALIGNMENT
    pairs = metadata(name, n_layers)
    noise = {}
    with open(path, "wb") as out:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(pairs)) + b"".join(pairs) + b"".join(infos)
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for (tensor, dims, own, n, is_random), size in zip(entries, sizes):
            if is_random:  # matrices of one kind share the data, each from another offset
                key = own, dims[0] if own in ("F16", "F32") else 0
                if key not in noise:
                    noise[key] = noise_of(*key)
                start = random.randrange(2048) * TYPES[own][1] % len(noise[key])
                data = noise[key][start:] + noise[key][:start]
                for done in range(0, size, len(data)):
                    out.write(data[: size - done])
            else:
                out.write(struct.pack("<f", VALUES.get(tensor.split(".", 2)[-1], 1.0)) * n)
            out.write(bytes(-size % ALIGNMENT))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=["Q4_K_M", *(kind for kind in TYPES if kind != "F32")], default="F16")
    parser.add_argument("--layers", type=int, default=0, help="fewer layers than the shape has, for speed by layer; default: all")
    args = parser.parse_args()
    if not 0 <= args.layers <= SHAPES[args.shape]["layers"]:
        parser.error(f"{args.shape} has {SHAPES[args.shape]['layers']} layers, not {args.layers}")
    unit = {"F16": 1, "Q4_0": 32}.get(args.type, 256)
    odd = {dims[0] for _, dims, has_type in tensors(args.shape) if has_type and dims[0] % unit}
    if odd:
        parser.error(f"{args.shape} has rows of {min(odd)} elements, which are no whole blocks of {unit}: write F16, and use `ingot quantize`")
    write(args.shape, args.out, args.type, args.layers)


if __name__ == "__main__":
    main()

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

SHAPES = {  # of Hugging Face's configs; `experts`: number, used by a token, FFN dim; `attention`: layers, of lfm2
    "smollm-135m": dict(arch="llama", layers=30, dim=576, heads=9, kv_heads=3, head_dim=64, ffn=1536, tokens=49152, theta=1e4),
    "qwen2.5-0.5b": dict(arch="qwen2", layers=24, dim=896, heads=14, kv_heads=2, head_dim=64, ffn=4864, tokens=151936, theta=1e6),
    "qwen3-0.6b": dict(arch="qwen3", layers=28, dim=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, tokens=151936, theta=1e6),
    "llama-3.2-1b": dict(arch="llama", layers=16, dim=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, tokens=128256, theta=5e5),
    "llama-3.1-8b": dict(arch="llama", layers=32, dim=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, tokens=128256, theta=5e5),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, dim=2048, heads=32, kv_heads=4, head_dim=128, ffn=6144, tokens=151936, theta=1e6,
                          experts=(128, 8, 768)),
    "lfm2-350m": dict(arch="lfm2", layers=16, dim=1024, heads=16, kv_heads=8, head_dim=64, ffn=4608, tokens=65536, theta=1e6,
                      attention=(2, 5, 8, 10, 12, 14), conv=3),
    "mamba2-130m": dict(arch="mamba2", layers=24, dim=768, inner=1536, ssm_heads=24, state=128, conv=4, tokens=50288),
}
TYPES = {  # GGUF's id, the bytes of a block of 256 elements, its f16 scales: (place, value)
    "IQ2_XXS": (16, 66, [(0, 0.002)]), "IQ2_XS": (17, 74, [(0, 0.002)]), "IQ3_XXS": (18, 98, [(0, 0.002)]),
    "IQ1_S": (19, 50, [(0, 0.002)]), "IQ3_S": (21, 110, [(0, 0.002)]), "IQ2_S": (22, 82, [(0, 0.002)]), "IQ1_M": (29, 56, []),
    "TQ1_0": (34, 54, [(52, 0.002)]), "TQ2_0": (35, 66, [(64, 0.002)]),
    "Q4_0": (2, 144, [(at, 0.004) for at in range(0, 144, 18)]), "Q4_K": (12, 144, [(0, 0.0001), (2, 0.00075)]),
    "Q6_K": (14, 210, [(208, 0.00002)]), "F16": (1, 512, []), "F32": (0, 1024, []),
}
ALIGNMENT = 32
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9
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


def numbers_of(shape, n_layers):
    """The integers of the metadata, by their keys; a tuple has one for each layer."""
    numbers = {"block_count": n_layers, "context_length": 32768, "embedding_length": shape["dim"], "vocab_size": shape["tokens"]}
    if shape["arch"] == "mamba2":
        return numbers | {"feed_forward_length": 0, "attention.head_count": 0, "ssm.conv_kernel": shape["conv"],
                          "ssm.inner_size": shape["inner"], "ssm.state_size": shape["state"], "ssm.group_count": 1,
                          "ssm.time_step_rank": shape["ssm_heads"]}
    numbers |= {"feed_forward_length": shape["ffn"], "attention.head_count": shape["heads"], "attention.head_count_kv": shape["kv_heads"],
                "attention.key_length": shape["head_dim"], "attention.value_length": shape["head_dim"],
                "rope.dimension_count": shape["head_dim"]}
    if "attention" in shape:
        numbers["attention.head_count_kv"] = tuple(shape["kv_heads"] if i in shape["attention"] else 0 for i in range(n_layers))
        numbers["shortconv.l_cache"] = shape["conv"]
    if "experts" in shape:
        numbers |= zip(("expert_count", "expert_used_count", "expert_feed_forward_length"), shape["experts"])
    return numbers


def metadata(name, n_layers):
    shape = SHAPES[name]
    arch = shape["arch"]
    pairs = [pair("general.architecture", STRING, text(arch)), pair("general.name", STRING, text(name))]
    for key, value in numbers_of(shape, n_layers).items():
        if isinstance(value, tuple):
            pairs.append(pair(f"{arch}.{key}", ARRAY, array(I32, [struct.pack("<i", n) for n in value])))
        else:
            pairs.append(pair(f"{arch}.{key}", U32, struct.pack("<I", value)))
    pairs.append(pair(f"{arch}.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)))
    if "theta" in shape:
        pairs.append(pair(f"{arch}.rope.freq_base", F32, struct.pack("<f", shape["theta"])))
    return pairs + [pair("general.file_type", U32, struct.pack("<I", 1))] + vocabulary(shape["tokens"])


# The tensors of a part of a layer: (name, dims, whether it has the type of the file). The others are F32.

def attention(shape):
    dim, q, kv = shape["dim"], shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    for part, n in (("q", q), ("k", kv), ("v", kv)):
        yield f"attn_{part}.weight", [dim, n], True
        if shape["arch"] == "qwen2":
            yield f"attn_{part}.bias", [n], False
    if shape["arch"] in ("qwen3", "qwen3moe", "lfm2"):
        yield "attn_q_norm.weight", [shape["head_dim"]], False
        yield "attn_k_norm.weight", [shape["head_dim"]], False
    yield "attn_output.weight", [q, dim], True


def short_convolution(shape):
    dim = shape["dim"]
    yield "shortconv.conv.weight", [shape["conv"], dim], False
    yield "shortconv.in_proj.weight", [dim, 3 * dim], True
    yield "shortconv.out_proj.weight", [dim, dim], True


def mamba2(shape):
    dim, inner, heads = shape["dim"], shape["inner"], shape["ssm_heads"]
    channels = inner + 2 * shape["state"]
    yield "ssm_in.weight", [dim, inner + channels + heads], True
    yield "ssm_conv1d.weight", [shape["conv"], channels], False
    yield "ssm_conv1d.bias", [channels], False
    yield "ssm_dt.bias", [heads], False
    yield "ssm_a", [1, heads], False
    yield "ssm_d", [1, heads], False
    yield "ssm_norm.weight", [inner, 1], False
    yield "ssm_out.weight", [inner, dim], True


def feed_forward(shape):
    dim = shape["dim"]
    yield "ffn_norm.weight", [dim], False
    if "experts" not in shape:
        for part in "gate", "up", "down":
            yield f"ffn_{part}.weight", [shape["ffn"], dim] if part == "down" else [dim, shape["ffn"]], True
        return
    n, _, ffn = shape["experts"]
    yield "ffn_gate_inp.weight", [dim, n], False
    for part in "gate", "up", "down":
        yield f"ffn_{part}_exps.weight", [ffn, dim, n] if part == "down" else [dim, ffn, n], True


def tensors(name, n_layers=None):
    """Yields (name, dims, whether it has the type of the file) of each tensor. The first of dims is the length of a row."""
    shape = SHAPES[name]
    yield "token_embd.weight", [shape["dim"], shape["tokens"]], True
    yield "token_embd_norm.weight" if shape["arch"] == "lfm2" else "output_norm.weight", [shape["dim"]], False
    for i in range(n_layers or shape["layers"]):
        if shape["arch"] == "mamba2":
            parts = [mamba2]
        else:
            parts = [attention if i in shape.get("attention", range(i + 1)) else short_convolution, feed_forward]
        yield f"blk.{i}.attn_norm.weight", [shape["dim"]], False
        for part in parts:
            for tensor, dims, has_type in part(shape):
                yield f"blk.{i}.{tensor}", dims, has_type


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
    if parts[0] == "token_embd":
        return "Q6_K"
    layer = int(parts[1])
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    return "Q6_K" if more and parts[2] in ("attn_v", "ffn_down") else "Q4_K"


def noise_of(kind, cols):
    """A MiB or more of random data of this type."""
    if kind == "F32":
        return struct.pack(f"<{1 << 18}f", *(random.gauss(0, cols ** -0.5) for _ in range(1 << 18)))
    return normal_bf16_in_f16(1 << 20, cols ** -0.5) if kind == "F16" else random_blocks(*TYPES[kind][1:])


# Values of vectors that may not be 1: the decay is a logarithm's negative, and a step is softplus(its bias + ...).
VALUES = {"ssm_a": -1.0, "ssm_dt.bias": -2.0, "ssm_conv1d.weight": 0.25, "shortconv.conv.weight": 0.25}


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
    unit = 32 if args.type in ("F16", "Q4_0") else 256
    odd = {dims[0] for _, dims, has_type in tensors(args.shape) if has_type and dims[0] % unit}
    if odd:
        parser.error(f"{args.shape} has rows of {min(odd)} elements, which are no whole blocks of {unit}: write F16, and use `ingot quantize`")
    write(args.shape, args.out, args.type, args.layers)


if __name__ == "__main__":
    main()

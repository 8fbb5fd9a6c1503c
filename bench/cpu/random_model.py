#!/usr/bin/env python3
"""Writes a GGUF file with random weights in the shape of a real model, for speed alone.

    bench/cpu/random_model.py llama-3.2-1b model-f16.gguf
    bench/cpu/random_model.py llama-3.2-1b model-iq2_xxs.gguf --type IQ2_XXS     # a type that `ingot quantize` does not write
    bench/cpu/random_model.py llama-3.1-8b model-q4_k_m.gguf --type Q4_K_M       # in seconds, without a file in F16

The weights of F16 are normal with a deviation of 1 / sqrt(columns), so that quantizers see usual values, and they are bf16 numbers,
because most F16 files are made from BF16 models. Other types get random bytes, and scales near those of a model; Q4_K_M has Q6_K in the
matrices where `ingot quantize` and llama.cpp put it. The vocabulary has the real size and made-up tokens. Only Python's own library
is needed.
"""
import argparse
import pathlib
import random
import struct

SHAPES = {  # layers, dim, heads, KV heads, head dim, FFN dim, tokens, rope theta, whether q, k and v have biases
    "smollm-135m": ("llama", 30, 576, 9, 3, 64, 1536, 49152, 1e4, False),
    "qwen2.5-0.5b": ("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 1e6, True),
    "qwen3-0.6b": ("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 1e6, False),
    "llama-3.2-1b": ("llama", 16, 2048, 32, 8, 64, 8192, 128256, 5e5, False),
    "llama-3.1-8b": ("llama", 32, 4096, 32, 8, 128, 14336, 128256, 5e5, False),
}
TYPES = {  # GGUF's id, the bytes of a block of 256 elements, its f16 scales: (place, value)
    "IQ2_XXS": (16, 66, [(0, 0.002)]), "IQ2_XS": (17, 74, [(0, 0.002)]), "IQ3_XXS": (18, 98, [(0, 0.002)]),
    "IQ1_S": (19, 50, [(0, 0.002)]), "IQ3_S": (21, 110, [(0, 0.002)]), "IQ2_S": (22, 82, [(0, 0.002)]), "IQ1_M": (29, 56, []),
    "TQ1_0": (34, 54, [(52, 0.002)]), "TQ2_0": (35, 66, [(64, 0.002)]),
    "Q4_0": (2, 144, [(at, 0.004) for at in range(0, 144, 18)]), "Q4_K": (12, 144, [(0, 0.0001), (2, 0.00075)]),
    "Q6_K": (14, 210, [(208, 0.00002)]), "F16": (1, 512, []),
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


def metadata(name):
    arch, layers, dim, heads, kv_heads, head_dim, ffn, n_tokens, theta, _ = SHAPES[name]
    numbers = {"block_count": layers, "context_length": 32768, "embedding_length": dim, "feed_forward_length": ffn,
               "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
               "attention.value_length": head_dim, "rope.dimension_count": head_dim,
               "vocab_size": n_tokens}
    pairs = [pair("general.architecture", STRING, text(arch)), pair("general.name", STRING, text(name))]
    pairs += [pair(f"{arch}.{key}", U32, struct.pack("<I", value)) for key, value in numbers.items()]
    pairs.append(pair(f"{arch}.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)))
    pairs.append(pair(f"{arch}.rope.freq_base", F32, struct.pack("<f", theta)))
    return pairs + [pair("general.file_type", U32, struct.pack("<I", 1))] + vocabulary(n_tokens)


def tensors(name):
    """Yields (name, columns, rows) of each matrix, and (name, elements, None) of each vector."""
    arch, layers, dim, heads, kv_heads, head_dim, ffn, n_tokens, _, biases = SHAPES[name]
    q, kv = heads * head_dim, kv_heads * head_dim
    yield "token_embd.weight", dim, n_tokens
    yield "output_norm.weight", dim, None
    for i in range(layers):
        yield f"blk.{i}.attn_norm.weight", dim, None
        yield f"blk.{i}.ffn_norm.weight", dim, None
        for part, n in (("q", q), ("k", kv), ("v", kv)):
            yield f"blk.{i}.attn_{part}.weight", dim, n
            if biases:
                yield f"blk.{i}.attn_{part}.bias", n, None
        if arch == "qwen3":
            yield f"blk.{i}.attn_q_norm.weight", head_dim, None
            yield f"blk.{i}.attn_k_norm.weight", head_dim, None
        yield f"blk.{i}.attn_output.weight", q, dim
        yield f"blk.{i}.ffn_gate.weight", dim, ffn
        yield f"blk.{i}.ffn_up.weight", dim, ffn
        yield f"blk.{i}.ffn_down.weight", ffn, dim


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


def write(name, path, kind):
    entries = [(tensor, cols, rows, type_of(tensor, SHAPES[name][1], kind) if rows else "F32") for tensor, cols, rows in tensors(name)]
    sizes = [cols * rows * TYPES[own][1] // 256 if rows else cols * 4 for _, cols, rows, own in entries]
    infos, at = [], 0
    for (tensor, cols, rows, own), size in zip(entries, sizes):
        dims = [cols, rows] if rows else [cols]
        infos.append(text(tensor) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPES[own][0] if rows else 0, at))
        at += -(-size // ALIGNMENT) * ALIGNMENT
    pairs = metadata(name)
    noise = {(own, cols): normal_bf16_in_f16(1 << 20, cols ** -0.5) if own == "F16" else random_blocks(*TYPES[own][1:])
             for own, cols in sorted({(own, cols if own == "F16" else 0) for _, cols, rows, own in entries if rows})}
    with open(path, "wb") as out:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(pairs)) + b"".join(pairs) + b"".join(infos)
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for (_, cols, rows, own), size in zip(entries, sizes):
            if rows:  # matrices of one kind share the data, each from another offset
                start = random.randrange(2048) * TYPES[own][1]
                shared = noise[own, cols if own == "F16" else 0]
                data = shared[start:] + shared[:start]
                for done in range(0, size, len(data)):
                    out.write(data[: size - done])
            else:
                out.write(struct.pack("<f", 1.0) * cols)
            out.write(bytes(-size % ALIGNMENT))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=["Q4_K_M", *TYPES], default="F16")
    args = parser.parse_args()
    unit = 32 if args.type in ("F16", "Q4_0") else 256
    odd = {cols for _, cols, rows in tensors(args.shape) if rows and cols % unit}
    if odd:
        parser.error(f"{args.shape} has rows of {min(odd)} elements, which are no whole blocks of {unit}: write F16, and use `ingot quantize`")
    write(args.shape, args.out, args.type)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/quant/mixes.json: the type that llama.cpp chooses for each matrix under each mix name, such as
Q4_K_M.

    pip install gguf numpy && python tools/quantizer/mix_goldens.py llama-quantize tests/data/quant/mixes.json

Makes small models of random weights, quantizes them with llama.cpp's own program without an importance matrix, and
records the types in the result: for each kind of matrix one type, or a list with one type for each layer.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

# architecture, layers, dim, ffn, heads, key and value heads, has an output matrix
SHAPES = {
    "many_layers": ("llama", 32, 256, 512, 8, 2, True),
    "own_heads": ("llama", 13, 256, 512, 4, 4, False),
    "rows_of_32": ("llama", 9, 288, 320, 4, 2, True),
    "odd_rows": ("qwen2", 4, 256, 272, 8, 1, False),
    "eighty_layers": ("qwen2", 80, 256, 256, 8, 1, True),
}
MIXES = ["F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_L",
         "Q3_K_M", "Q3_K_S", "Q2_K"]
VOCAB = 64


def write_model(path, arch, n_layers, dim, ffn, n_heads, n_kv, has_output):
    writer = gguf.GGUFWriter(path, arch)
    for add, value in ((writer.add_block_count, n_layers), (writer.add_context_length, 64), (writer.add_embedding_length, dim),
                       (writer.add_feed_forward_length, ffn), (writer.add_head_count, n_heads), (writer.add_head_count_kv, n_kv),
                       (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_rope_freq_base, 1e4), (writer.add_vocab_size, VOCAB)):
        add(value)
    writer.add_tokenizer_model("no_vocab")
    rng = np.random.default_rng(1)
    kv = dim // n_heads * n_kv
    shapes = {"token_embd.weight": (VOCAB, dim), "output_norm.weight": (dim,)}
    if has_output:
        shapes["output.weight"] = (VOCAB, dim)
    for i in range(n_layers):
        shapes.update({f"blk.{i}.{name}.weight": shape for name, shape in {
            "attn_norm": (dim,), "attn_q": (dim, dim), "attn_k": (kv, dim), "attn_v": (kv, dim), "attn_output": (dim, dim), "ffn_norm": (dim,),
            "ffn_gate": (ffn, dim), "ffn_up": (ffn, dim), "ffn_down": (dim, ffn)}.items()})
    for name, shape in shapes.items():
        writer.add_tensor(name, rng.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {name: shape[-1] for name, shape in shapes.items() if len(shape) == 2}


def by_kind(types, n_layers):
    """{"attn_v.weight": ["Q6_K", ...] or "Q4_K" when all layers have it, "output.weight": ...}."""
    out = {}
    for name, type in types.items():
        kind = name.split(".", 2)[2] if name.startswith("blk.") else name
        out.setdefault(kind, []).append(type)
    return {kind: list_[0] if len(set(list_)) == 1 else list_ for kind, list_ in out.items()}


def main(program, out):
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for shape, facts in SHAPES.items():
            source, made = (str(pathlib.Path(folder) / n) for n in ("in.gguf", "out.gguf"))
            rows = write_model(source, *facts)
            mixes = {}
            for mix in MIXES:
                subprocess.run([program, source, made, mix], check=True, capture_output=True)
                types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(made).tensors}
                mixes[mix] = by_kind({name: types[name] for name in rows}, facts[1])
            result[shape] = {"n_layers": facts[1], "heads_per_kv": facts[4] // facts[5], "has_output": facts[6],
                             "rows": by_kind(rows, facts[1]), "mixes": mixes}
    text = json.dumps(result, indent=1)
    pathlib.Path(out).write_text(text.replace('[\n     ', "[").replace('",\n     ', '", ').replace('\n    ]', "]") + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

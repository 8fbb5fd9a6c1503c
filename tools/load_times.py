#!/usr/bin/env python3
"""Writes a model of the shape of llama-3.2-1b with random weights in several containers, and prints the load time of
each.

  tools/load_times.py --ingot build/ingot --work build/load [--repeat 3] [--device cuda]

Needs 6 GB of disk space and a tokenizer (that of tests/data/hf/llama is used). Bytes are random; codes and scales have
the layouts of docs/formats.md. The file is in the page cache when it is read, so the disk is not measured. The fastest
run is printed. "Weights" is the part of the load time for weights, without the tokenizer, and on cuda without the
driver's start.
"""
import argparse
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIM, LAYERS, FFN, HEADS, KV_HEADS, HEAD, VOCAB = 2048, 16, 8192, 32, 8, 64, 128256
CONFIG = {"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": DIM, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
          "head_dim": HEAD, "intermediate_size": FFN, "vocab_size": VOCAB, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
          "rope_theta": 500000.0, "tie_word_embeddings": True}
SIZES = {"U32": 4, "I32": 4, "F16": 2, "BF16": 2, "F32": 4, "F8_E4M3": 1}
NOISE = np.random.default_rng(1).integers(0, 256, 1 << 26, dtype=np.uint8)


def matrices():
    yield "model.embed_tokens", VOCAB, DIM
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name, n_out, n_in in (("self_attn.q_proj", HEADS * HEAD, DIM), ("self_attn.k_proj", KV_HEADS * HEAD, DIM),
                                  ("self_attn.v_proj", KV_HEADS * HEAD, DIM), ("self_attn.o_proj", DIM, HEADS * HEAD),
                                  ("mlp.gate_proj", FFN, DIM), ("mlp.up_proj", FFN, DIM), ("mlp.down_proj", DIM, FFN)):
            yield at + name, n_out, n_in


def dense(n_out, n_in):
    return [(".weight", "BF16", (n_out, n_in))]


def mlx(n_out, n_in):
    return [(".weight", "U32", (n_out, n_in // 8)), (".scales", "BF16", (n_out, n_in // 64)), (".biases", "BF16", (n_out, n_in // 64))]


def gptq(n_out, n_in):
    return [(".qweight", "I32", (n_in // 8, n_out)), (".qzeros", "I32", (n_in // 128, n_out // 8)), (".scales", "F16", (n_in // 128, n_out))]


def awq(n_out, n_in):
    return [(".qweight", "I32", (n_in, n_out // 8)), (".qzeros", "I32", (n_in // 128, n_out // 8)), (".scales", "F16", (n_in // 128, n_out))]


def fp8(n_out, n_in):
    return [(".weight", "F8_E4M3", (n_out, n_in)), (".weight_scale_inv", "F32", (n_out // 128, n_in // 128))]


CONTAINERS = {  # name: (tensors of a matrix, whether the embedding is quantized too, keys of config.json)
    "safetensors BF16": (dense, True, {}),
    "MLX 4-bit g64": (mlx, True, {"quantization": {"group_size": 64, "bits": 4}}),
    "GPTQ 4-bit g128": (gptq, False, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False, "checkpoint_format": "gptq_v2"}}),
    "AWQ 4-bit g128": (awq, False, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}),
    "FP8 128x128": (fp8, False, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}),
}


def tensors_of(pack, embedding_too):
    for name, n_out, n_in in matrices():
        parts = pack(n_out, n_in) if embedding_too or "embed" not in name else dense(n_out, n_in)
        yield from ((name + suffix, dtype, dims) for suffix, dtype, dims in parts)
    for i in range(LAYERS):
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{i}.{name}.weight", "F32", (DIM,)
    yield "model.norm.weight", "F32", (DIM,)


def noise_of(mask):
    """Random bytes; each byte has only those bits that the mask at its position has."""
    noise = NOISE.reshape(-1, len(mask)) & np.array(mask, np.uint8)
    return noise.tobytes()


# BF16 values stay at most 1, and no E4M3 is NaN.
NOISES = {"BF16": noise_of([0xFF, 0xBC]), "F8_E4M3": noise_of([0xF7]), "I32": NOISE.tobytes(), "U32": NOISE.tobytes()}


def data_of(name, dtype, n_bytes):
    """Scales, vectors and dense weights are small numbers; codes are random bits."""
    if dtype in ("F32", "F16") or "scales" in name or "biases" in name:
        one = {"F32": np.float32(0.01), "F16": np.float16(0.01), "BF16": np.uint16(0x3C24)}[dtype]
        return np.full(n_bytes // SIZES[dtype], one).tobytes()
    noise = NOISES[dtype]
    return (noise * (n_bytes // len(noise) + 1))[:n_bytes]


def write_directory(folder, pack, embedding_too, keys):
    folder.mkdir(parents=True)
    header, offset, tensors = {}, 0, list(tensors_of(pack, embedding_too))
    for name, dtype, dims in tensors:
        end = offset + int(np.prod(dims)) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, _ in tensors:
            begin, end = header[name]["data_offsets"]
            file.write(data_of(name, dtype, end - begin))
    (folder / "config.json").write_text(json.dumps(CONFIG | keys))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "tests/data/hf/llama" / name, folder / name)


def measure(ingot, name, path, repeat, device):
    times = []
    for _ in range(repeat):
        begin = time.monotonic()
        done = subprocess.run([ingot, "run", path, "--raw", "-p", "a", "-n", "1", "-c", "64", "--json", "--device", device, "--log-level", "info"],
                              capture_output=True, text=True, check=True)
        weights = float(re.search(r"of weights in ([0-9.]+) s", done.stderr).group(1))
        times.append((json.loads(done.stdout)["load_ms"] / 1000, time.monotonic() - begin, weights))
    size = sum(f.stat().st_size for f in ([path] if path.is_file() else path.iterdir())) / 1e9
    load, first, weights = (min(t[i] for t in times) for i in range(3))
    print(f"| {name} | {size:.2f} | {weights:.2f} | {size / weights:.1f} | {load:.2f} | {first:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingot", type=pathlib.Path, default=ROOT / "build" / "ingot")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=CONTAINERS, help="this container, and the GGUF files made of it")
    parser.add_argument("--before", type=pathlib.Path, help="a script that is run with the first file, such as bench/gpu/bus.py")
    args = parser.parse_args()
    for name, (pack, embedding_too, keys) in CONTAINERS.items():
        if args.only not in (None, name):
            continue
        folder = args.work / "model"
        write_directory(folder, pack, embedding_too, keys)
        if name == (args.only or next(iter(CONTAINERS))):
            if args.before:
                subprocess.run([sys.executable, args.before, folder / "model.safetensors"], check=True)
            print("| container | GB | weights, s | GB/s | load, s | until the first token, s |\n|---|---|---|---|---|---|")
        measure(args.ingot, name, folder, args.repeat, args.device)
        if pack is dense:
            for verb, gguf in (("BF16", "GGUF BF16"), ("Q4_0", "GGUF Q4_0"), ("Q4_K_M", "GGUF Q4_K_M")):
                out = args.work / "model.gguf"
                subprocess.run([args.ingot, "quantize", folder, out, verb], check=True, capture_output=True)
                measure(args.ingot, gguf, out, args.repeat, args.device)
                out.unlink()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

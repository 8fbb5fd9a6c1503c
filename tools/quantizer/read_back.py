#!/usr/bin/env python3
"""Quantizes the demo model with `ingot quantize` to every type, reads the files with the gguf package and llama.cpp,
and compares the logits.

  g++ -O1 -I LLAMA/include -I LLAMA/ggml/include tools/quantizer/llama_logits.cc -lllama -lggml -lggml-cpu -lggml-base -o llama_logits
  tools/quantizer/read_back.py --llama ./llama_logits [--ingot build/ingot] [TYPE ...]

The package decodes every tensor. llama.cpp rounds activations to 8 bits and ingot's `ref` does not, so their logits
differ by 0.1 to 6 % of their deviation on this model.
"""
import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
from gguf import GGUFReader, quants

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = ("F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4 Q3_K_L Q3_K_M Q3_K_S Q2_K Q2_K_S").split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", required=True)
    parser.add_argument("--ingot", default=ROOT / "build" / "ingot")
    parser.add_argument("types", nargs="*", default=TYPES)
    args = parser.parse_args()
    rng = np.random.default_rng(7)
    print("| type | tensors | difference of logits |\n|---|---|---|")
    for name in args.types:
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.gguf"
            subprocess.run([args.ingot, "quantize", ROOT / "models" / "demo.gguf", out, name, "--allow-requantize"], check=True, capture_output=True)
            reader = GGUFReader(out)
            assert all(np.isfinite(quants.dequantize(t.data, t.tensor_type)).all() for t in reader.tensors)
            n_vocab = len(reader.get_field("tokenizer.ggml.tokens").data)
            tokens = [str(t) for t in rng.integers(0, n_vocab - 8, 16)]
            subprocess.run([args.llama, out, f"{folder}/llama.f32", *tokens], check=True)
            subprocess.run([args.ingot, "logits", out, "--tokens", ",".join(tokens), "--all", "-o", f"{folder}/ingot.npy", "--device", "ref", "--cache-type", "f32"],
                           check=True, capture_output=True)
            ours = np.load(f"{folder}/ingot.npy")
            theirs = np.fromfile(f"{folder}/llama.f32", np.float32).reshape(ours.shape)
            error = np.sqrt(np.mean((ours - theirs) ** 2)) / ours.std()
            print(f"| {name} | {len(reader.tensors)} | {error:.4f} |", flush=True)
            assert error < 0.1, name


if __name__ == "__main__":
    main()

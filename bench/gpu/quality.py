#!/usr/bin/env python3
"""What faster formats cost in quality: the demo model on a GPU, with its matrices and its KV cache in several formats.

  bench/gpu/quality.py INGOT        prints a Markdown table

Perplexity is that of the held-out text. The cosine is that of the logits [tokens, vocabulary] of the text's first 8,000
characters, mean and least over the tokens, against weights in F16, activations in f32 and a cache in f32. The matrices
of the demo are Q8_0; they are decoded to F16 once, and quantized again while the model loads.
"""
import json
import subprocess
import sys
import tempfile

import numpy as np

TEXT = "tests/data/demo/heldout.txt"
RUNS = {
    "reference": ["--activations", "f32", "--kv-type", "f32"],
    "F16": [],
    "FP8 (per row), activations FP8": ["--quantize", "fp8"],
    "FP8, activations f16": ["--quantize", "fp8", "--activations", "f16"],
    "Q8_0": ["--quantize", "q8_0"],
    "Q4_K_M": ["--quantize", "q4_k_m"],
    "Q4_0": ["--quantize", "q4_0"],
    "F16, cache bf16": ["--kv-type", "bf16"],
    "F16, cache fp8": ["--kv-type", "fp8"],
    "F16, cache q8_0": ["--kv-type", "q8_0"],
    "F16, cache q8_0/q4_0": ["--kv-type", "q8_0/q4_0"],
    "F16, cache q4_0": ["--kv-type", "q4_0"],
    "FP8, activations FP8, cache fp8": ["--quantize", "fp8", "--kv-type", "fp8"],
}


def main():
    ingot, device = sys.argv[1], (sys.argv[2:] or ["cuda"])[0]

    def run(*args):
        return subprocess.run([ingot, *args], check=True, capture_output=True, text=True).stdout

    with tempfile.TemporaryDirectory() as folder:
        model, prompt, out = (f"{folder}/{name}" for name in ("demo.gguf", "text.txt", "logits.npy"))
        run("quantize", "models/demo.gguf", model, "F16", "--allow-requantize")
        with open(TEXT) as whole, open(prompt, "w") as part:
            part.write(whole.read(8000))
        print("| weights and cache | perplexity | to the reference | cosine, mean | least |\n|---|---|---|---|---|")
        for name, flags in RUNS.items():
            flags = ["--device", device, *flags]
            perplexity = json.loads(run("perplexity", model, "-f", TEXT, "--json", *flags))["perplexity"]
            run("logits", model, "-f", prompt, "--all", "-o", out, *flags)
            logits = np.load(out).astype(np.float64)
            if name == "reference":
                reference, base = logits, perplexity
            lengths = np.linalg.norm(logits, axis=1) * np.linalg.norm(reference, axis=1)
            cosine = (logits * reference).sum(axis=1) / lengths
            print(f"| {name} | {perplexity:.4f} | {100 * (perplexity / base - 1):+.2f} % | {cosine.mean():.6f} | {cosine.min():.6f} |")


main()

#!/usr/bin/env python3
"""Checks the goldens of tests/data/models in a second way: a float64 forward in NumPy that reads only the GGUF file.

The script shares no code with make_models.py or transformers, so a wrong permutation, key or rope table on the
writing side gives a large error here. Prints the largest error of each file; exits 1 if an error is above 1e-4.

    python tools/goldens/check_gguf.py tests/data/models/*.gguf
"""
import json
import pathlib
import sys

import numpy as np
from gguf import GGUFReader, quants


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.arch = reader.get_field("general.architecture").contents()
        self.keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.")}
        # Quantized rows are decoded to F32; the rest of the arithmetic is float64.
        self.w = {t.name: quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}

    def key(self, name, default=None):
        return self.keys.get(f"{self.arch}.{name}", default)

    def linear(self, name, x):
        y = x @ self.w[f"{name}.weight"].T
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def norm(self, name, x):
        eps = self.key("attention.layer_norm_rms_epsilon")
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[f"{name}.weight"]

    def rope_tables(self, n, head_dim):
        """cos and sin [n, 1, head_dim / 2] of every position, with linear, yarn or table scaling."""
        base, scale = self.key("rope.freq_base"), 1.0
        pair = np.arange(head_dim // 2)
        freq = base ** (-2.0 * pair / head_dim)
        kind, factor = self.key("rope.scaling.type"), self.key("rope.scaling.factor")
        if kind == "linear":
            freq = freq / factor
        if kind == "yarn":
            context = self.key("rope.scaling.original_context_length")
            betas = self.key("rope.scaling.yarn_beta_fast", 32.0), self.key("rope.scaling.yarn_beta_slow", 1.0)
            first, last = (head_dim * np.log(context / (2 * np.pi * b)) / (2 * np.log(base)) for b in betas)
            first, last = max(np.floor(first), 0), min(np.ceil(last), head_dim - 1)
            ramp = np.clip((pair - first) / max(last - first, 0.001), 0, 1)
            freq = freq * (1 - ramp) + freq / factor * ramp
            scale = 1 + 0.1 * np.log(factor)
        freq = freq / self.w.get("rope_freqs.weight", 1.0)
        angle = (np.arange(n)[:, None] * freq)[:, None]
        return np.cos(angle) * scale, np.sin(angle) * scale

    def rope(self, x, cos, sin):
        """x [n, heads, head_dim]: llama rotates neighbours (2i, 2i+1), the qwen family (i, i + head_dim / 2)."""
        half = x.shape[-1] // 2
        even, odd = (slice(0, None, 2), slice(1, None, 2)) if self.arch == "llama" else (slice(half), slice(half, None))
        a, b, out = x[..., even], x[..., odd], np.empty_like(x)
        out[..., even], out[..., odd] = a * cos - b * sin, a * sin + b * cos
        return out

    def attention(self, p, x):
        n, n_heads, n_kv = len(x), self.key("attention.head_count"), self.key("attention.head_count_kv")
        head_dim = self.key("attention.key_length", self.key("embedding_length") // n_heads)
        q, k, v = (self.linear(f"{p}.attn_{c}", x).reshape(n, -1, head_dim) for c in "qkv")
        if f"{p}.attn_q_norm.weight" in self.w:
            q, k = self.norm(f"{p}.attn_q_norm", q), self.norm(f"{p}.attn_k_norm", k)
        tables = self.rope_tables(n, head_dim)
        q, k = self.rope(q, *tables), self.rope(k, *tables)
        k, v = (np.repeat(a, n_heads // n_kv, axis=1) for a in (k, v))
        behind = np.arange(n)[:, None] - np.arange(n)  # distance from the query back to the key
        seen = (behind >= 0) & (behind < self.key("attention.sliding_window", n))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head_dim) + np.where(seen, 0.0, -np.inf)
        prob = np.exp(scores - scores.max(-1, keepdims=True))
        prob /= prob.sum(-1, keepdims=True)
        return self.linear(f"{p}.attn_output", np.einsum("hqk,khd->qhd", prob, v).reshape(n, -1))

    def forward(self, tokens):
        x = self.w["token_embd.weight"][tokens]
        for i in range(self.key("block_count")):
            p = f"blk.{i}"
            x = x + self.attention(p, self.norm(f"{p}.attn_norm", x))
            h = self.norm(f"{p}.ffn_norm", x)
            gate = self.linear(f"{p}.ffn_gate", h)
            x = x + self.linear(f"{p}.ffn_down", gate / (1 + np.exp(-gate)) * self.linear(f"{p}.ffn_up", h))
        return self.linear("output" if "output.weight" in self.w else "token_embd", self.norm("output_norm", x))


def check(path):
    golden = json.loads(path.with_suffix(".json").read_text())
    logits = np.load(path.with_name(golden["logits"]))
    tokens, greedy = golden["tokens"], golden["greedy"]
    ours = Model(path).forward(np.array(tokens + greedy))
    error = np.abs(ours[:len(tokens)] - logits).max()
    same = np.array_equal(ours[len(tokens) - 1:-1].argmax(-1), greedy)
    print(f"{path.name:24} max abs error {error:.2e}, greedy {'equal' if same else 'DIFFERS'}")
    return error < 1e-4 and same


if __name__ == "__main__":
    sys.exit(0 if all([check(pathlib.Path(p)) for p in sys.argv[1:]]) else 1)

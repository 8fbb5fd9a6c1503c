#!/usr/bin/env python3
"""Writes tests/data/models/rope.cases: rope frequencies of Hugging Face transformers, for every kind of scaling.

    pip install -r tools/goldens/requirements.txt && python tools/goldens/make_rope.py
"""
import json
import pathlib
import warnings

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/models/rope.cases"
LONG = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5], long_factor=[1.0, 1.5, 2.5, 4.0, 8.0, 16.0, 31.0, 60.0])
CASES = [  # head_dim, theta, context the model was trained for, context it runs with, parameters
    (64, 1e4, 2048, 2048, dict(rope_type="linear", factor=4.0)),
    (96, 5e5, 4096, 9000, dict(rope_type="linear", factor=2.5)),
    (64, 1e4, 2048, 2000, dict(rope_type="dynamic", factor=2.0)),
    (64, 1e4, 2048, 5000, dict(rope_type="dynamic", factor=2.0)),
    (128, 1e6, 4096, 32768, dict(rope_type="dynamic", factor=8.0)),
    (128, 5e5, 8192, 8192, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)),
    (64, 5e5, 8192, 8192, dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0)),
    (128, 1e6, 32768, 32768, dict(rope_type="yarn", factor=4.0)),
    (64, 150000.0, 4096, 4096, dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False)),
    (64, 1e4, 4096, 4096, dict(rope_type="yarn", factor=40.0, beta_fast=32.0, beta_slow=1.0)),
    (16, 1e4, 4096, 4096, LONG),
    (16, 1e4, 4096, 20000, LONG),
]


def main():
    warnings.filterwarnings("ignore")
    rows = []
    for head_dim, theta, original, n_ctx, parameters in CASES:
        kind = parameters["rope_type"]
        # For the dynamic kind, the context of training is max_position_embeddings.
        stretched = original if kind == "dynamic" else int(original * parameters.get("factor", 8.0))
        rope = {**parameters, "rope_theta": theta}
        if kind not in ("linear", "dynamic"):
            rope["original_max_position_embeddings"] = original
        config = LlamaConfig(hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, max_position_embeddings=stretched,
                             rope_parameters=rope)
        inv_freq, _ = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=n_ctx)
        rows.append({**rope, "original": original, "n_ctx": n_ctx, "inv_freq": [float(f"{f:.9g}") for f in inv_freq.tolist()]})
    OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()

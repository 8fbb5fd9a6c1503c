#!/usr/bin/env python3
"""Makes tests/data/zamba2: a tiny Zamba 2 with random weights, and the results of Hugging Face transformers.

llama.cpp does not know the family, so there is only a directory as transformers saves it. Beside it are logits.npy
(float32 [n_tokens, vocab], at every position of the prompt) and expected.json (the prompt, a greedy continuation, seed
and versions). Matrices hold what F16 can store. Two sets of shared weights serve three layers, each with adapters.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_zamba2.py [-o tests/data/zamba2]
"""
import copy
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch
import transformers
from transformers import Zamba2Config, Zamba2ForCausalLM

from makers import make_all, write_sidecar

N_GREEDY, N_CANDIDATES, MIN_MARGIN = 32, 64, 1e-3
MAX_ROUNDING = 1e-4  # how far logits in float64 may lie from those in float32; with larger weights, layers amplify roundings


@dataclass
class Spec:
    name: str
    n_tokens: int = 70  # longer than a chunk of 64
    vocab: int = 48


def make_model(spec):
    config = Zamba2Config(
        vocab_size=spec.vocab, hidden_size=16, num_hidden_layers=4, intermediate_size=24, num_attention_heads=2, num_key_value_heads=2, hidden_act="gelu",
        layers_block_type=["linear_attention", "hybrid", "hybrid", "hybrid"], num_mem_blocks=2, adapter_rank=3,
        use_shared_attention_adapter=True, use_mem_rope=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        mamba_d_state=6, mamba_d_conv=4, mamba_expand=2, mamba_ngroups=2, n_mamba_heads=4, chunk_size=8, time_step_min=0.1, max_position_embeddings=256,
        pad_token_id=0, bos_token_id=1, eos_token_id=2)
    return Zamba2ForCausalLM._from_config(config, attn_implementation="eager").eval().float()


@torch.no_grad()
def fill(model, rng):
    for name, w in model.named_parameters():
        values = rng.standard_normal(tuple(w.shape))
        if name.endswith("norm.weight"):
            values = 1 + 0.2 * values
        elif name.endswith("A_log"):
            values = 0.5 * values
        elif name.endswith(".D"):
            values = 1 + 0.5 * values
        elif name.endswith(("dt_bias", "bias", "conv1d.weight")):
            values = 0.5 * values
        elif name.endswith("embed_tokens.weight"):
            values = 0.6 * values
        else:
            values = (w.shape[-1]**-0.5 * values).astype(np.float16)
        w.copy_(torch.from_numpy(values.astype(np.float16 if name.endswith("embed_tokens.weight") else np.float32)).float())


@torch.inference_mode()
def greedy_of(model, prompt):
    tokens, margin = list(prompt), float("inf")
    for _ in range(N_GREEDY):
        top = model(torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
        margin = min(margin, float(top.values[0] - top.values[1]))
        tokens.append(int(top.indices[0]))
    return tokens[len(prompt):], margin


@torch.inference_mode()
def rounding_of(model, prompt):
    tokens = torch.tensor([prompt])
    exact = copy.deepcopy(model).double()(tokens, use_cache=False).logits
    return float((exact - model(tokens, use_cache=False).logits).abs().max())


def make_golden(spec, seed, out):
    rng = np.random.default_rng(seed)
    model = make_model(spec)
    fill(model, rng)
    best = None
    for prompt in rng.integers(3, spec.vocab, (N_CANDIDATES, spec.n_tokens)).tolist():
        greedy, margin = greedy_of(model, prompt)
        if 2 in greedy or len(set(greedy)) < 5 or (best and margin <= best[2]):
            continue
        if rounding_of(model, prompt + greedy) < MAX_ROUNDING:
            best = prompt, greedy, margin
    assert best and best[2] > MIN_MARGIN, best and best[2]
    prompt, greedy, margin = best
    state = {k: v.half() if v.dim() == 2 else v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    model.config.dtype = torch.float16
    model.save_pretrained(out, state_dict=state)
    (out / "generation_config.json").unlink(missing_ok=True)
    again = Zamba2ForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        logits = again(torch.tensor([prompt]), use_cache=False).logits[0].numpy()
        assert np.abs(model(torch.tensor([prompt]), use_cache=False).logits[0].numpy() - logits).max() < 1e-5
    np.save(out / "logits.npy", logits)
    for file in out.iterdir():
        file.chmod(0o644)
    write_sidecar(out / "expected.json", {
        "tokens": prompt, "greedy": greedy, "greedy_margin": round(margin, 5), "seed": seed, "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__, "numpy": version("numpy")})
    print(f"{spec.name}: logits std {logits.std():.2f}, greedy margin {margin:.4f}, {sum(f.stat().st_size for f in out.iterdir()) / 1024:.0f} KiB")


if __name__ == "__main__":
    make_all(__doc__, [Spec("zamba2")], make_golden, 7100, "tests/data/zamba2")

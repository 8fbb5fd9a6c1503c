#!/usr/bin/env python3
"""Makes tests/data/config_cases.json: what transformers computes if a config.json lacks a key, has null for it, or has
a key of another family.

For each directory of tests/data/hf and each case, the result is "same" (the logits are those of the unchanged file), a
list of every STRIDE-th logit of the last token, or nothing if transformers refuses the file or lacks weights. The key
of a case is "-KEY" for a missing key, "0KEY" for null, and "+KEY=VALUE" for an added or changed key.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_config_cases.py . [NAME ...]
"""
import copy
import json
import sys
import warnings
from pathlib import Path

import torch
import transformers
from more_models import class_of
from transformers import AutoConfig

STRIDE = 23
TOLERANCE = 2e-5
NOT_OF_THE_MODEL = {"architectures", "dtype", "torch_dtype", "transformers_version", "use_cache", "bos_token_id", "eos_token_id",
                    "pad_token_id", "initializer_range", "attention_dropout", "model_type", "output_router_logits",
                    "router_aux_loss_coef", "pretraining_tp", "resid_pdrop", "embd_pdrop", "router_jitter_noise", "mlp_bias",
                    "residual_dropout", "ep_size", "aux_loss_alpha", "seq_aux", "use_mtp"}
ADDED = {"partial_rotary_factor": 0.5, "rotary_dim": 4, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
         "query_pre_attn_scalar": 5, "embedding_multiplier": 2.0, "attention_multiplier": 0.4, "residual_multiplier": 0.5,
         "logits_scaling": 2.0, "sliding_window": 9, "max_window_layers": 1, "use_sliding_window": True,
         "norm_topk_prob": False, "routed_scaling_factor": 3.0, "scoring_func": "softmax", "n_group": 2, "topk_group": 1,
         "topk_method": "greedy", "first_k_dense_replace": 1, "decoder_sparse_step": 2, "mlp_only_layers": [0],
         "no_rope_layer_interval": 2, "no_rope_layers": "zeros", "layer_types": "full", "rope_interleave": False,
         "swiglu_limit": 3.0, "sliding_window_pattern": 2, "full_attention_interval": 2, "rope_local_base_freq": 500.0,
         "clip_qkv": 0.1, "original_max_position_embeddings": 16, "attention_bias": False, "hidden_activation": "relu",
         "num_experts_per_tok": 1, "use_bidirectional_attention": False, "n_shared_experts": 1}

CHANGED = {"rope_interleave", "norm_topk_prob", "routed_scaling_factor", "use_sliding_window"}  # changed if present


def cases(config):
    for key in config:
        if key not in NOT_OF_THE_MODEL:
            yield "-" + key, {k: v for k, v in config.items() if k != key}
            if config[key] is not None:
                yield "0" + key, config | {key: None}
    rope = "rope_parameters" if "rope_parameters" in config else "rope_scaling"
    for key in config.get(rope) or {}:
        changed = copy.deepcopy(config)
        del changed[rope][key]
        yield f"-{rope}/{key}", changed
    for key, value in ADDED.items():
        if config.get(key) is None or (key in CHANGED and config[key] != value):
            n = config.get("num_hidden_layers") or len(config.get("layers_block_type") or config["hybrid_override_pattern"])
            value = [0] * n if value == "zeros" else ["full_attention"] * n if value == "full" else value
            yield f"+{key}={json.dumps(value)}", config | {key: value}


class Reference:
    def __init__(self, folder, tokens):
        self.tokens = torch.tensor([tokens])
        # transformers writes infinity as {"__float__": "Infinity"}
        self.config = json.loads((folder / "config.json").read_text(), object_hook=lambda o: float(o["__float__"]) if "__float__" in o else o)
        self.weights = class_of(AutoConfig.from_pretrained(folder)).from_pretrained(folder, dtype=torch.float32).state_dict()

    def logits(self, config):
        """Logits of the last token; None if transformers refuses the config or has no weights for it."""
        try:
            parsed = AutoConfig.for_model(config["model_type"]).__class__.from_dict(copy.deepcopy(config))
            parsed._attn_implementation = "eager"
            with torch.no_grad():
                model = class_of(parsed)._from_config(parsed, dtype=torch.float32).eval()
                missing, _ = model.load_state_dict(self.weights, strict=False)
                if any("rotary_emb" not in name and not (name == "lm_head.weight" and parsed.tie_word_embeddings) for name in missing):
                    return None
                model.tie_weights()
                return model(self.tokens, use_cache=False).logits[0, -1].double()
        except Exception:  # of any kind: only the lack of logits matters
            return None


def main(root, names):
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    path = root / "tests/data/config_cases.json"
    out = json.loads(path.read_text()) if names and path.exists() else {}
    for folder in sorted((root / "tests/data/hf").iterdir()):
        if names and folder.name not in names:
            continue
        tokens = json.loads((root / "tests/data/models" / f"{folder.name}.json").read_text())["tokens"]
        reference = Reference(folder, tokens)
        usual = reference.logits(reference.config)
        answers = {}
        for case, config in cases(reference.config):
            logits = reference.logits(config)
            if logits is None or not torch.isfinite(logits).all():
                continue
            same = logits.shape == usual.shape and (logits - usual).abs().max() < TOLERANCE
            answers[case] = "same" if same else [float(f"{x:.5g}") for x in logits[::STRIDE].tolist()]
        out[folder.name] = answers
        print(folder.name, len(answers), sum(a != "same" for a in answers.values()), flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(out[name], separators=(',', ':'))}" for name in sorted(out)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

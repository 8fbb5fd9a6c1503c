#!/usr/bin/env python3
"""Shows how far ingot is from running a family of models that transformers has (docs/add-a-model.md).

    python tools/new_model.py DIR-or-config.json [--set KEY=JSON ...] [--seeds 3] [--golden NAME]

Prints the keys of the config that ingot reads and those that it does not, and proposes a row of the table of
architectures. Then shrinks the config, makes tiny checkpoints with random weights of several seeds, and compares
ingot's logits with those of transformers, for prompts of 5, 40 and 300 tokens, in steps of 1, 7 and 64 tokens, on the
backends ref and cpu, and again after ingot has converted the checkpoint to GGUF. If logits differ, checkpoints with
fewer layers show the first layer that differs, and a layer without the output of its mixer or of its feed-forward
shows which of the two. --golden writes the last checkpoint to tests/data/hf/NAME with its logits.

    pip install -r tools/goldens/requirements.txt
"""
import argparse
import copy
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/goldens"))
from more_models import class_of  # noqa: E402
from tiny_tokenizer import hf_tokenizer  # noqa: E402

TOLERANCE = 1e-4
LENGTHS, CHUNKS = (5, 40, 300), (1, 7, 64)
# Sizes of a tiny model. A key that the config lacks is not added.
TINY = {"vocab_size": 261, "hidden_size": 48, "intermediate_size": 72, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 512, "sliding_window": 24, "moe_intermediate_size": 40, "num_experts": 6, "num_local_experts": 6,
        "n_routed_experts": 6, "q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
        "vocab_size_per_layer_input": 261, "hidden_size_per_layer_input": 12,
        "pad_token_id": None, "bos_token_id": 259, "eos_token_id": 260}
N_LAYERS = 4
# Keys that change no logits.
NO_EFFECT = re.compile(r"(_token_id|_token_index|dropout|_aux_loss.*|router_aux.*|jitter.*)$|^(architectures|auto_map|dtype|torch_dtype|initializer_.*|id2label|label2id|"
                       r"model_type|output_.*|problem_type|pretraining_tp|return_dict|tokenizer_class|transformers_version|use_cache|"
                       r"chunk_size_feed_forward|is_encoder_decoder|_name_or_path|finetuning_task|torchscript|.*_plan|quantization.*|"
                       r"attn_implementation|experts_implementation|vision_config|audio_config)$")


def known_keys(model_type):
    """The keys of config.json that ingot reads for all families, and for this family (None if it has no row)."""
    reader = (ROOT / "src/io/huggingface/config.cc").read_text()
    common = set(re.findall(r'"(\w+)"', reader[reader.index("kOfAllFamilies[] = {"):].split("};")[0]))
    table = (ROOT / "src/model/config/arch.cc").read_text()
    macros = dict(re.findall(r'#define (\w+) (.*)', table))
    row = re.search(r'\{[^{}]*\.hf_name = "%s".*?hf_defaults =(.*?)\},\n' % re.escape(model_type), table, re.S)
    if row is None:
        return common, None
    text = row.group(1)
    for _ in macros:
        text = re.sub(r"\b([A-Z][A-Z0-9]+)\b", lambda m: macros.get(m.group(1), ""), text)
    for name in re.findall(r"k\w+", text):  # constants with keys
        if m := re.search(r'%s = (.*?);\n' % name, table, re.S):
            text += re.sub(r"\b([A-Z][A-Z0-9]+)\b", lambda k: macros.get(k.group(1), ""), m.group(1))
    others = re.findall(r'\{"(\w+)", "(\w+)"\}', reader)
    keys = set(re.findall(r'"(\w+)":', text))
    return common | {other for usual, other in others if usual in common | keys}, keys


def report_keys(config, cls):
    """Prints which keys that differ from the class's defaults, or exist only in this family, ingot reads."""
    common, own = known_keys(config["model_type"])
    known = common | (own or set())
    unknown = sorted(k for k in config if k not in known and not NO_EFFECT.search(k))
    print(f"model_type {config['model_type']}: {'ingot has a row' if own is not None else 'ingot has no row'}")
    print("known keys:  ", ", ".join(sorted(k for k in config if k in known)))
    print("unknown keys:", ", ".join(f"{k}={json.dumps(config[k])}" for k in unknown) or "none")
    if own is None:
        propose_row(config, cls)


def propose_row(config, model):
    """A row for --arch, guessed from the config and from the names of the parameters."""
    names = {re.sub(r"\.\d+\.", ".0.", n) for n, _ in model.named_parameters()}
    has = lambda part: any(part in n for n in names)
    row = {"gguf_name": config["model_type"].replace("_", "-"), "hf_name": config["model_type"]}
    act = config.get("hidden_activation") or config.get("hidden_act") or "silu"
    if act.startswith("gelu"):
        row["activation"] = "gelu_tanh" if act != "gelu" else "gelu"
    if any(n.endswith("norm.bias") for n in names):
        row["norm"] = "layer"
    if not has("gate_proj") and not has("gate_up") and not has("experts"):
        row["gated"] = False
    if has("qkv_proj"):
        row["fused"] = True
    if has("post_feedforward_layernorm"):
        row["post_norms"] = True
    if not has("input_layernorm"):
        row["pre_norms"] = False
    norm = next((p for n, p in model.named_parameters() if n.endswith("model.norm.weight") or n == "norm.weight"), None)
    if norm is not None and float(norm.mean()) == 0:
        row["norm_weight_plus_one"] = True
    usual = {k for k in known_keys("llama")[0]}
    row["hf_defaults"] = json.dumps({k: v for k, v in config.items() if k not in usual and not NO_EFFECT.search(k)})
    print("a row for --arch, to be checked:\n" + json.dumps(row, indent=2))


def shrink(config, sets):
    tiny = {k: v for k, v in config.items() if k not in ("quantization_config",)}
    for key, value in TINY.items():
        if tiny.get(key) is not None or key.endswith("token_id") or (key == "head_dim" and key in tiny):
            tiny[key] = value
    if config.get("head_dim") and config.get("qk_rope_head_dim"):  # keeps the share of a head that rope rotates
        tiny["head_dim"] = tiny["qk_rope_head_dim"] * config["head_dim"] // config["qk_rope_head_dim"]
    if config.get("kv_lora_rank"):
        tiny["num_key_value_heads"] = tiny["num_attention_heads"]
    n = tiny["num_hidden_layers"]
    for key, value in list(tiny.items()):
        if isinstance(value, list) and len(value) == n and n > N_LAYERS:
            tiny[key] = value[:N_LAYERS - 1] + value[-1:]
        elif key == "per_layer_config" and value:
            tiny[key] = {min(int(i), N_LAYERS - 1): v for i, v in value.items() if int(i) < N_LAYERS - 1 or int(i) == n - 1}
    tiny["num_hidden_layers"] = min(n, N_LAYERS)
    for one in sets:
        key, value = one.split("=", 1)
        tiny[key] = json.loads(value)
    return tiny


def fill(model, seed):
    """Random weights: vectors near their first values, and matrices that keep the size of their input."""
    generator = torch.Generator().manual_seed(seed)
    buffers = [(n, b) for n, b in model.named_buffers() if n.endswith(("layer_scalar", "e_score_correction_bias", "expert_bias"))]
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *buffers]:
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() < 2 or p.shape[0] == p.numel():
                p.copy_(torch.ones_like(p) * (p.float().mean() if torch.isfinite(p).all() else 1.0) + 0.25 * noise)
            elif "embed" in name or "lm_head" in name:
                p.copy_(noise * (1.5 / math.sqrt(p.shape[1]) if "lm_head" in name or model.config.tie_word_embeddings else 1.0))
            else:
                p.copy_(noise * 1.3 / math.sqrt(p.shape[-1]))
    return model


def layer_of(name):
    match = re.search(r"\.(?:layers|h)\.(\d+)\.", name)
    return int(match.group(1)) if match else -1


class Checker:
    def __init__(self, args, config):
        self.args, self.config = args, config
        self.n_failed = 0

    def make(self, config):
        """A model of transformers with the config's own class."""
        made = transformers.AutoConfig.for_model(**copy.deepcopy(config))
        made._attn_implementation = "eager"
        return class_of(made)._from_config(made, dtype=torch.float32, attn_implementation="eager").eval()

    @torch.inference_mode()
    def logits(self, model, tokens):
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()

    def ingot(self, path, tokens, *flags):
        out = pathlib.Path(self.work) / "logits.npy"
        run = subprocess.run([self.args.ingot, "logits", path, "--all", "--tokens", ",".join(map(str, tokens)), "-o", out, "--kv-type", "f32", *flags],
                             capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"ingot logits {path}: {run.stderr.strip()}")
        return np.load(out)

    def save(self, model, folder, n_layers=None, without=None):
        """Saves the model, or its first layers, or the model without the output of a part of the last layer."""
        state, config = model.state_dict(), model.config
        if n_layers is not None:
            state = {k: v for k, v in state.items() if layer_of("." + k) < n_layers}
        if without is not None:
            state = {k: (torch.zeros_like(v) if layer_of("." + k) == n_layers - 1 and without.search(k) else v) for k, v in state.items()}
        model.save_pretrained(folder, state_dict=state)
        if n_layers is not None:
            path = folder / "config.json"
            keys = json.loads(path.read_text())
            for key, value in list(keys.items()):
                if isinstance(value, list) and len(value) == config.num_hidden_layers:
                    keys[key] = value[:n_layers]
                elif key == "per_layer_config" and value:
                    keys[key] = {i: v for i, v in value.items() if int(i) < n_layers}
            keys["num_hidden_layers"] = n_layers
            path.write_text(json.dumps(keys))
            add_tokenizer(folder, self.config["vocab_size"])
            return type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        return model

    def locate(self, model, tokens):
        """Finds the first layer whose output differs, and which half of it."""
        for n in range(1, model.config.num_hidden_layers + 1):
            folder = pathlib.Path(self.work) / f"first{n}"
            try:
                part = self.save(model, folder, n)
                error = np.abs(self.ingot(folder, tokens, "--device", "ref") - self.logits(part, tokens)).max()
            except Exception as problem:  # a family may not allow every number of layers
                print(f"  with {n} layers: {str(problem).splitlines()[0]}")
                continue
            print(f"  with {n} layers: largest difference {error:.1e}")
            if error < TOLERANCE:
                continue
            for name, pattern in (("feed-forward", r"(down_proj|w2|fc2|mlp.*(dense_4h_to_h|c_proj|output_linear))"), ("mixer", r"(o_proj|out_proj|attn.*(dense|c_proj))")):
                half = self.save(model, folder, n, re.compile(pattern))
                error = np.abs(self.ingot(folder, tokens, "--device", "ref") - self.logits(half, tokens)).max()
                print(f"  layer {n - 1} without the output of its {name}: {error:.1e}")
            return

    def run(self):
        for seed in range(self.args.seeds):
            with tempfile.TemporaryDirectory() as self.work:
                model = fill(self.make(self.config), seed)
                folder = pathlib.Path(self.work) / "model"
                self.save(model, folder)
                add_tokenizer(folder, self.config["vocab_size"])
                gguf = pathlib.Path(self.work) / "model.gguf"
                if not self.args.no_gguf:
                    run = subprocess.run([self.args.ingot, "convert", folder, gguf], capture_output=True, text=True)
                    if run.returncode:
                        print(f"seed {seed}: convert: {run.stderr.strip()}")
                        self.n_failed += 1
                rng = np.random.default_rng(seed)
                for n in LENGTHS:
                    if n > self.config["max_position_embeddings"]:
                        continue
                    tokens = rng.integers(0, self.config["vocab_size"] - 4, n).tolist()
                    expected = self.logits(model, tokens)
                    if not self.compare(seed, n, tokens, expected, folder, gguf, model):
                        self.locate(model, tokens)
                        return
                if self.args.golden and seed == self.args.seeds - 1:
                    self.write_golden(model, rng)

    def rounding(self, model, tokens, expected):
        """By how much transformers' own logits differ if the same weights are multiplied in float64."""
        return np.abs(self.logits(copy.deepcopy(model).double(), tokens) - expected).max()

    def compare(self, seed, n, tokens, expected, folder, gguf, model):
        ways = [("ref", folder, ("--device", "ref"))]
        ways += [(f"cpu, steps of {c}", folder, ("--device", "cpu", "--deterministic", "--chunk", str(c))) for c in CHUNKS]
        if gguf.exists():
            ways += [("GGUF on cpu", gguf, ("--device", "cpu", "--deterministic"))]
        good, errors, limit = True, [], TOLERANCE
        for name, path, flags in ways:
            error = np.abs(self.ingot(path, tokens, *flags) - expected).max()
            errors.append(f"{name} {error:.1e}")
            if limit <= error < 10 * TOLERANCE and limit == TOLERANCE:
                rounding = self.rounding(model, tokens, expected)
                errors.append(f"(transformers' own rounding {rounding:.1e})")
                limit = max(TOLERANCE, 2 * rounding)
            if not error < limit:
                good = False
                break
        print(f"seed {seed}, {n} tokens, logits of std {expected.std():.2f}: " + ", ".join(errors) + ("" if good else "  DIFFERS"))
        self.n_failed += not good
        return good

    def write_golden(self, model, rng):
        folder = ROOT / "tests/data/hf" / self.args.golden
        self.save(model.half().float(), folder)
        tokens = rng.integers(0, self.config["vocab_size"] - 4, 60).tolist()
        add_tokenizer(folder, self.config["vocab_size"])
        np.save(folder / "logits.npy", self.logits(model, tokens))
        (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
        print(f"wrote {folder}")


def add_tokenizer(folder, vocab):
    hf_tokenizer(vocab).save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="a directory with config.json, the file itself, or a model_type of transformers")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a key of the tiny config")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ingot", default=str(ROOT / "build/ingot"))
    parser.add_argument("--golden", metavar="NAME", help="write the last checkpoint to tests/data/hf/NAME")
    parser.add_argument("--no-gguf", action="store_true", help="do not convert the checkpoint to GGUF")
    parser.add_argument("--keys", action="store_true", help="only print the keys and the row")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(2)
    path = pathlib.Path(args.config)
    if path.exists():
        config = json.loads((path / "config.json" if path.is_dir() else path).read_text())
    else:
        config = json.loads(transformers.AutoConfig.for_model(args.config).to_json_string(use_diff=False))
    if "hidden_size" not in config and "text_config" in config:
        config = config["text_config"]
    tiny = shrink(config, args.set)
    checker = Checker(args, tiny)
    report_keys(config, checker.make(tiny))
    if args.keys:
        return
    checker.run()
    sys.exit(checker.n_failed > 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the tiny models with draft heads of tests/data/heads, and the guesses of the heads.

transformers has no class for draft heads. So a head is made of transformers' layers as the published code of its family
runs it: DeepSeek V3's report (arXiv:2412.19437, 2.2) and vLLM's deepseek_mtp, qwen3_next_mtp, mimo_mtp and llama_eagle3.

Each row of HEADS becomes a folder NAME: config.json, model.safetensors and the tokenizer of the model with its head,
and expected.json. A row with `gguf` also becomes NAME.gguf with the same weights, in the layout of llama.cpp's
converters. An EAGLE-3 head has a separate folder, NAME_head. expected.json has the prompt, the model's greedy token
after the prompt, and the four tokens that the head guesses after that token. head.npy has the head's logits after each
token of the prompt except the last.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_draft_heads.py [-o tests/data/heads] [NAME ...]
"""
import copy
import json
from dataclasses import dataclass, field

import numpy as np
import safetensors.torch
import torch
import transformers
from gguf import GGMLQuantizationType as QT
from make_models import fill_weights, hf_tokenizer, make_model, write_gguf
from specs import DELTA, DELTA_MOE, F16, LATENT, QWEN_NEXT, Spec
from makers import make_all, write_sidecar
from transformers import (DeepseekV3Config, Glm4MoeConfig, LlamaConfig, Qwen2Config, Qwen3_5TextConfig, Qwen3MoeConfig,
                          Qwen3NextConfig)
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

N_GUESSES = 4
N_CANDIDATES = 64  # prompts tried; the one with the clearest guesses is used
MIN_MARGIN = 1e-2


@dataclass
class Layout:
    """The names of the head's tensors in a checkpoint, and the order of its computation. {n}: the number of the model's
    layers."""
    layer: str
    project: str = "model.layers.{n}.eh_proj"
    token_norm: str = "model.layers.{n}.enorm"
    hidden_norm: str = "model.layers.{n}.hnorm"
    final_norm: str = "model.layers.{n}.shared_head.norm"
    embedding: str = ""
    output: str = ""
    hidden_first: bool = False
    returns_normed: bool = False


DEEPSEEK = Layout("model.layers.{n}", embedding="model.layers.{n}.embed_tokens", output="model.layers.{n}.shared_head.head")
GLM = Layout("model.layers.{n}")
QWEN = Layout("mtp.layers.0", "mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", returns_normed=True)
MIMO = Layout("model.mtp_layers.0", "model.mtp_layers.0.input_proj", "model.mtp_layers.0.token_layernorm",
              "model.mtp_layers.0.hidden_layernorm", "model.mtp_layers.0.final_layernorm", hidden_first=True, returns_normed=True)
NEXTN = {"project": "eh_proj", "token_norm": "enorm", "hidden_norm": "hnorm", "final_norm": "shared_head_norm",
         "embedding": "embed_tokens", "output": "shared_head_head"}


@dataclass
class Head:
    """spec: the model; for MTP, its last layer is the head's."""
    spec: Spec
    layout: Layout | None = None  # None: EAGLE-3
    gguf: bool = False
    model_type: str = ""  # in config.json, if transformers has no such type
    extra: dict = field(default_factory=dict)  # more keys of config.json

    @property
    def name(self):
        return self.spec.name


def types(*kinds):
    return ["full_attention" if kind == "f" else "linear_attention" for kind in kinds]


MOE = dict(n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1)
HEADS = [
    Head(Spec("llama_nextn", LlamaConfig, 37, 261, F16, dim=32, n_heads=4, n_kv_heads=2, n_layers=3), GLM, gguf=True),
    Head(Spec("glm4_moe", Glm4MoeConfig, 39, 263, F16, dict(rope_theta=1e6, partial_rotary_factor=0.5), dim=32, n_heads=4,
              n_kv_heads=2, head_dim=12, ffn=40, n_layers=3, extra=MOE | dict(
                  moe_intermediate_size=24, routed_scaling_factor=1.5, attention_bias=True, use_qk_norm=True)), GLM, gguf=True,
         extra=dict(num_nextn_predict_layers=1)),
    Head(Spec("deepseek3", DeepseekV3Config, 41, 265, F16, dict(rope_theta=1e4), dim=32, n_heads=4, n_kv_heads=4, head_dim=8,
              ffn=40, eps=1e-6, n_layers=3, extra=LATENT | MOE | dict(n_group=3, topk_group=2, norm_topk_prob=True,
                                                                    routed_scaling_factor=2.0)), DEEPSEEK, gguf=True,
         extra=dict(num_nextn_predict_layers=1)),
    Head(Spec("qwen3next", Qwen3NextConfig, 43, 261, F16, QWEN_NEXT, dim=32, n_heads=2, n_kv_heads=1, head_dim=24, ffn=40, eps=1e-6,
              n_layers=3, extra=DELTA_MOE | dict(layer_types=types(*"lff"))), QWEN),
    Head(Spec("qwen35", Qwen3_5TextConfig, 45, 263, F16, QWEN_NEXT, dim=32, n_heads=2, n_kv_heads=1, head_dim=24, ffn=40, eps=1e-6,
              n_layers=3, tied=True, extra=DELTA | dict(layer_types=types(*"lff"))), QWEN, gguf=True,
         extra=dict(mtp_num_hidden_layers=1)),
    Head(Spec("mimo", Qwen2Config, 47, 265, F16, dict(rope_theta=6e5), dim=32, n_heads=4, n_kv_heads=2, ffn=40, n_layers=3), MIMO,
         model_type="mimo", extra=dict(num_nextn_predict_layers=1)),
    Head(Spec("eagle3", LlamaConfig, 42, 261, F16, dict(rope_theta=2e4), dim=32, n_heads=4, n_kv_heads=2, ffn=24, n_layers=8)),
    Head(Spec("eagle3_moe", Qwen3MoeConfig, 40, 263, F16, dict(rope_theta=1e6), dim=32, n_heads=4, n_kv_heads=1, head_dim=16, ffn=40,
              n_layers=7, extra=dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True)),
         extra=dict(norm_before_residual=True, eagle_config=dict(eagle_aux_hidden_state_layer_ids=[1, 4, 6]))),
]
N_DRAFT_VOCAB = 97  # tokens in the vocabulary of an EAGLE-3 head


class RmsNorm(torch.nn.Module):
    def __init__(self, weight, eps):
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def half(x):
    return torch.from_numpy(np.asarray(x, np.float32)).half().float()


def run_layer(model, layer, x):
    """A layer of transformers over all rows of x [n, dim], each of which sees the rows before it."""
    n = x.shape[0]
    positions = torch.arange(n)[None]
    mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
    out = layer(x[None], attention_mask=mask, position_ids=positions, position_embeddings=model.model.rotary_emb(x[None], positions))
    return (out[0] if isinstance(out, tuple) else out)[0]


class MtpHead:
    def __init__(self, head, model, layer, rng):
        c, std = model.config, 1.3 / np.sqrt(2 * model.config.hidden_size)
        self.head, self.model, self.layer, self.layout = head, model, layer, head.layout
        self.w = {"project": half(std * rng.standard_normal((c.hidden_size, 2 * c.hidden_size)))}
        for name in ("token_norm", "hidden_norm", "final_norm"):
            self.w[name] = torch.from_numpy((1 + 0.3 * rng.standard_normal(c.hidden_size)).astype(np.float32))
        if self.layout.embedding:
            self.w["embedding"] = half(rng.standard_normal((c.vocab_size, c.hidden_size)))
            self.w["output"] = half(2.0 / np.sqrt(c.hidden_size) * rng.standard_normal((c.vocab_size, c.hidden_size)))
        self.norms = {n: RmsNorm(self.w[n], c.rms_norm_eps) for n in ("token_norm", "hidden_norm", "final_norm")}
        self.embedding = self.w.get("embedding", model.get_input_embeddings().weight)
        self.output = self.w.get("output", model.get_output_embeddings().weight)

    def hidden(self, ids):
        """The head's input from the model: the last hidden states after the final norm."""
        return self.model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]

    def guesses(self, ids, next_ids):
        """The head's hidden states and logits after rows with hidden states of `ids` and the tokens `next_ids`; then the
        guesses after the last row -> (logits [n, vocab], tokens, smallest margin)."""
        hidden, tokens, margins = self.hidden(ids), list(next_ids), []
        first = None
        for _ in range(N_GUESSES):
            e = self.norms["token_norm"](self.embedding[torch.tensor(tokens)])
            h = self.norms["hidden_norm"](hidden)
            pair = torch.cat([h, e] if self.layout.hidden_first else [e, h], -1)
            out = run_layer(self.model, self.layer, pair @ self.w["project"].T)
            normed = self.norms["final_norm"](out)
            logits = normed @ self.output.T
            first = logits if first is None else first
            top = logits[-1].topk(2)
            margins.append((top.values[0] - top.values[1]).item())
            tokens.append(top.indices[0].item())
            hidden = torch.cat([hidden, (normed if self.layout.returns_normed else out)[-1:]])
        return first, tokens[-N_GUESSES:], min(margins)


class EagleHead:
    """An EAGLE-3 head whose number of attention heads differs from the model's."""

    def __init__(self, head, model, rng):
        dim = model.config.hidden_size
        self.model = model
        self.config = LlamaConfig(vocab_size=head.spec.vocab, hidden_size=dim, intermediate_size=48, num_hidden_layers=1,
                                  num_attention_heads=2, num_key_value_heads=1, head_dim=24, max_position_embeddings=256,
                                  rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=3e4),
                                  tie_word_embeddings=False, attn_implementation="eager", architectures=["LlamaForCausalLMEagle3"])
        self.keeps_normed = head.extra.get("norm_before_residual", False)
        n = model.config.num_hidden_layers
        self.layers = head.extra.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids", [2, n // 2, n - 3])
        matrix = lambda rows, cols, gain=1.3: half(gain / np.sqrt(cols) * rng.standard_normal((rows, cols)))
        norm = lambda: torch.from_numpy((1 + 0.3 * rng.standard_normal(dim)).astype(np.float32))
        self.w = {"fc": matrix(dim, 3 * dim), "norm": norm(), "lm_head": matrix(N_DRAFT_VOCAB, dim, 2.0),
                  "midlayer.input_layernorm": norm(), "midlayer.hidden_norm": norm(), "midlayer.post_attention_layernorm": norm(),
                  "midlayer.self_attn.q_proj": matrix(48, 2 * dim), "midlayer.self_attn.k_proj": matrix(24, 2 * dim),
                  "midlayer.self_attn.v_proj": matrix(24, 2 * dim), "midlayer.self_attn.o_proj": matrix(dim, 48),
                  "midlayer.mlp.gate_proj": matrix(48, dim), "midlayer.mlp.up_proj": matrix(48, dim),
                  "midlayer.mlp.down_proj": matrix(dim, 48)}
        self.tokens = torch.from_numpy(np.sort(rng.choice(head.spec.vocab - 2, N_DRAFT_VOCAB, replace=False)))
        self.rotary = LlamaRotaryEmbedding(self.config)
        self.attention = LlamaAttention(self.config, 0).eval()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            linear = torch.nn.Linear(1, 1, bias=False)
            linear.weight = torch.nn.Parameter(self.w[f"midlayer.self_attn.{name}"])
            setattr(self.attention, name, linear)
        self.embedding = model.get_input_embeddings().weight

    def norm(self, name, x):
        return RmsNorm(self.w[name], self.config.rms_norm_eps)(x)

    def layer(self, hidden, tokens):
        n = hidden.shape[0]
        normed = self.norm("midlayer.hidden_norm", hidden)
        pair = torch.cat([self.norm("midlayer.input_layernorm", self.embedding[torch.tensor(tokens)]), normed], -1)
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        attended = self.attention(pair[None], position_embeddings=self.rotary(pair[None], positions), attention_mask=mask)[0][0]
        x = (normed if self.keeps_normed else hidden) + attended
        y = self.norm("midlayer.post_attention_layernorm", x)
        gate = torch.nn.functional.silu(y @ self.w["midlayer.mlp.gate_proj"].T)
        return x + (gate * (y @ self.w["midlayer.mlp.up_proj"].T)) @ self.w["midlayer.mlp.down_proj"].T

    def guesses(self, ids, next_ids):
        """As MtpHead.guesses; the tokens are the model's."""
        states = self.model.model(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
        hidden = torch.cat([states[i][0] for i in self.layers], -1) @ self.w["fc"].T  # states[i] is the input of layer i
        first, tokens, margins = None, list(next_ids), []
        for _ in range(N_GUESSES):
            out = self.layer(hidden, tokens)
            logits = self.norm("norm", out) @ self.w["lm_head"].T
            first = logits if first is None else first
            top = logits[-1].topk(2)
            margins.append((top.values[0] - top.values[1]).item())
            tokens.append(self.tokens[top.indices[0]].item())
            hidden = torch.cat([hidden, out[-1:]])
        return first, tokens[-N_GUESSES:], min(margins)

    def state(self, vocab):
        state = {f"{k}.weight": w.half() if w.dim() > 1 else w for k, w in self.w.items()}
        return state | {"d2t": self.tokens - torch.arange(N_DRAFT_VOCAB),
                        "t2d": torch.zeros(vocab, dtype=torch.bool).index_fill(0, self.tokens, True)}


def mtp_state(head, mtp, state, n):
    """The tensors of a checkpoint: the model's and the head's, by the layout's names."""
    old, new = f"model.layers.{n}.", head.layout.layer.format(n=n) + "."
    state = {(new + k[len(old):] if k.startswith(old) else k): v for k, v in state.items()}
    less_one = head.spec.name.startswith("qwen3")
    for name, w in mtp.w.items():
        stored = w - 1 if less_one and w.dim() == 1 else w.half() if w.dim() > 1 else w
        state[getattr(head.layout, name).format(n=n) + ".weight"] = stored.contiguous()
    return state


def write_directory(folder, head, config, state, extra):
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    keys = config.to_diff_dict() | {"dtype": "float16"} | extra
    if head.model_type:
        keys |= dict(model_type=head.model_type, architectures=["MiMoForCausalLM"])
    (folder / "config.json").write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")
    hf_tokenizer(head.spec.vocab).save_pretrained(folder)
    for name in ("chat_template.jinja", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)


@torch.inference_mode()
def choose_prompt(head, drafter, model, rng):
    """The prompt with the clearest guesses -> the contents of expected.json and head.npy."""
    best = None
    for _ in range(N_CANDIDATES):
        ids = rng.integers(0, head.spec.vocab - 2, head.spec.n_tokens).tolist()
        top = model(torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        greedy = top.indices[0].item()
        logits, tokens, margin = drafter.guesses(ids, ids[1:] + [greedy])
        margin = min(margin, (top.values[0] - top.values[1]).item())
        if best is None or margin > best[0]:
            best = margin, ids, greedy, tokens, logits[:-1]
    margin, ids, greedy, tokens, logits = best
    assert margin > MIN_MARGIN and 0.8 < logits.std() < 4, (head.name, margin, logits.std())
    return dict(tokens=ids, next=greedy, guesses=tokens, margin=round(margin, 4)), logits.numpy()


@torch.inference_mode()
def make_golden(head, seed, out):
    rng = np.random.default_rng(seed)
    if head.layout is None:
        return make_eagle_golden(head, seed, out)
    spec, n = head.spec, head.spec.n_layers - 1
    model = make_model(spec)
    tensors = fill_weights(model, spec, rng)
    state = stored(model, spec)
    whole = copy.deepcopy(model.config)
    layer = model.model.layers[n]
    model.model.layers = model.model.layers[:n]
    config = model.config
    config.num_hidden_layers = n
    for key in ("layer_types", "mlp_layer_types"):
        if getattr(config, key, None):
            setattr(config, key, getattr(config, key)[:n])
    mtp = MtpHead(head, model, layer, rng)
    expected, logits = choose_prompt(head, mtp, model, rng)
    write_directory(out / head.name, head, config, mtp_state(head, mtp, state, n), head.extra)
    if head.gguf:
        nextn = [(f"blk.{n}.nextn.{NEXTN[k]}.weight", w.half().numpy() if w.dim() > 1 else w.numpy(), QT.F16 if w.dim() > 1 else QT.F32)
                 for k, w in mtp.w.items()]
        write_gguf(out / f"{head.name}.gguf", spec, whole, tensors + nextn, {"nextn_predict_layers": 1})
    write_expected(head, seed, out, expected, logits)


@torch.inference_mode()
def make_eagle_golden(head, seed, out):
    rng = np.random.default_rng(seed)
    model = make_model(head.spec)
    fill_weights(model, head.spec, rng)
    eagle = EagleHead(head, model, rng)
    expected, logits = choose_prompt(head, eagle, model, rng)
    write_directory(out / head.name, head, model.config, stored(model, head.spec), {})
    write_directory(out / f"{head.name}_head", head, eagle.config, eagle.state(head.spec.vocab),
                    head.extra | {"draft_vocab_size": N_DRAFT_VOCAB})
    write_expected(head, seed, out, expected, logits)


def stored(model, spec):
    return {k: v.half() if v.dim() > 1 and not k.endswith(("bias", "conv1d.weight", "gate.weight")) else v
            for k, v in model.state_dict().items() if not (spec.tied and k == "lm_head.weight")}


def write_expected(head, seed, out, expected, logits):
    np.save(out / head.name / "head.npy", logits)
    write_sidecar(out / head.name / "expected.json", expected | dict(seed=seed, torch=torch.__version__.split("+")[0],
                                                                   transformers=transformers.__version__))
    size = sum(f.stat().st_size for f in [*(out / head.name).iterdir(), *out.glob(f"{head.name}.gguf")])
    print(f"{head.name:14} {size / 1024:6.0f} KiB  logits std {logits.std():.2f}  margin {expected['margin']}")


if __name__ == "__main__":
    make_all(__doc__, HEADS, make_golden, 4000, "tests/data/heads")

#!/usr/bin/env python3
"""Makes the tiny models of tests/data/models and the results of Hugging Face transformers.

Each row of SPECS (specs.py) becomes three files: NAME.gguf (random weights, written with the gguf package in the layout
of llama.cpp's converters), NAME.npy (float32 logits [n_tokens, vocab] at every prompt position) and NAME.json (the prompt,
a 64-token greedy continuation, seeds and versions). Weights are encoded first; transformers then gets the decoded
values, so the logits belong to exactly what the file holds. Weights come from NumPy's seeded generator: a second run
gives the same GGUF bytes.

A row with `hf` is also written as a Hugging Face directory with the same weights, tests/data/hf/NAME: safetensors,
config.json, generation_config.json and tokenizer.json as transformers and tokenizers save them. Matrices have the row's
type there and vectors are F32, so that the same logits belong to both. "sharded" splits the weights; "old" writes
config.json with the keys of transformers 4; "packed" keeps the experts of a layer in one tensor.

NAME.int8.npy has the logits of a Q8_0 row if the inputs of all matrices are rounded to int8.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_models.py [-o tests/data/models] [NAME ...]
"""
import fnmatch
import json
import math
import re
from importlib.metadata import version

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as QT
from dialects import DIALECTS, dialect_of, falcon_factor, ffn_width, kv_heads, rope_of
from makers import compact, make_all, write_sidecar
from more_models import class_of
from pieces import pieces
from specs import SPECS
from tiny_tokenizer import hf_tokenizer, token_list
import safetensors.torch

N_GREEDY = 64
N_CANDIDATES = 96  # prompts tried at once; the prompt with the clearest greedy choices is used
# transformers 5.24 computes other logits with Bamba's cache than without; RecurrentGemma keeps its states in the module.
WITHOUT_CACHE = ("bamba", "recurrent_gemma")
SCORE_BIASES = ("e_score_correction_bias", "expert_bias")
MIN_MARGIN = 1e-3  # every greedy step must win by more than this
# The gguf package decodes these formats but does not encode them, so their blocks are random bits with float16 scales.
# Block offset of d, of dmin, and the mean of the unsigned codes (dmin = mean * d centres the values on 0).
RANDOM_BITS = {"Q2_K": (80, 82, 1.5), "Q3_K": (108, None, 0), "Q4_K": (0, 2, 7.5), "Q5_K": (0, 2, 15.5),
               "Q6_K": (208, None, 0), "IQ4_NL": (0, None, 0), "IQ4_XS": (0, None, 0)}


def other_eps(spec):
    return {"layer_norm_eps", "norm_epsilon"} & set(spec.extra)


def has_key(spec, key):
    if key == "rope_parameters":  # not every config with a rope declares them
        return DIALECTS[spec.config.model_type].has_attention and spec.config.model_type not in ("nemotron_h", "jamba", "kimi_linear")
    return key in spec.config.__dataclass_fields__


def make_model(spec):
    rope = {"rope_type": "default", "rope_theta": 10000.0, **spec.rope}
    head_dim = spec.head_dim or spec.dim // spec.n_heads
    context = int(rope["factor"] * rope.get("original_max_position_embeddings", 128)) if "factor" in rope else spec.context
    if "full_attention" in spec.rope:
        rope = spec.rope
    shared = dict(num_attention_heads=spec.n_heads, num_key_value_heads=spec.n_kv_heads, max_position_embeddings=context,
                  rope_parameters=rope, **({} if other_eps(spec) else {"rms_norm_eps": spec.eps}))
    config = spec.config(
        vocab_size=spec.vocab, hidden_size=spec.dim, **({"intermediate_size": spec.ffn} if spec.ffn else {}), num_hidden_layers=spec.n_layers,
        **{key: value for key, value in shared.items() if has_key(spec, key)}, head_dim=head_dim, tie_word_embeddings=spec.tied,
        bos_token_id=spec.vocab - 2, eos_token_id=spec.vocab - 1, pad_token_id=None, attn_implementation="eager", **spec.extra)
    model = class_of(config)._from_config(config, dtype=torch.float32).eval()
    if spec.head_dim == 0 and config.model_type.startswith("qwen3"):
        raise ValueError("qwen3 files always say head_dim")
    return model


def weight_stats(name, shape, spec, plus_one):
    """(mean, std): norms and biases away from 1 and 0, attention far from uniform, logits with a std of 1 to 3."""
    if name.endswith("A_log"):
        return -1.5, 1.0  # most elements of a state last for some tokens, some for many
    if name.endswith(("norm.weight", "norm_f.weight")):
        mean = spec.push if ".post_" in name else 1.0
        return (mean - 1.0 if plus_one else mean), 0.3
    if name.endswith(("router.scale", "per_expert_scale", "layer_scalar", "correct_output_scale")):
        return 1.0, 0.3
    if name.endswith("bias"):
        return 0.0, 0.3
    if name.endswith("sinks"):
        return 0.0, 2.0
    if "embed_tokens" in name:
        return 0.0, (2.0 * spec.gain / math.sqrt(shape[1]) if spec.tied else 1.0)
    gain = 2.0 * spec.gain if "lm_head" in name else 1.5 if "q_proj" in name or "k_proj" in name else 1.3
    if "o_proj" in name or "down_proj" in name:
        gain *= spec.push
    return 0.0, gain / math.sqrt(shape[-1])


def random_blocks(rng, shape, fmt, std):
    """Encoded rows of a format without an encoder -> uint8 [rows, bytes per row]."""
    d_at, dmin_at, mean = RANDOM_BITS[fmt]
    block, n_bytes = gguf.GGML_QUANT_SIZES[QT[fmt]]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // block, n_bytes), dtype=np.uint8)

    def set_scale(d):
        blocks[..., d_at:d_at + 2] = np.array(d, np.float16).reshape(-1, 1).view(np.uint8).reshape(*d.shape, 2)
        if dmin_at is not None:
            dmin = np.array(d * mean, np.float16)
            blocks[..., dmin_at:dmin_at + 2] = dmin.reshape(-1, 1).view(np.uint8).reshape(*d.shape, 2)
        return blocks.reshape(shape[0], -1)

    unit = gguf.quants.dequantize(set_scale(np.ones(blocks.shape[:2])), QT[fmt]).std()
    return set_scale(std / unit * rng.uniform(0.7, 1.3, blocks.shape[:2]))


def format_of(name, w, spec):
    # Routers, convolutions and small coefficients have a type of their own, whatever the file's type is.
    if w.ndim == 1 or not name.endswith(".weight") or any(part in name for part in ("ffn_gate_inp", "ssm_conv1d", "ssm_norm", "shortconv.conv", "altup_correct_coef", "altup_predict_coef")):
        return "F32"
    return next(f for pattern, f in spec.types.items() if fnmatch.fnmatch(name, pattern))


PLAIN = (lambda w: w, lambda w: w)
PLUS_ONE = (lambda w: w + 1, lambda w: w - 1)
MINUS_EXP = (lambda w: -np.exp(w.astype(np.float64)).astype(np.float32), None)  # rounded once: exact logarithm


def scaled_by(factor):
    return lambda w: w * factor, lambda w: w / factor


def w_is_matrix(name):
    return name.endswith("weight") and "norm" not in name and "conv1d" not in name


def encoded(rng, view, name, spec, mean, std, kept):
    """Fills a view of a parameter with random weights as the file stores them -> (data, type). kept: functions to the
    stored values and back."""
    rows = int(np.prod(view.shape[:-1])) if view.ndim > 1 else 1
    shape = (rows, view.shape[-1]) if view.ndim > 1 else view.shape
    if name.endswith("ssm_out.weight"):  # columns are heads
        shape = (view.shape[0], int(np.prod(view.shape[1:])))
    fmt = format_of(name, view, spec)
    if fmt in RANDOM_BITS:
        data = random_blocks(rng, shape, fmt, std)
    else:
        w = view.reshape(shape).astype(np.float32)
        data = gguf.quants.quantize(kept[0](w), QT[fmt])
    if kept[1]:
        view[...] = kept[1](gguf.quants.dequantize(data, QT[fmt]).reshape(view.shape))
    return data, QT[fmt]


def fill_weights(model, spec, rng):
    """Draws every weight, leaves its decoded value in the model and returns [(GGUF name, data, type)]."""
    config, dialect = model.config, dialect_of(model.config)
    names = gguf.get_tensor_name_map(dialect.arch, spec.n_layers)
    tensors = []
    draw_activations(model, rng)
    for name, param in [*model.named_parameters(), *other_weights(model)]:
        if name.endswith(SCORE_BIASES):
            name = name.removesuffix("_bias") + ".bias"
        if ".act_fn." in name:
            continue
        plus_one = dialect.plus_one and name.endswith("norm.weight") and "linear_attn" not in name and not (
            name == "model.norm.weight" and config.model_type == "muse_glimmer_text")
        kept = PLUS_ONE if plus_one else MINUS_EXP if name.endswith("A_log") else PLAIN
        if config.model_type == "falcon_h1" and w_is_matrix(name):
            kept = scaled_by(falcon_factor(config, name, param.shape[0]))
        mean, std = weight_stats(name, param.shape, spec, plus_one)
        w = np.zeros(tuple(param.shape), np.float32)
        views = pieces(config, names, name, w)
        if format_of(views[0][0], w, spec) not in RANDOM_BITS:
            w += (mean + std * rng.standard_normal(w.shape)).astype(np.float32)
        parts = []
        for gguf_name, view in views:
            # Experts and heads are a dimension of their own; reordered heads are rows like others.
            stacked = gguf_name.split(".")[-2] in STACKED
            data, fmt = encoded(rng, view, gguf_name, spec, mean, std, kept)
            n = view.shape[0] if stacked and view.ndim == 3 else 0
            data = data.reshape(n, -1, data.shape[-1]) if n else data.reshape(view.shape) if stacked else data
            if "ssm_conv1d_" in gguf_name:
                data = data.reshape(view.shape)
            if w.ndim == 1:
                data = data.reshape(view.shape if ".mixer." in name or ".mamba." in name else -1)
            if parts and parts[-1][0] == gguf_name:  # rows of one tensor
                data = np.concatenate([parts.pop()[1], data])
            parts.append((gguf_name, data, fmt))
        tensors += parts
        with torch.no_grad():
            param.copy_(torch.from_numpy(w))
    return joined_streams(tensors) + rope_tensors(spec, config) + head_norms(config)


def joined_streams(tensors):
    """Gemma 3n's projections of streams, each a tensor in transformers, as one tensor of all."""
    joined = {}
    for name, data, fmt in tensors:
        base, number = re.fullmatch(r"(altup_(?:unembd_)?proj)\.(\d+)\.weight|.*", name).groups()
        key = f"{base}.weight" if number else name
        joined.setdefault(key, ([], fmt, bool(number)))[0].append(data)
    return [(name, np.stack(all_data) if stacked else all_data[0], fmt) for name, (all_data, fmt, stacked) in joined.items()]


STACKED = ("rec_input_gate", "rec_decay_gate", "ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "attn_k_b", "attn_v_b")


@torch.no_grad()
def draw_activations(model, rng):
    """Draws the numbers of xIELU, which GGUF files have as keys."""
    modules = [m.mlp.act_fn for m in model.modules() if hasattr(getattr(m, "mlp", None), "act_fn") and hasattr(m.mlp.act_fn, "alpha_p")]
    for act in modules:
        for number in (act.alpha_p, act.alpha_n):
            number.copy_(torch.tensor(rng.normal(0, 0.5, 1).astype(np.float32)))
    if modules:
        model.config.xielu = {"alpha_p": [float(a.alpha_p) for a in modules], "alpha_n": [float(a.alpha_n) for a in modules],
                              "beta": [float(a.beta) for a in modules], "eps": [float(a.eps) for a in modules]}


def other_weights(model):
    """Weights that are not parameters of the module: corrections of the routers' scores, factors of layers."""
    return [(n, b) for n, b in model.named_buffers()
            if n.endswith((*SCORE_BIASES, "layer_scalar"))]


def head_norms(config):
    """Norms of q and k that have no weight in transformers; the one of q has the factor of the scores."""
    if config.model_type != "muse_glimmer_text":
        return []
    values = (("q", config.qk_scale_factor), ("k", 1.0))
    return [(f"blk.{i}.attn_{name}_norm.weight", np.full(config.head_dim, value, np.float32), QT.F32)
            for i in range(config.num_hidden_layers) for name, value in values]


def rope_tensors(spec, config):
    if not dialect_of(config).has_attention:
        return []
    rope = rope_of(config)
    if rope["rope_type"] == "llama3":
        return [("rope_freqs.weight", llama3_factors(config), QT.F32)]
    if rope["rope_type"] == "proportional":
        n = config.per_layer_config["full_attention"].head_dim
        n_rotated = int(rope["partial_rotary_factor"] * n / 2)
        return [("rope_freqs.weight", np.array([1.0] * n_rotated + [1e30] * (n // 2 - n_rotated), np.float32), QT.F32)]
    if rope["rope_type"] == "longrope":
        return [(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32), QT.F32)
                for kind in ("long", "short")]
    return []


def llama3_factors(config):
    """The divisor of each rope frequency -> [head_dim / 2]."""
    p = config.rope_parameters
    low_wavelen = p["original_max_position_embeddings"] / p["low_freq_factor"]
    high_wavelen = p["original_max_position_embeddings"] / p["high_freq_factor"]
    factors = []
    for i in range(0, config.head_dim, 2):
        wavelen = 2 * math.pi * p["rope_theta"] ** (i / config.head_dim)
        smooth = (p["original_max_position_embeddings"] / wavelen - p["low_freq_factor"]) / (
            p["high_freq_factor"] - p["low_freq_factor"])
        middle = 1 / ((1 - smooth) / p["factor"] + smooth)
        factors.append(1.0 if wavelen < high_wavelen else p["factor"] if wavelen > low_wavelen else middle)
    return np.array(factors, np.float32)


def add_tokenizer(writer, vocab):
    tokens, merges = token_list(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * (vocab - 2) + [gguf.TokenType.CONTROL] * 2)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(vocab - 2)
    writer.add_eos_token_id(vocab - 1)
    writer.add_add_bos_token(False)


def add_config(writer, spec, config):
    """The keys that llama.cpp's converters write: only for llama do they include vocab size and rope dimensions."""
    no_limit = 8192 if config.model_type == "recurrent_gemma" else 2**20
    writer.add_context_length(getattr(config, "max_position_embeddings", no_limit))
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if not dialect_of(config).has_attention:
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_layer_norm_rms_eps(spec.eps)
        return dialect_of(config).keys(writer, config)
    if spec.ffn:
        writer.add_feed_forward_length(ffn_width(config))
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(kv_heads(config, spec.n_kv_heads))
    if other_eps(spec) or config.model_type == "phimoe":
        writer.add_layer_norm_eps(spec.eps)
    else:
        writer.add_layer_norm_rms_eps(spec.eps)
    rope = rope_of(config)
    if config.model_type not in ("gemma", "gemma2"):
        writer.add_rope_freq_base(rope["rope_theta"])
    if spec.head_dim and not hasattr(config, "kv_lora_rank"):
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(spec.head_dim)
    if config.model_type == "mistral" and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    dialect_of(config).keys(writer, config)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if "beta_fast" in rope:
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def write_gguf(path, spec, config, tensors, more_keys={}):
    arch = dialect_of(config).name
    writer = gguf.GGUFWriter(path, arch)
    for key, value in more_keys.items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(f"golden {spec.name}")
    add_config(writer, spec, config)
    main_type = spec.types.get("*")
    if main_type:  # a mix made by hand has no file type
        writer.add_file_type(gguf.LlamaFileType["ALL_F32" if main_type == "F32" else f"MOSTLY_{main_type}"])
    add_tokenizer(writer, spec.vocab)
    if main_type not in ("F32", "F16", "BF16"):
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, data, fmt in tensors:
        writer.add_tensor(name, data, raw_dtype=fmt)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.inference_mode()
def greedy_with_margin(model, prompts):
    """prompts [n, n_tokens] -> greedy continuations [n, N_GREEDY] and the smallest lead of first over second [n]."""
    ids, tokens, margins, cache = prompts, [], [], None
    name = "cache" if model._is_stateful else "past_key_values"  # models of states only know the newer name
    caches = model.config.model_type not in WITHOUT_CACHE
    for _ in range(N_GREEDY):
        out = model(ids, **{name: cache}, use_cache=True) if caches else model(ids, use_cache=False)
        cache, top = getattr(out, name, None), out.logits[:, -1].topk(2)
        tokens.append(top.indices[:, :1])
        ids = tokens[-1] if caches else torch.cat([ids, tokens[-1]], 1)
        margins.append(top.values[:, 0] - top.values[:, 1])
    return torch.cat(tokens, 1), torch.stack(margins, 1).min(1).values


@torch.inference_mode()
def make_expected(model, spec, rng):
    """The clearest of many random prompts -> (tokens, logits [n_tokens, vocab], greedy tokens, smallest margin)."""
    prompts = torch.from_numpy(rng.integers(0, spec.vocab, (N_CANDIDATES, spec.n_tokens)))
    greedy, margin = greedy_with_margin(model, prompts)
    usable = (greedy < spec.vocab - 2).all(1)  # a stop token would end a real run
    varied = torch.tensor([row.unique().numel() >= 10 for row in greedy])
    best = torch.where(usable & varied, margin, -1.0).argmax()
    tokens, greedy = prompts[best], greedy[best]
    logits = model(tokens[None], use_cache=False).logits[0]
    # Run once more in one pass without the cache: the same tokens must win with as clear a margin.
    tail = model(torch.cat([tokens, greedy])[None], use_cache=False).logits[0, spec.n_tokens - 1:-1]
    top = tail.topk(2)
    margin = (top.values[:, 0] - top.values[:, 1]).min().item()
    assert torch.equal(top.indices[:, 0], greedy) and margin > MIN_MARGIN, (spec.name, margin)
    assert 1.0 < logits.std() < 3.5, (spec.name, logits.std())
    return tokens.tolist(), logits.numpy(), greedy.tolist(), margin


@torch.inference_mode()
def int8_logits(model, tokens):
    """The logits with every input of a matrix rounded to int8 in groups of 32 with a scale, as kernels for Q8_0 do."""
    def rounded(_, args):
        groups = args[0].reshape(-1, 32).double()
        scale = groups.abs().amax(1, keepdim=True) / 127
        codes = torch.where(scale > 0, torch.round(groups / scale), 0)
        return ((codes * scale).reshape(args[0].shape).float(),)

    hooks = [m.register_forward_pre_hook(rounded) for m in model.modules() if isinstance(m, torch.nn.Linear)]
    logits = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    for hook in hooks:
        hook.remove()
    return logits


def old_config(path):
    """Rewrites a config.json with the keys of transformers 4, and checks that transformers reads both as the same."""
    new = transformers.AutoConfig.from_pretrained(path.parent)
    keys = json.loads(path.read_text())
    rope = keys.pop("rope_parameters")
    keys["rope_theta"] = rope.pop("rope_theta")
    keys["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    keys["torch_dtype"] = keys.pop("dtype")
    keys["transformers_version"] = "4.46.0"
    path.write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")
    old = transformers.AutoConfig.from_pretrained(path.parent)
    assert old.rope_parameters == new.rope_parameters and old.dtype == new.dtype


def old_nemotron(path):
    """Rewrites a config.json of Nemotron-H as its first checkpoints have it, and checks that transformers reads the same layers."""
    keys = json.loads(path.read_text())
    pattern = "".join({"linear_attention": "M", "full_attention": "*", "mlp": "-"}[kind] for kind in keys.pop("layers_block_type"))
    keys = {k: v for k, v in keys.items() if "moe" not in k and "expert" not in k and "mtp" not in k and k not in ("n_group", "topk_group", "norm_topk_prob")}
    keys |= {"hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern)}
    path.write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")
    assert transformers.AutoConfig.from_pretrained(path.parent).hybrid_override_pattern == pattern


@torch.inference_mode()
def write_hf(folder, spec, model, tokens, logits):
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[spec.types["*"]]
    routers = (".gate.weight", ".router.weight", ".router.proj.weight", "shared_expert_gate.weight", "prediction_coefs.weight", "correction_coefs.weight")
    state = {k: v.to(dtype) if v.dim() > 1 and not k.endswith(("bias", "A_log", "conv1d.weight", "conv_1d.weight", "conv.conv.weight", *routers)) else v for k, v in model.state_dict().items()
             if not (spec.tied and k == "lm_head.weight")}
    model.config.dtype = dtype
    model.generation_config = getattr(model, "generation_config", None) or transformers.GenerationConfig()
    model.generation_config.eos_token_id = [spec.vocab - 1, spec.vocab - 2]
    model.save_pretrained(folder, state_dict=state, max_shard_size="60KB" if spec.hf == "sharded" else "5GB")
    if spec.hf == "packed":
        safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    hf_tokenizer(spec.vocab).save_pretrained(folder)
    compact(folder)
    if spec.hf == "old":
        (old_nemotron if spec.config.model_type == "nemotron_h" else old_config)(folder / "config.json")
    for file in folder.iterdir():
        file.chmod(0o644)
    again = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    assert np.abs(again(torch.tensor([tokens])).logits[0].numpy() - logits).max() < 1e-5, spec.name


def make_golden(spec, seed, out):
    rng = np.random.default_rng(seed)
    model = make_model(spec)
    write_gguf(out / f"{spec.name}.gguf", spec, model.config, fill_weights(model, spec, rng))
    tokens, logits, greedy, margin = make_expected(model, spec, rng)
    if spec.hf:
        write_hf(out.parent / "hf" / spec.name, spec, model, tokens, logits)
    np.save(out / f"{spec.name}.npy", logits)
    if spec.types == {"*": "Q8_0"} and "num_experts" not in spec.extra:
        np.save(out / f"{spec.name}.int8.npy", int8_logits(model, tokens))
    sidecar = {
        "name": spec.name, "file": f"{spec.name}.gguf", "arch": dialect_of(model.config).name,
        "types": spec.types, **({"n_ctx": spec.n_ctx} if spec.n_ctx else {}), "logits": f"{spec.name}.npy", "tokens": tokens, "greedy": greedy,
        "greedy_margin": round(margin, 5), "seed": seed, "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__, "gguf": version("gguf"), "numpy": np.__version__}
    write_sidecar(out / f"{spec.name}.json", sidecar)
    size = sum((out / f"{spec.name}.{e}").stat().st_size for e in ("gguf", "npy", "json"))
    print(f"{spec.name:20} {size / 1024:6.0f} KiB  logits std {logits.std():.2f}  greedy margin {margin:.4f}")


if __name__ == "__main__":
    make_all(__doc__, SPECS, make_golden, 1000, "tests/data/models")

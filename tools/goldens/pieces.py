"""How llama.cpp's converters write the tensors of a model of each type (dialects.py).

A parameter of transformers becomes one tensor of the GGUF file or several (experts that transformers keeps in one
array). `pieces` gives each tensor as a view, so that the values in the encoded file can be written back to the model.
"""
import numpy as np

from dialects import dialect_of, rot_dim


OWN_NAMES = {  # names that the package's map lacks, or has in another form
    "block_sparse_moe.router.weight": "ffn_gate_inp.weight",
    "self_attn.sinks": "attn_sinks.weight",
    "post_operator_norm.weight": "post_attention_norm.weight",
    "post_ffn_norm.weight": "post_ffw_norm.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
    "mlp.e_score_correction.bias": "exp_probs_b.bias",
    "feed_forward.expert.bias": "exp_probs_b.bias",
    "feed_forward.gate.weight": "ffn_gate_inp.weight",
    "feed_forward.router.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "layer_scalar": "layer_output_scale.weight",
    "altup.correct_output_scale": "altup_correct_scale.weight",
    "self_attn.g_proj.weight": "attn_gate.weight",
    "self_attn.gate_proj.weight": "attn_gate.weight",
    "mlp.gate.e_score_correction.bias": "exp_probs_b.bias",
    "mlp.gate.moe_statics.e_score_correction.bias": "exp_probs_b.bias",
    "feed_forward.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    "mixer.experts.up_proj": "ffn_up_exps.weight",
    "mixer.experts.down_proj": "ffn_down_exps.weight",
    "mixer.gate.e_score_correction.bias": "exp_probs_b.bias",
    "self_attn.query_layernorm.weight": "attn_q_norm.weight",
    "self_attn.key_layernorm.weight": "attn_k_norm.weight",
}


def lace(w, n_heads):
    """A view of the rows of q or k where the two elements of each rope pair are neighbours, as in llama files."""
    return w.reshape(n_heads, 2, w.shape[0] // n_heads // 2, *w.shape[1:]).swapaxes(1, 2)


def laced_heads(w, n_heads, rot_dim):
    """Views of the rows of each head: the rotated part as lace() has it, and the rest."""
    return [part for head in np.split(w, n_heads) for part in (lace(head[:rot_dim], 1), head[rot_dim:])]


def tiled(config, w, dim):
    """A view of the value heads' rows where heads with the same key head are not neighbours, as in qwen35 files."""
    n_keys, n_values = config.linear_num_key_heads, config.linear_num_value_heads
    return w.reshape(n_keys, n_values // n_keys, dim, *w.shape[1:]).swapaxes(0, 1)


def delta_pieces(config, layer, short, w):
    """The GGUF tensors of a gated delta net's parameters; the result is as that of pieces()."""
    n_keys, key, n_values, value = (config.linear_num_key_heads, config.linear_key_head_dim, config.linear_num_value_heads,
                                    config.linear_value_head_dim)
    name = short.removeprefix("linear_attn.")
    if name == "in_proj_qkvz.weight":
        ends = np.cumsum([key, key, n_values // n_keys * value])
        q, k, v, z = np.split(w.reshape(n_keys, -1, w.shape[1]), ends, axis=1)
        return [*((f"blk.{layer}.attn_qkv.weight", part) for part in (q, k, v)), (f"blk.{layer}.attn_gate.weight", z)]
    file_name = {"in_proj_qkv.weight": "attn_qkv.weight", "in_proj_z.weight": "attn_gate.weight", "in_proj_b.weight": "ssm_beta.weight",
                 "in_proj_a.weight": "ssm_alpha.weight", "in_proj_ba.weight": "ssm_ba.weight", "conv1d.weight": "ssm_conv1d.weight",
                 "A_log": "ssm_a", "dt_bias": "ssm_dt.bias", "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight"}[name]
    file_name = f"blk.{layer}.{file_name}"
    if name == "conv1d.weight":
        w = w.reshape(w.shape[0], w.shape[2])
    if config.model_type == "qwen3_next" or name == "norm.weight":
        return [(file_name, w)]
    if name in ("in_proj_qkv.weight", "conv1d.weight"):
        return [(file_name, w[:2 * n_keys * key]), (file_name, tiled(config, w[2 * n_keys * key:], value))]
    if name == "out_proj.weight":
        return [(file_name, w.reshape(w.shape[0], n_keys, -1, value).swapaxes(1, 2))]
    if name in ("A_log", "dt_bias"):
        return [(file_name, tiled(config, w, 1)[..., 0])]
    return [(file_name, tiled(config, w, value if name == "in_proj_z.weight" else 1))]


def mamba2_pieces(config, layer, name, w):
    """The GGUF tensors of a Mamba-2 mixer's parameters; the result is as that of pieces()."""
    file_name = {"in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight", "conv1d.bias": "ssm_conv1d.bias",
                 "A_log": "ssm_a", "dt_bias": "ssm_dt.bias", "D": "ssm_d", "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight"}[name]
    n_groups = getattr(config, "mamba_n_groups", None) or config.n_groups
    shape = {"conv1d.weight": (w.shape[0], -1), "A_log": (-1, 1), "D": (-1, 1), "norm.weight": (n_groups, -1)}.get(name, w.shape)
    return [(f"blk.{layer}.{file_name}", w.reshape(shape))]


def mamba1_pieces(layer, name, w):
    """The GGUF tensors of a Mamba mixer's parameters; the result is as that of pieces()."""
    file_name = {"in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight", "conv1d.bias": "ssm_conv1d.bias", "x_proj.weight": "ssm_x.weight",
                 "dt_proj.weight": "ssm_dt.weight", "dt_proj.bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d", "out_proj.weight": "ssm_out.weight",
                 "dt_layernorm.weight": "ssm_dt_norm.weight", "b_layernorm.weight": "ssm_b_norm.weight", "c_layernorm.weight": "ssm_c_norm.weight"}[name]
    return [(f"blk.{layer}.{file_name}", w.reshape(w.shape[0], -1) if name == "conv1d.weight" else w)]


KDA_NAMES = {"q_proj.weight": "attn_q.weight", "k_proj.weight": "attn_k.weight", "v_proj.weight": "attn_v.weight", "b_proj.weight": "ssm_beta.weight",
             "forget_gate.f_a_proj.weight": "ssm_f_a.weight", "forget_gate.f_b_proj.weight": "ssm_f_b.weight", "g_a_proj.weight": "ssm_g_a.weight",
             "g_b_proj.weight": "ssm_g_b.weight", "o_proj.weight": "attn_output.weight", "forget_gate.A_log": "ssm_a", "forget_gate.dt_bias": "ssm_dt.bias",
             "o_norm.weight": "ssm_norm.weight"}


def kda_pieces(layer, name, w):
    """The GGUF tensors of a Kimi delta attention's parameters; the result is as that of pieces()."""
    if name == "conv1d.weight":
        return [(f"blk.{layer}.ssm_conv1d_{part}.weight", rows) for part, rows in zip("qkv", np.split(w, 3))]
    return [(f"blk.{layer}.{KDA_NAMES[name]}", w.reshape(-1, 1) if name.endswith("A_log") else w)]


OLMO_NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "g_proj": "attn_gate", "a_proj": "ssm_alpha", "b_proj": "ssm_beta", "o_proj": "ssm_out",
              "o_norm": "ssm_norm"}


def olmo_hybrid_pieces(config, layer, name, w):
    """The GGUF tensors of an OLMo hybrid's delta net, which llama.cpp does not know; the result is as that of pieces()."""
    if name == "conv1d.weight":
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        parts = np.split(w.reshape(w.shape[0], -1), [keys, 2 * keys])
        return [(f"blk.{layer}.ssm_conv1d_{part}.weight", rows) for part, rows in zip("qkv", parts)]
    if name in ("A_log", "dt_bias"):
        return [(f"blk.{layer}." + ("ssm_a" if name == "A_log" else "ssm_dt.bias"), w)]
    return [(f"blk.{layer}.{OLMO_NAMES[name.removesuffix('.weight')]}.weight", w)]


RECURRENT_NAMES = {"linear_y": "rec_y", "linear_x": "rec_x", "linear_out": "rec_out", "conv_1d": "ssm_conv1d", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v",
                   "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down", "temporal_pre_norm": "attn_norm",
                   "channel_pre_norm": "ffn_norm"}


def recurrent_gemma_pieces(layer, name, w):
    """The GGUF tensors of RecurrentGemma's layers, which llama.cpp does not know; the result is as that of pieces()."""
    last = name.split(".")[-1]
    if last == "recurrent_param":
        return [(f"blk.{layer}.rec_decay", w)]
    if "rg_lru" in name:  # matrices [n_in, n_out] of each head
        gate, kind = ("input" if "input" in last else "decay"), last.split("_")[-1]
        return [(f"blk.{layer}.rec_{gate}_gate.{kind}", w.swapaxes(1, 2) if kind == "weight" else w)]
    module = name.split(".")[-2]
    return [(f"blk.{layer}.{RECURRENT_NAMES[module]}.{last}", w.reshape(w.shape[0], -1) if name.endswith("conv_1d.weight") else w)]


def pieces(config, names, name, w):
    """[(name in the file, view of w [rows, n_in] or [experts, rows, n_in] or [n])], where w is a parameter's array."""
    layer = name.split(".")[2] if name.startswith(("model.layers.", "backbone.layers.")) else ""
    short = name.split(".", 3)[-1]
    if config.model_type == "llama4_text" and short == "feed_forward.experts.gate_up_proj":  # transposed
        return [(f"blk.{layer}.ffn_{part}_exps.weight", half.swapaxes(1, 2)) for part, half in zip(("gate", "up"), np.split(w, 2, axis=2))]
    if short.endswith(("mlp.experts.gate_up_proj", "feed_forward.experts.gate_up_proj", "block_sparse_moe.experts.gate_up_proj")):
        halves = (w[:, :, 0::2], w[:, :, 1::2]) if config.model_type == "gpt_oss" else np.split(w, 2, axis=1)
        halves = [h.swapaxes(1, 2) for h in halves] if config.model_type == "gpt_oss" else halves
        return [(f"blk.{layer}.ffn_{part}_exps.weight", half) for part, half in zip(("gate", "up"), halves)]
    if short.endswith("experts.gate_up_proj_bias"):
        return [(f"blk.{layer}.ffn_{part}_exps.bias", w[:, i::2]) for i, part in enumerate(("gate", "up"))]
    if short == "self_attn.kv_b_proj.weight":
        heads = w.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
        k, v = heads[:, :config.qk_nope_head_dim], heads[:, config.qk_nope_head_dim:]
        return [(f"blk.{layer}.attn_k_b.weight", k.swapaxes(1, 2)), (f"blk.{layer}.attn_v_b.weight", v)]
    if config.model_type == "olmo_hybrid" and layer and config.layer_types[int(layer)] == "linear_attention":
        if short.startswith("linear_attn."):
            return olmo_hybrid_pieces(config, layer, short.removeprefix("linear_attn."), w)
        if short in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            return [(f"blk.{layer}." + ("attn_norm.weight" if short.startswith("input") else "ffn_norm.weight"), w)]
    if short.startswith("linear_attn."):
        return delta_pieces(config, layer, short, w)
    if short == "shared_mlp.input_linear.weight":
        suffix = "_shexp" if config.num_local_experts else ""
        return [(f"blk.{layer}.ffn_{part}{suffix}.weight", half) for part, half in zip(("gate", "up"), np.split(w, 2))]
    if short == "shared_mlp.output_linear.weight" and not config.num_local_experts:
        return [(f"blk.{layer}.ffn_down.weight", w)]
    if short.startswith("mixer.") and config.model_type == "nemotron_h" and config.layer_types[int(layer)] != "linear_attention":
        name = name.replace("model.layers", "backbone.layers", 1)
        return [(f"blk.{layer}.{OWN_NAMES[short]}" if short in OWN_NAMES else names.get_name(name, (".weight", ".bias")), w)]
    if config.model_type == "kimi_linear" and short.startswith("self_attn.") and config.layer_types[int(layer)] == "linear_attention":
        return kda_pieces(layer, short.removeprefix("self_attn."), w)
    if config.model_type == "recurrent_gemma" and layer:
        return recurrent_gemma_pieces(layer, short, w)
    if name == "model.final_norm.weight":
        return [("output_norm.weight", w)]
    if config.model_type in ("mamba", "falcon_mamba", "jamba") and short.startswith(("mixer.", "mamba.")):
        return mamba1_pieces(layer, short.split(".", 1)[1], w)
    if short.startswith("mamba."):
        return mamba2_pieces(config, layer, short.removeprefix("mamba."), w)
    if short.startswith("mixer."):
        return mamba2_pieces(config, layer, short.removeprefix("mixer."), w)
    if short == "conv.conv.weight":
        return [(f"blk.{layer}.shortconv.conv.weight", w.reshape(w.shape[0], w.shape[2]))]
    if config.model_type == "laguna" and short == "post_attention_layernorm.weight":
        return [(f"blk.{layer}.ffn_norm.weight", w)]
    if short == "pre_ff_layernorm.weight":
        return [(f"blk.{layer}.ffn_norm" + ("" if config.model_type == "falcon_h1" else ".weight"), w)]
    if name.startswith("model.altup_"):  # of one stream each; the file has one tensor
        number = name.split(".")[2]
        return [(f"altup_{'unembd_' if 'unembed' in name else ''}proj.{number}.weight", w)]
    if short in OWN_NAMES:
        down = (config.model_type, short) in (("gpt_oss", "mlp.experts.down_proj"), ("llama4_text", "feed_forward.experts.down_proj"))
        return [(f"blk.{layer}.{OWN_NAMES[short]}", w.swapaxes(1, 2) if down else w)]
    kind = name.split(".")[-2]
    if kind in ("q_proj", "k_proj") and dialect_of(config).permuted:
        n_heads = config.num_attention_heads if kind == "q_proj" else config.num_key_value_heads
        if config.model_type == "bamba":
            return [(names.get_name(name, (".weight", ".bias")), part) for part in laced_heads(w, n_heads, rot_dim(config))]
        w = lace(w, n_heads)
    return [(names.get_name(name, (".weight", ".bias")), w)]

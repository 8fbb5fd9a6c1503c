"""How llama.cpp's converters write a model of each type: the architecture's name and its keys. pieces.py has the tensors.

Each row of DIALECTS describes one type; make_models.py reads the table.
"""
import math
from dataclasses import dataclass
from typing import Callable

import gguf
import numpy as np
import torch
from gguf import MODEL_ARCH as A


def rope_of(config):
    """The rope parameters of layers without a window. Models without rope have the defaults in their files."""
    parameters = getattr(config, "rope_parameters", None) or {"rope_type": "default", "rope_theta": 10000.0}
    parameters = parameters.get("full_attention", parameters)
    return parameters | {"rope_theta": parameters["rope_theta"] or 10000.0}


def rot_dim(config):
    return int(config.head_dim * rope_of(config).get("partial_rotary_factor", 1.0))


def llama_keys(writer, config):
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)


def window_keys(writer, config):
    writer.add_sliding_window(config.sliding_window)


def gemma2_keys(writer, config):
    window_keys(writer, config)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)


def phi3_keys(writer, config):
    rope = rope_of(config)
    writer.add_rope_dimension_count(rot_dim(config))
    writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    writer.add_sliding_window(config.sliding_window or 0)
    if rope["rope_type"] == "longrope":
        scale = config.max_position_embeddings / config.original_max_position_embeddings
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(config.original_max_position_embeddings)))


def granite_keys(writer, config):
    llama_keys(writer, config)
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def expert_keys(writer, config):
    for name in ("num_local_experts", "num_experts", "n_routed_experts"):
        if n := getattr(config, name, None):
            writer.add_expert_count(n)
            break
    writer.add_expert_used_count(config.num_experts_per_tok)
    if width := getattr(config, "moe_intermediate_size", None):
        writer.add_expert_feed_forward_length(width)
    if width := getattr(config, "shared_expert_intermediate_size", None):
        writer.add_expert_shared_feed_forward_length(width)


def both(*functions):
    return lambda writer, config: [f(writer, config) for f in functions]


def gpt_oss_keys(writer, config):
    window_keys(writer, config)
    expert_keys(writer, config)
    writer.add_expert_feed_forward_length(config.intermediate_size)


def listed_window_keys(writer, config):
    window_keys(writer, config)
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])


def rope_keys(writer, config):
    writer.add_rope_dimension_count(rot_dim(config))


def vocab_keys(writer, config):
    writer.add_vocab_size(config.vocab_size)


def sigmoid_keys(writer, config):
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def glm_keys(writer, config):
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(config.norm_topk_prob)


def minimax_keys(writer, config):
    writer.add_expert_feed_forward_length(config.intermediate_size)


def n_dense(config):
    types = getattr(config, "mlp_layer_types", None)
    return types.index("sparse") if types else config.first_k_dense_replace


def deepseek_keys(writer, config):
    expert_keys(writer, config)
    rope = rope_of(config)
    writer.add_leading_dense_block_count(n_dense(config))
    writer.add_vocab_size(config.vocab_size)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    sigmoid = config.model_type != "deepseek_v2"
    writer.add_expert_weights_norm(sigmoid and config.norm_topk_prob)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)
    if config.n_group:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    if "mscale_all_dim" in rope:
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def delta_keys(writer, config):
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
    writer.add_rope_dimension_count(rot_dim(config))
    if config.model_type != "qwen3_next":
        writer.add_rope_dimension_sections([11, 11, 10, 0])


def lfm2_keys(writer, config):
    writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.add_vocab_size(config.vocab_size)


def lfm3_keys(writer, config):
    lfm2_keys(writer, config)
    listed_window_keys(writer, config)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])


def lfm2_moe_keys(writer, config):
    expert_keys(writer, config)
    sigmoid_keys(writer, config)
    writer.add_leading_dense_block_count(config.num_dense_layers)


def mamba2_keys(writer, config):
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.expand * config.hidden_size)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.num_heads)
    writer.add_ssm_group_count(config.n_groups)


def kimi_linear_keys(writer, config):
    deepseek_keys(writer, config)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_kda_head_dim(config.linear_head_dim)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def recurrent_gemma_keys(writer, config):
    vocab_keys(writer, config)
    rope_keys(writer, config)
    window_keys(writer, config)
    writer.add_feed_forward_length(config.intermediate_size // 2)
    writer.add_head_count_kv([config.num_key_value_heads if kind == "sliding_attention" else 0 for kind in config.layer_types])
    writer.add_ssm_conv_kernel(config.conv1d_width)
    writer.add_uint32("recurrentgemma.rec.head_count", config.num_attention_heads)
    writer.add_uint32("recurrentgemma.rec.width", config.lru_width)
    writer.add_final_logit_softcapping(config.logits_soft_cap)


def olmo_hybrid_keys(writer, config):
    vocab_keys(writer, config)
    rope_keys(writer, config)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_num_value_heads * config.linear_value_head_dim)
    writer.add_float32("olmo-hybrid.ssm.beta_scale", 2.0 if config.linear_allow_neg_eigval else 1.0)
    writer.add_rope_scaling_finetuned(config.rope_parameters["rope_theta"] is not None)


def mamba1_keys(writer, config):
    jamba = config.model_type == "jamba"
    writer.add_ssm_conv_kernel(config.mamba_d_conv if jamba else config.conv_kernel)
    writer.add_ssm_inner_size((config.mamba_expand if jamba else config.expand) * config.hidden_size)
    writer.add_ssm_state_size(config.mamba_d_state if jamba else config.state_size)
    writer.add_ssm_time_step_rank(config.mamba_dt_rank if jamba else config.time_step_rank)
    if jamba:
        expert_keys(writer, config)
    else:
        writer.add_ssm_dt_b_c_rms(config.model_type == "falcon_mamba")


def hybrid_keys(writer, config):
    """Of models with Mamba-2 and attention."""
    vocab_keys(writer, config)
    heads, groups, state, conv = ((config.mamba_num_heads, config.n_groups, config.ssm_state_size, config.conv_kernel) if config.model_type == "nemotron_h" else
                                  (config.mamba_n_heads, config.mamba_n_groups, config.mamba_d_state, config.mamba_d_conv))
    writer.add_ssm_conv_kernel(conv)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(inner_size(config))
    writer.add_ssm_time_step_rank(heads)


def inner_size(config):
    if config.model_type == "nemotron_h":
        return config.mamba_num_heads * config.mamba_head_dim
    return config.mamba_n_heads * config.mamba_d_head


def granite_hybrid_keys(writer, config):
    hybrid_keys(writer, config)
    writer.add_rope_dimension_count(rot_dim(config))
    writer.add_rope_scaling_finetuned(config.model_type == "bamba" or config.position_embedding_type == "rope")
    if config.model_type == "bamba":
        return
    granite_keys(writer, config)
    if config.num_local_experts:
        expert_keys(writer, config)
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    else:
        writer.add_feed_forward_length(config.shared_intermediate_size)


def nemotron_h_keys(writer, config):
    hybrid_keys(writer, config)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)  # beside that of RMS norms
    has_experts = "moe" in config.layer_types
    width = config.moe_intermediate_size if has_experts else config.intermediate_size
    writer.add_feed_forward_length([width if kind in ("mlp", "moe") else 0 for kind in config.layer_types])
    if not has_experts:
        return
    expert_keys(writer, config)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_group_count(config.n_group)
    if config.moe_latent_size:
        writer.add_moe_latent_size(config.moe_latent_size)


def ffn_width(config):
    """The columns of a dense feed-forward; LFM2's config states them before an adjustment."""
    if not getattr(config, "block_auto_adjust_ff_dim", False):
        return config.intermediate_size
    width = int(config.block_ffn_dim_multiplier * int(2 * config.intermediate_size / 3))
    return -(-width // config.block_multiple_of) * config.block_multiple_of


def kv_heads(config, usual):
    """The heads of keys and values of a layer, or of each layer in hybrid models that list them."""
    if config.model_type == "kimi_linear":
        return [int(kind == "full_attention") for kind in config.layer_types]
    if hasattr(config, "kv_lora_rank"):
        return 1  # latents
    if dialect_of(config).lists_kv_heads:
        return [config.num_key_value_heads if kind in ("full_attention", "sliding_attention") else 0 for kind in config.layer_types]
    return usual


def gemma4_keys(writer, config):
    is_local = [t == "sliding_attention" for t in config.layer_types]
    wide, narrow = config.per_layer_config["full_attention"], config.per_layer_config["sliding_attention"]
    window_keys(writer, config)
    writer.add_sliding_window_pattern(is_local)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(getattr(config, "hidden_size_per_layer_input", 0))
    writer.add_key_length(wide.head_dim)
    writer.add_value_length(wide.head_dim)
    writer.add_key_length_swa(narrow.head_dim)
    writer.add_value_length_swa(narrow.head_dim)
    writer.add_head_count_kv([narrow.num_key_value_heads if local else wide.num_key_value_heads for local in is_local])
    writer.add_rope_dimension_count(wide.head_dim)
    writer.add_rope_dimension_count_swa(narrow.head_dim)
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    if config.use_double_wide_mlp:
        first = config.num_hidden_layers - config.num_kv_shared_layers
        writer.add_feed_forward_length([config.intermediate_size * (1 if i < first else 2) for i in range(config.num_hidden_layers)])
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if getattr(config, "enable_moe_block", False):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def gemma3n_keys(writer, config):
    window_keys(writer, config)
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_altup_active_idx(config.altup_active_idx)
    writer.add_altup_num_inputs(config.altup_num_inputs)
    writer.add_activation_sparsity_scale(torch.distributions.Normal(0, 1).icdf(torch.tensor(config.activation_sparsity_pattern)).tolist())
    writer.add_final_logit_softcapping(config.final_logit_softcapping)


def temperature_keys(writer, config):
    rope = rope_of(config)
    writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if config.model_type == "ministral3":
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)


def mistral4_keys(writer, config):
    deepseek_keys(writer, config)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)


def cohere_keys(writer, config):
    writer.add_logit_scale(config.logit_scale)
    window_keys(writer, config)
    vocab_keys(writer, config)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])


def cohere_moe_keys(writer, config):
    cohere_keys(writer, config)
    writer.add_feed_forward_length(config.prefix_dense_intermediate_size)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_expert_shared_count(config.num_shared_experts)
    writer.add_expert_shared_feed_forward_length(config.intermediate_size * config.num_shared_experts)
    writer.add_leading_dense_block_count(config.mlp_layer_types.index("sparse"))
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def ernie_moe_keys(writer, config):
    writer.add_expert_count(config.moe_num_experts)
    writer.add_expert_used_count(config.moe_k)
    writer.add_interleave_moe_layer_step(config.moe_layer_interval)
    writer.add_leading_dense_block_count(config.moe_layer_start_index)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.moe_num_shared_experts)
    writer.add_expert_shared_feed_forward_length(config.moe_intermediate_size * config.moe_num_shared_experts)


def apertus_keys(writer, config):
    """The numbers of the activations come from the model: fill_weights() leaves them in the config."""
    for name, values in config.xielu.items():
        getattr(writer, f"add_xielu_{name}")(values)


def llama4_keys(writer, config):
    vocab_keys(writer, config)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_feed_forward_length(config.intermediate_size_mlp)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_expert_shared_feed_forward_length(config.intermediate_size)
    writer.add_leading_dense_block_count(0)


def solar_keys(writer, config):
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_leading_dense_block_count(0)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(config.norm_topk_prob)


def section_keys(writer, config):
    writer.add_rope_dimension_sections([*rope_of(config)["mrope_section"], 0])


def muse_keys(writer, config):
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_logit_scale(config.output_multiplier)
    listed_window_keys(writer, config)


def laguna_keys(writer, config):
    window_keys(writer, config)
    writer.add_sliding_window_pattern(config.layer_types[1:].index("full_attention") + 1)
    writer.add_head_count(config.num_attention_heads_per_layer)
    writer.add_rope_dimension_count(rot_dim(config))
    writer.add_rope_dimension_count_swa(config.head_dim)
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_leading_dense_block_count(config.mlp_layer_types.index("sparse"))
    writer.add_expert_weights_scale(config.moe_routed_scaling_factor)
    writer.add_expert_weights_norm(True)


def ssm_factors(config, n_rows):
    """Falcon-H1's multipliers of the rows of Mamba-2's projection."""
    sizes = [inner_size(config)] * 2 + [config.mamba_n_groups * config.mamba_d_state] * 2 + [config.mamba_n_heads]
    assert sum(sizes) == n_rows
    return np.repeat(np.array(config.ssm_multipliers, np.float32) * config.ssm_in_multiplier, sizes)[:, None]


def falcon_factor(config, name, n_rows):
    """What llama.cpp's converter multiplies a matrix of Falcon-H1 by; 1 for other tensors."""
    c = config
    factors = {"embed_tokens": c.embedding_multiplier, "lm_head": c.lm_head_multiplier, "gate_proj": c.mlp_multipliers[0], "down_proj": c.mlp_multipliers[1],
               "q_proj": c.attention_in_multiplier, "k_proj": c.attention_in_multiplier * c.key_multiplier, "v_proj": c.attention_in_multiplier,
               "o_proj": c.attention_out_multiplier, "out_proj": c.ssm_out_multiplier}
    kind = name.split(".")[-2]
    return ssm_factors(config, n_rows) if kind == "in_proj" else factors.get(kind, 1.0)


@dataclass
class Dialect:
    arch: A
    permuted: bool = False  # reorder rows of q and k from half-split to interleaved rope pairs
    plus_one: bool = False  # transformers stores norms less 1
    keys: Callable = lambda writer, config: None
    lists_kv_heads: bool = False
    has_attention: bool = True
    own_name: str = ""  # of an architecture that the gguf package does not know; `arch` then has the tensors

    @property
    def name(self):
        return self.own_name or gguf.MODEL_ARCH_NAMES[self.arch]


DIALECTS = {
    "llama": Dialect(A.LLAMA, True, keys=llama_keys),
    "mistral": Dialect(A.LLAMA, True, keys=llama_keys),
    "mixtral": Dialect(A.LLAMA, True, keys=both(llama_keys, expert_keys)),
    "qwen2": Dialect(A.QWEN2),
    "qwen3": Dialect(A.QWEN3),
    "qwen2_moe": Dialect(A.QWEN2MOE, keys=expert_keys),
    "qwen3_moe": Dialect(A.QWEN3MOE, keys=expert_keys),
    "qwen3_next": Dialect(A.QWEN3NEXT, plus_one=True, keys=both(expert_keys, delta_keys)),
    "qwen3_5_text": Dialect(A.QWEN35, plus_one=True, keys=delta_keys),
    "qwen3_5_moe_text": Dialect(A.QWEN35MOE, plus_one=True, keys=both(expert_keys, delta_keys)),
    "gemma": Dialect(A.GEMMA, plus_one=True),
    "gemma2": Dialect(A.GEMMA2, plus_one=True, keys=gemma2_keys),
    "gemma3_text": Dialect(A.GEMMA3, plus_one=True, keys=window_keys),
    "gemma4_text": Dialect(A.GEMMA4, keys=gemma4_keys),
    "gemma4_unified_text": Dialect(A.GEMMA4, keys=gemma4_keys),
    "gemma3n_text": Dialect(A.GEMMA3N, keys=gemma3n_keys),
    "ministral3": Dialect(A.MISTRAL3, True, keys=both(llama_keys, temperature_keys)),
    "mistral4": Dialect(A.MISTRAL4, keys=both(mistral4_keys, temperature_keys)),
    "cohere2": Dialect(A.COHERE2, keys=cohere_keys),
    "cohere2_moe": Dialect(A.GLM4_MOE, keys=cohere_moe_keys, own_name="cohere2moe"),
    "glm4": Dialect(A.GLM4, keys=rope_keys),
    "ernie4_5": Dialect(A.ERNIE4_5),
    "ernie4_5_moe": Dialect(A.ERNIE4_5_MOE, keys=ernie_moe_keys),
    "starcoder2": Dialect(A.STARCODER2, keys=window_keys),
    "apertus": Dialect(A.APERTUS, keys=apertus_keys),
    "arcee": Dialect(A.ARCEE, True, keys=llama_keys),
    "hunyuan_v1_dense": Dialect(A.HUNYUAN_DENSE),
    "llama4_text": Dialect(A.LLAMA4, keys=llama4_keys),
    "phimoe": Dialect(A.PHIMOE, keys=expert_keys),
    "solar_open": Dialect(A.GLM4_MOE, keys=both(expert_keys, rope_keys, sigmoid_keys, solar_keys)),
    "laguna": Dialect(A.GLM4_MOE, keys=both(expert_keys, sigmoid_keys, laguna_keys), own_name="laguna"),
    "muse_glimmer_text": Dialect(A.GEMMA3, True, True, keys=muse_keys, own_name="muse-glimmer"),
    "qwen2_5_vl_text": Dialect(A.QWEN2VL, keys=section_keys),
    "qwen3_vl_text": Dialect(A.QWEN3VL, keys=section_keys),
    "qwen3_vl_moe_text": Dialect(A.QWEN3VLMOE, keys=both(section_keys, expert_keys)),
    "phi3": Dialect(A.PHI3, keys=phi3_keys),
    "smollm3": Dialect(A.SMOLLM3, True, keys=llama_keys),
    "granite": Dialect(A.GRANITE, True, keys=granite_keys),
    "granitemoe": Dialect(A.GRANITE_MOE, True, keys=both(granite_keys, expert_keys)),
    "olmo2": Dialect(A.OLMO2),
    "gpt_oss": Dialect(A.GPT_OSS, keys=gpt_oss_keys),
    "deepseek_v2": Dialect(A.DEEPSEEK2, keys=deepseek_keys),
    "deepseek_v3": Dialect(A.DEEPSEEK2, keys=deepseek_keys),
    "glm4_moe_lite": Dialect(A.DEEPSEEK2, keys=deepseek_keys),
    "olmo3": Dialect(A.OLMO2, keys=listed_window_keys),
    "olmo_hybrid": Dialect(A.OLMO2, keys=olmo_hybrid_keys, lists_kv_heads=True, own_name="olmo-hybrid"),
    "olmoe": Dialect(A.OLMOE, keys=expert_keys),
    "seed_oss": Dialect(A.SEED_OSS),
    "exaone4": Dialect(A.EXAONE4, keys=both(listed_window_keys, vocab_keys)),
    "glm4_moe": Dialect(A.GLM4_MOE, keys=both(expert_keys, rope_keys, sigmoid_keys, glm_keys)),
    "minimax_m2": Dialect(A.MINIMAXM2, keys=both(expert_keys, rope_keys, sigmoid_keys, minimax_keys)),
    "lfm2": Dialect(A.LFM2, keys=lfm2_keys, lists_kv_heads=True),
    "lfm3": Dialect(A.LFM2, keys=lfm3_keys, lists_kv_heads=True, own_name="lfm3"),
    "mamba2": Dialect(A.MAMBA2, keys=mamba2_keys, has_attention=False),
    "mamba": Dialect(A.MAMBA, keys=mamba1_keys, has_attention=False),
    "falcon_mamba": Dialect(A.MAMBA, keys=mamba1_keys, has_attention=False),
    "jamba": Dialect(A.JAMBA, keys=mamba1_keys, lists_kv_heads=True),
    "kimi_linear": Dialect(A.KIMI_LINEAR, keys=kimi_linear_keys, lists_kv_heads=True),
    "recurrent_gemma": Dialect(A.GEMMA, plus_one=True, keys=recurrent_gemma_keys, own_name="recurrentgemma"),
    "granitemoehybrid": Dialect(A.GRANITE_HYBRID, True, keys=granite_hybrid_keys, lists_kv_heads=True),
    "bamba": Dialect(A.GRANITE_HYBRID, True, keys=granite_hybrid_keys, lists_kv_heads=True),
    "nemotron_h": Dialect(A.NEMOTRON_H, keys=nemotron_h_keys, lists_kv_heads=True),
    "nemotron_h_moe": Dialect(A.NEMOTRON_H_MOE, keys=nemotron_h_keys, lists_kv_heads=True),
    "falcon_h1": Dialect(A.FALCON_H1, keys=hybrid_keys),
    "lfm2_moe": Dialect(A.LFM2MOE, keys=both(lfm2_keys, lfm2_moe_keys), lists_kv_heads=True),
}

def dialect_of(config):
    has_experts = config.model_type == "nemotron_h" and "moe" in config.layer_types
    return DIALECTS["nemotron_h_moe" if has_experts else config.model_type]

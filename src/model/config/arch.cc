#include "model/config/arch.h"

#include <string>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

// Keys shared by the files of some families, with the values that transformers uses if the file lacks the key.
#define WINDOWS R"("sliding_window": 4096, "use_sliding_window": false, "max_window_layers": 28, "layer_types": null)"
#define DELTA R"("partial_rotary_factor": 0.25, "layer_types": null, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4)"
#define GEMMA R"("head_dim": 256, "tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 4096, "layer_types": null)"
#define GRANITE R"("embedding_multiplier": 1.0, "attention_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1.0)"
#define LATENT R"("q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128)"
#define GEMMA3 "{" GEMMA R"(, "num_attention_heads": 8, "num_key_value_heads": 4, "final_logit_softcapping": null, "rope_theta": 1000000.0, "rope_local_base_freq": null, "sliding_window_pattern": null, "_sliding_window_pattern": null, "use_bidirectional_attention": false, "vocab_size": 262208, "max_position_embeddings": 131072})"
#define MAMBA1 R"("num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 1, "max_position_embeddings": 1048576, "layer_norm_epsilon": 1e-5, "state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": "auto", "use_bias": false, "use_conv_bias": true, "tie_word_embeddings": true)"
#define MAMBA R"("mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true, "mamba_proj_bias": false, "time_step_limit": null)"
#define LFM2 R"("num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0, "tie_word_embeddings": true, "tie_embedding": null, "conv_bias": false, "conv_L_cache": 3, "layer_types": null)"
#define GEMMA4 R"("tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "layer_types": null, "final_logit_softcapping": null, "use_bidirectional_attention": null, "global_head_dim": 512, "num_global_key_value_heads": null, "attention_k_eq_v": false, "num_kv_shared_layers": 0, "use_double_wide_mlp": false, "partial_rotary_factor": 1.0, "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})"
#define ENCODER R"("position_embedding_type": "absolute", "is_decoder": false, "add_cross_attention": false)"
#define BERT ENCODER R"(, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2)"
constexpr const char* kRobertaKeys = "{" BERT R"(, "pad_token_id": 1})";
constexpr const char* kDeepseek3Keys = "{" LATENT R"(, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "rope_interleave": true, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4})";

constexpr const char* kNemotronKeys = R"({"num_hidden_layers": null, "layers_block_type": null, "hybrid_override_pattern": null, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096, "intermediate_size": 21504, "mlp_hidden_act": "relu2", "layer_norm_epsilon": 1e-5, "sliding_window": null, "ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": true, "use_bias": false, "time_step_limit": null, "n_shared_experts": 1, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688, "moe_latent_size": null, "num_experts_per_tok": 2, "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1, "norm_topk_prob": true})";
constexpr const char* kThreeDeltaNets = "delta_net/ffn delta_net/ffn delta_net/ffn attention/ffn";

constexpr Arch kArchs[] = {
    {.gguf_name = "llama", .hf_name = "llama", .gguf_rope = RopeLayout::kInterleaved, .normalizes_experts = true},
    {.gguf_name = "llama", .hf_name = "mistral", .gguf_rope = RopeLayout::kInterleaved,
     .hf_defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})"},
    {.gguf_name = "llama", .hf_name = "mixtral", .gguf_rope = RopeLayout::kInterleaved, .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": null, "num_experts_per_tok": 2})"},
    {.gguf_name = "qwen2", .hf_name = "qwen2", .hf_window_opt_in = true,
     .hf_defaults = "{" WINDOWS "}"},
    {.gguf_name = "qwen2", .hf_name = "mimo", .hf_window_opt_in = true,
     .hf_defaults = "{" WINDOWS "}"},
    {.gguf_name = "qwen2moe", .hf_name = "qwen2_moe", .hf_window_opt_in = true,
     .hf_defaults = "{" WINDOWS R"(, "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": null, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632})"},
    {.gguf_name = "qwen3", .hf_name = "qwen3", .hf_window_opt_in = true,
     .hf_defaults = "{" WINDOWS R"(, "head_dim": 128})"},
    {.gguf_name = "qwen3moe", .hf_name = "qwen3_moe", .hf_window_opt_in = true, .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 4, "sliding_window": 4096, "use_sliding_window": false, "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": null, "num_experts_per_tok": 8, "moe_intermediate_size": 768})"},
    {.gguf_name = "qwen3next", .hf_name = "qwen3_next", .norm_weight_plus_one = true, .gguf_ffn_norm_is_post = true, .layers = kThreeDeltaNets, .gates_attention = true,
     .normalizes_experts = true,
     .hf_defaults = "{" DELTA R"(, "num_key_value_heads": 2, "head_dim": 256, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": null, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512})"},
    {.gguf_name = "qwen35", .hf_name = "qwen3_5_text", .norm_weight_plus_one = true, .gguf_ffn_norm_is_post = true, .layers = kThreeDeltaNets,
     .tiles_value_heads = true, .gates_attention = true,
     .hf_defaults = "{" DELTA R"(, "num_key_value_heads": 4, "head_dim": 256})"},
    {.gguf_name = "qwen35moe", .hf_name = "qwen3_5_moe_text", .norm_weight_plus_one = true, .gguf_ffn_norm_is_post = true, .layers = kThreeDeltaNets,
     .tiles_value_heads = true, .gates_attention = true, .normalizes_experts = true,
     .hf_defaults = "{" DELTA R"(, "num_key_value_heads": 2, "head_dim": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512})"},
    {.gguf_name = "gemma", .hf_name = "gemma", .activation = Activation::kGeluTanh, .norm_weight_plus_one = true, .scales_embedding = true,
     .hf_defaults = R"({"head_dim": 256, "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh"})"},
    {.gguf_name = "gemma2", .hf_name = "gemma2", .activation = Activation::kGeluTanh, .post_norms = true, .norm_weight_plus_one = true,
     .scales_embedding = true, .window_period = 2, .wide_scale_layers = 46,
     .hf_defaults = "{" GEMMA R"(, "num_key_value_heads": 4, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})"},
    {.gguf_name = "gemma3", .hf_name = "gemma3_text", .activation = Activation::kGeluTanh, .post_norms = true, .norm_weight_plus_one = true,
     .scales_embedding = true, .window_period = 6, .local_theta = 10000, .wide_scale_layers = 62,
     .hf_defaults = GEMMA3},
    {.gguf_name = "gemma-embedding", .hf_name = "gemma3_text", .activation = Activation::kGeluTanh, .post_norms = true, .norm_weight_plus_one = true,
     .scales_embedding = true, .window_period = 6, .local_theta = 10000, .bidirectional = true,
     .hf_defaults = GEMMA3},
    {.gguf_name = "gemma4", .hf_name = "gemma4_text", .activation = Activation::kGeluTanh, .post_norms = true, .scales_embedding = true,
     .window_period = 6, .local_theta = 10000, .layers = "attention/ffn/layer_end", .norms_values = true, .values_may_be_keys = true,
     .score_scale = 1, .dense_beside_experts = true, .normalizes_experts = true,
     .hf_defaults = "{" GEMMA4 R"(, "sliding_window": 512, "max_position_embeddings": 131072, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "enable_moe_block": false, "num_experts": null, "top_k_experts": null, "moe_intermediate_size": null})"},
    {.gguf_name = "gemma4", .hf_name = "gemma4_unified_text", .activation = Activation::kGeluTanh, .post_norms = true, .scales_embedding = true,
     .window_period = 6, .local_theta = 10000, .layers = "attention/ffn/layer_end", .norms_values = true, .values_may_be_keys = true, .score_scale = 1,
     .hf_defaults = "{" GEMMA4 R"(, "sliding_window": 1024, "max_position_embeddings": 262144})"},
    {.gguf_name = "gemma3n", .hf_name = "gemma3n_text", .activation = Activation::kGeluTanh, .post_norms = true, .scales_embedding = true,
     .window_period = 5, .local_theta = 10000, .layers = "altup_predict/attention+laurel/ffn/altup_correct", .norms_values = true, .score_scale = 1,
     .hf_defaults = R"({"tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 32768, "layer_types": null, "sliding_window": 512, "rope_theta": 1000000.0, "rope_local_base_freq": null, "final_logit_softcapping": 30.0, "vocab_size": 262400, "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256, "altup_active_idx": 0, "altup_coef_clip": 120.0, "altup_correct_scale": true, "altup_num_inputs": 4, "num_kv_shared_layers": 15, "laurel_rank": 64, "activation_sparsity_pattern": null})"},
    {.gguf_name = "phi3", .hf_name = "phi3", .fused = true,
     .hf_defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": null, "partial_rotary_factor": 1.0, "original_max_position_embeddings": 4096})"},
    {.gguf_name = "smollm3", .hf_name = "smollm3", .gguf_rope = RopeLayout::kInterleaved, .hf_window_opt_in = true, .no_rope_period = 4,
     .hf_defaults = R"({"num_key_value_heads": 4, "tie_word_embeddings": true, "rope_theta": 2000000.0, "sliding_window": null, "use_sliding_window": false, "layer_types": null, "no_rope_layers": null, "no_rope_layer_interval": null})"},
    {.gguf_name = "granite", .hf_name = "granite", .gguf_rope = RopeLayout::kInterleaved,
     .hf_defaults = "{" GRANITE "}"},
    {.gguf_name = "granitemoe", .hf_name = "granitemoe", .gguf_rope = RopeLayout::kInterleaved, .normalizes_experts = true,
     .hf_defaults = "{" GRANITE R"(, "num_experts_per_tok": 2})"},
    {.gguf_name = "olmo2", .hf_name = "olmo2", .pre_norms = false, .post_norms = true, .norms_all_heads = true, .window_period = 4,
     .local_theta = kSameTheta,
     .hf_defaults = R"({"rms_norm_eps": 1e-5})"},
    {.gguf_name = "olmo2", .hf_name = "olmo3", .pre_norms = false, .post_norms = true, .norms_all_heads = true, .window_period = 4,
     .local_theta = kSameTheta,
     .hf_defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "sliding_window": 4096, "layer_types": null})"},
    {.gguf_name = "olmo-hybrid", .hf_name = "olmo_hybrid", .attention_norms_outputs = true, .norms_all_heads = true, .lists_kv_heads = true,
     .layers = "gated_delta/ffn gated_delta/ffn gated_delta/ffn attention/ffn", .rope_opt_in = true,
     .hf_defaults = R"({"position_embedding_type": "rope", "max_position_embeddings": 65536, "num_key_value_heads": null, "layer_types": null, "linear_num_key_heads": null, "linear_num_value_heads": null, "linear_key_head_dim": null, "linear_value_head_dim": null, "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": true})"},
    {.gguf_name = "olmoe", .hf_name = "olmoe", .norms_all_heads = true,
     .hf_defaults = R"({"num_key_value_heads": null, "rms_norm_eps": 1e-5, "num_experts_per_tok": 8, "norm_topk_prob": false, "clip_qkv": null})"},
    {.gguf_name = "seed_oss", .hf_name = "seed_oss", .gguf_ffn_norm_is_post = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": 128})"},
    {.gguf_name = "exaone4", .hf_name = "exaone4", .pre_norms = false, .post_norms = true, .window_period = 4, .rope_needs_window = true,
     .hf_defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4, "layer_types": null})"},
    {.gguf_name = "glm4moe", .hf_name = "glm4_moe", .scoring = Scoring::kSigmoid, .gguf_ffn_norm_is_post = true, .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1})"},
    {.gguf_name = "minimax-m2", .hf_name = "minimax_m2", .scoring = Scoring::kSigmoid, .norms_all_heads = true, .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5000000.0, "rotary_dim": null, "partial_rotary_factor": null, "num_experts_per_tok": 8})"},
    {.gguf_name = "deepseek2", .hf_name = "deepseek_v2", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .layers = "latent_attention/ffn",
     .hf_defaults = "{" LATENT R"(, "n_shared_experts": 2, "norm_topk_prob": null, "routed_scaling_factor": 1.0, "num_experts_per_tok": null, "moe_intermediate_size": 1407, "first_k_dense_replace": 0, "n_group": null, "topk_group": null, "topk_method": "greedy"})"},
    {.gguf_name = "deepseek2", .hf_name = "deepseek_v3", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .scoring = Scoring::kSigmoid, .layers = "latent_attention/ffn", .normalizes_experts = true,
     .hf_defaults = kDeepseek3Keys},
    {.gguf_name = "deepseek2", .hf_name = "kimi_k2", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .scoring = Scoring::kSigmoid, .layers = "latent_attention/ffn", .normalizes_experts = true,
     .hf_defaults = kDeepseek3Keys},
    {.gguf_name = "deepseek2", .hf_name = "glm4_moe_lite", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .scoring = Scoring::kSigmoid, .layers = "latent_attention/ffn", .normalizes_experts = true,
     .hf_defaults = R"({"rms_norm_eps": 1e-5, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.8, "rope_interleave": true, "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "mlp_layer_types": null, "n_group": 1, "topk_group": 1})"},
    {.gguf_name = "gpt-oss", .hf_name = "gpt_oss", .activation = Activation::kClampedSwiglu, .gguf_ffn_norm_is_post = true, .window_period = 2,
     .interleaved_experts = true, .normalizes_experts = true, .yarn_truncates = false,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5, "attention_bias": true, "rope_theta": 150000.0, "sliding_window": 128, "layer_types": null, "num_experts_per_tok": 4, "swiglu_limit": 7.0, "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}})"},
    {.gguf_name = "lfm2", .hf_name = "lfm2", .final_norm_is_embed = true, .lists_kv_heads = true, .layers = "short_conv/ffn attention/ffn",
     .hf_defaults = "{" LFM2 R"(, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": true, "block_ff_dim": null, "full_attn_idxs": null, "intermediate_size": 12288})"},
    {.gguf_name = "lfm2moe", .hf_name = "lfm2_moe", .scoring = Scoring::kSigmoid, .final_norm_is_embed = true, .lists_kv_heads = true,
     .layers = "short_conv/ffn attention/ffn", .normalizes_experts = true,
     .hf_defaults = "{" LFM2 R"(, "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "use_expert_bias": true, "routed_scaling_factor": 1.0, "norm_topk_prob": true})"},
    {.gguf_name = "lfm3", .hf_name = "lfm3", .post_norms = true, .final_norm_is_embed = true, .lists_kv_heads = true, .local_theta = 10000,
     .layers = "short_conv/ffn attention/ffn", .gates_outputs = true,
     .hf_defaults = R"({"norm_eps": 1e-5, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 7680, "max_position_embeddings": 128000, "tie_word_embeddings": true, "conv_bias": false, "conv_L_cache": 7, "sliding_window": 256, "layer_types": null, "use_sandwich_norm": true, "use_attention_gate": true, "partial_rotary_factor": 1.0, "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5}}})"},
    {.gguf_name = "mamba2", .hf_name = "mamba2", .layers = "mamba2",
     .hf_defaults = R"({"num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 1, "max_position_embeddings": 1048576, "layer_norm_epsilon": 1e-5, "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128, "conv_kernel": 4, "expand": 2, "use_bias": false, "use_conv_bias": true, "time_step_limit": null})"},
    {.gguf_name = "mamba", .hf_name = "mamba", .layers = "mamba1",
     .hf_defaults = "{" MAMBA1 "}"},
    {.gguf_name = "mamba", .hf_name = "falcon_mamba", .layers = "mamba1",
     .hf_defaults = "{" MAMBA1 R"(, "mixer_rms_eps": 1e-6})"},
    {.gguf_name = "jamba", .hf_name = "jamba", .lists_kv_heads = true, .no_rope_period = 1, .layers = "mamba1/ffn attention/ffn",
     .routers_mark_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "max_position_embeddings": 262144, "num_experts": 16, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": "auto", "mamba_conv_bias": true, "mamba_proj_bias": false})"},
    {.gguf_name = "kimi-linear", .hf_name = "kimi_linear", .scoring = Scoring::kSigmoid, .lists_kv_heads = true, .no_rope_period = 1,
     .layers = "kda/ffn latent_attention/ffn", .normalizes_experts = true,
     .hf_defaults = R"({"rms_norm_eps": 1e-5, "model_max_length": 1048576, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_shared_experts": 1, "moe_renormalize": true, "routed_scaling_factor": 2.446, "num_experts": 256, "num_experts_per_token": 8, "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "mlp_layer_types": null, "num_expert_group": 1, "topk_group": 1, "layer_types": null, "linear_attn_config": null, "linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4})"},
    {.gguf_name = "recurrentgemma", .hf_name = "recurrent_gemma", .activation = Activation::kGeluTanh, .norm_weight_plus_one = true, .scales_embedding = true,
     .lists_kv_heads = true, .layers = "rg_lru/ffn attention/ffn", .rounds_embedding_scale = true,
     .hf_defaults = R"({"max_position_embeddings": 8192, "lru_width": null, "attention_window_size": 2048, "conv1d_width": 4, "logits_soft_cap": 30.0, "hidden_activation": "gelu_pytorch_tanh", "partial_rotary_factor": 0.5, "block_types": ["recurrent", "recurrent", "attention"], "num_key_value_heads": null, "tie_word_embeddings": true})"},
    {.gguf_name = "granitehybrid", .hf_name = "granitemoehybrid", .gguf_rope = RopeLayout::kInterleaved, .lists_kv_heads = true,
     .layers = "mamba2/ffn attention/ffn", .rope_opt_in = true, .normalizes_experts = true,
     .hf_defaults = "{" MAMBA ", " GRANITE R"(, "layer_types": null, "position_embedding_type": null, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024})"},
    {.gguf_name = "granitehybrid", .hf_name = "bamba", .gguf_rope = RopeLayout::kInterleaved, .lists_kv_heads = true,
     .layers = "mamba2/ffn attention/ffn",
     .hf_defaults = "{" MAMBA R"(, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 262144, "attn_layer_indices": null, "partial_rotary_factor": 0.5})"},
    {.gguf_name = "nemotron_h", .hf_name = "nemotron_h", .activation = Activation::kSquaredRelu, .gated = false, .lists_kv_heads = true,
     .no_rope_period = 1, .layers = "mamba2 attention feed_forward", .one_part = true, .one_norm = true,
     .hf_defaults = kNemotronKeys},
    {.gguf_name = "nemotron_h_moe", .hf_name = "nemotron_h", .activation = Activation::kSquaredRelu, .scoring = Scoring::kSigmoid, .gated = false,
     .lists_kv_heads = true, .no_rope_period = 1, .layers = "mamba2 attention feed_forward experts", .one_part = true, .of_experts = true, .one_norm = true,
     .normalizes_experts = true,
     .hf_defaults = kNemotronKeys},
    {.gguf_name = "falcon-h1", .hf_name = "falcon_h1", .layers = "mamba2+attention/ffn",
     .hf_defaults = "{" MAMBA R"(, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192, "head_dim": null, "mamba_d_ssm": 1024, "mamba_norm_before_gate": true, "mamba_rms_norm": false, "projectors_bias": false, "mlp_bias": false, "lm_head_multiplier": 1.0, "embedding_multiplier": 1.0, "mlp_multipliers": null, "key_multiplier": 1.0, "attention_out_multiplier": 1.0, "attention_in_multiplier": 1.0, "ssm_multipliers": null, "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0})"},
    {.gguf_name = "zamba2", .hf_name = "zamba2", .activation = Activation::kGelu,
     .layers = "mamba2 shared_transformer+mamba2",
     .hf_defaults = R"({"layers_block_type": null, "num_key_value_heads": null, "attention_head_dim": null, "hidden_act": "gelu", "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 8, "mamba_headdim": null, "use_conv_bias": true, "time_step_min": 0.001, "num_mem_blocks": 1, "adapter_rank": 128, "use_shared_attention_adapter": false, "use_mem_rope": false, "use_long_context": false, "add_bias_linear": false, "tie_word_embeddings": true})"},
    {.gguf_name = "rwkv7", .hf_name = "rwkv7", .activation = Activation::kSquaredRelu, .norm = NormKind::kLayer, .gated = false,
     .layers = "rwkv7/channel_mix", .norms_embedding = true,
     .hf_defaults = R"({"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64, "norm_eps": 1e-5, "norm_first": true, "hidden_act": "sqrelu", "max_position_embeddings": 2048, "attn": null, "value_dim": null, "decay_low_rank_dim": null, "a_low_rank_dim": null, "v_low_rank_dim": null, "gate_low_rank_dim": null})"},
    {.gguf_name = "llama", .hf_name = "ministral", .gguf_rope = RopeLayout::kInterleaved,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": null, "sliding_window": 4096, "layer_types": null})"},
    {.gguf_name = "mistral3", .hf_name = "ministral3", .gguf_rope = RopeLayout::kInterleaved,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "sliding_window": null, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}})"},
    {.gguf_name = "mistral4", .hf_name = "mistral4", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .layers = "latent_attention/ffn", .normalizes_experts = true,
     .hf_defaults = R"({"rms_norm_eps": 1e-6, "q_lora_rank": 1024, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "rope_interleave": true, "num_experts_per_tok": 4, "moe_intermediate_size": 2048, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 128.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}})"},
    {.gguf_name = "qwen3vl", .hf_name = "qwen3_vl_text",
     .hf_defaults = R"({"num_key_value_heads": 32, "head_dim": 128, "rope_theta": 500000.0})"},
    {.gguf_name = "qwen3vlmoe", .hf_name = "qwen3_vl_moe_text", .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 16, "rope_theta": 500000.0, "decoder_sparse_step": 1, "mlp_only_layers": null, "num_experts_per_tok": 4, "moe_intermediate_size": 1408})"},
    {.gguf_name = "qwen2vl", .hf_name = "qwen2_vl_text", .hf_window_opt_in = true,
     .hf_defaults = "{" WINDOWS R"(, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0})"},
    {.gguf_name = "qwen2vl", .hf_name = "qwen2_5_vl_text", .hf_window_opt_in = true,
     .hf_defaults = "{" WINDOWS R"(, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0})"},
    {.gguf_name = "qwen2vl", .hf_name = "qwen2_5_omni_text", .hf_window_opt_in = true,
     .hf_defaults = "{" WINDOWS R"(, "num_key_value_heads": 4, "rope_theta": 1000000.0})"},
    {.gguf_name = "qwen3vlmoe", .hf_name = "qwen3_omni_moe_text", .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 4, "rope_theta": 1000000.0, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": null, "num_experts_per_tok": 8, "moe_intermediate_size": 768})"},
    {.gguf_name = "cohere2", .hf_name = "cohere2", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved, .norm = NormKind::kLayer,
     .window_period = 4, .rope_needs_window = true, .layers = "attention+ffn", .one_norm = true, .scales_logits = true,
     .hf_defaults = R"({"num_key_value_heads": null, "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096, "layer_types": null, "tie_word_embeddings": true})"},
    {.gguf_name = "cohere2moe", .hf_name = "cohere2_moe", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .norm = NormKind::kLayer, .window_period = 4, .rope_needs_window = true, .layers = "attention+ffn", .one_norm = true, .norm_by_eps = true,
     .scales_logits = true,
     .hf_defaults = R"({"num_key_value_heads": null, "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096, "layer_types": null, "tie_word_embeddings": true, "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 0, "norm_topk_prob": true, "expert_selection_fn": "softmax", "shared_expert_combination_strategy": "average", "mlp_layer_types": null, "prefix_dense_intermediate_size": null, "prefix_dense_sliding_window_pattern": 1})"},
    {.gguf_name = "glm4", .hf_name = "glm4", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved, .post_norms = true,
     .fused_ffn = true,
     .hf_defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5})"},
    {.gguf_name = "ernie4_5", .hf_name = "ernie4_5", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .hf_defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": true})"},
    {.gguf_name = "ernie4_5-moe", .hf_name = "ernie4_5_moe", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": true, "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1})"},
    {.gguf_name = "starcoder2", .hf_name = "starcoder2", .activation = Activation::kGeluTanh, .norm = NormKind::kLayer, .gated = false,
     .hf_defaults = R"({"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "sliding_window": null, "tie_word_embeddings": true})"},
    {.gguf_name = "apertus", .hf_name = "apertus", .gated = false,
     .hf_defaults = R"({"num_key_value_heads": null, "hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12000000.0, "rope_parameters": {"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}})"},
    {.gguf_name = "arcee", .hf_name = "arcee", .gguf_rope = RopeLayout::kInterleaved, .activation = Activation::kSquaredRelu, .gated = false,
     .hf_defaults = R"({"num_key_value_heads": null, "hidden_act": "relu2", "rms_norm_eps": 1e-5})"},
    {.gguf_name = "hunyuan-dense", .hf_name = "hunyuan_v1_dense", .norms_after_rope = true,
     .hf_defaults = R"({"num_key_value_heads": null, "rms_norm_eps": 1e-5})"},
    {.gguf_name = "llama4", .hf_name = "llama4_text", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .scoring = Scoring::kSigmoid, .no_rope_period = 4, .norms_heads = true, .norms_after_rope = true, .scales_expert_input = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1, "n_shared_experts": 1, "moe_layers": null, "interleave_moe_layer_step": 1, "use_qk_norm": true, "no_rope_layers": null, "no_rope_layer_interval": 4, "attention_chunk_size": 8192, "layer_types": null, "attn_temperature_tuning": true, "floor_scale": 8192, "attn_scale": 0.1})"},
    {.gguf_name = "phimoe", .hf_name = "phimoe", .scoring = Scoring::kSparseMixer, .norm = NormKind::kLayer,
     .hf_defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": null, "num_experts_per_tok": 2, "num_local_experts": 16})"},
    {.gguf_name = "glm4moe", .hf_name = "solar_open", .scoring = Scoring::kSigmoid, .gguf_ffn_norm_is_post = true, .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "moe_intermediate_size": 1280, "num_experts_per_tok": 8, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1})"},
    {.gguf_name = "laguna", .hf_name = "laguna", .scoring = Scoring::kSigmoid, .window_period = 4, .first_is_global = true, .local_theta = 10000, .gates_outputs = true, .softplus_gate = true,
     .normalizes_experts = true,
     .hf_defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 512, "layer_types": null, "partial_rotary_factor": 1.0, "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}, "gating": true, "num_attention_heads_per_layer": null, "mlp_layer_types": null, "first_k_dense_replace": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "moe_routed_scaling_factor": 1.0, "moe_router_logit_softcapping": 0.0, "moe_apply_router_weight_on_input": false})"},
    {.gguf_name = "muse-glimmer", .hf_name = "muse_glimmer_text", .gguf_rope = RopeLayout::kInterleaved, .post_norms = true, .norm_weight_plus_one = true,
     .window_period = 4, .rope_needs_window = true, .norms_heads = true,
     .gates_outputs = true, .normalizes_embedding = true, .scales_logits = true,
     .hf_defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "hidden_activation": "silu", "rms_norm_eps": 1e-5, "sliding_window": 2048, "layer_types": null, "final_logit_softcapping": 20.0, "qk_scale_factor": 3.87, "output_multiplier": 0.19611613513818404, "post_norm_eps": 1e-8, "layer_rope_theta": null})"},
    {.gguf_name = "bert", .hf_name = "bert", .activation = Activation::kGelu, .norm = NormKind::kLayer, .pre_norms = false, .sum_norms = true,
     .gated = false, .bidirectional = true, .encoder = true, .learned_positions = true,
     .hf_defaults = "{" BERT "}"},
    {.gguf_name = "bert", .hf_name = "roberta", .activation = Activation::kGelu, .norm = NormKind::kLayer, .pre_norms = false, .sum_norms = true,
     .gated = false, .bidirectional = true, .encoder = true, .learned_positions = true, .positions_after_pad = true,
     .hf_defaults = kRobertaKeys},
    {.gguf_name = "bert", .hf_name = "xlm-roberta", .activation = Activation::kGelu, .norm = NormKind::kLayer, .pre_norms = false, .sum_norms = true,
     .gated = false, .bidirectional = true, .encoder = true, .learned_positions = true, .positions_after_pad = true,
     .hf_defaults = kRobertaKeys},
    {.gguf_name = "bert", .hf_name = "camembert", .activation = Activation::kGelu, .norm = NormKind::kLayer, .pre_norms = false, .sum_norms = true,
     .gated = false, .bidirectional = true, .encoder = true, .learned_positions = true, .positions_after_pad = true,
     .hf_defaults = kRobertaKeys},
    {.gguf_name = "nomic-bert", .hf_name = "nomic_bert", .norm = NormKind::kLayer, .pre_norms = false, .sum_norms = true, .bidirectional = true,
     .encoder = true,
     .hf_defaults = "{" ENCODER R"(, "n_layer": null, "n_embd": null, "n_head": null, "n_inner": null, "n_positions": null, "activation_function": null, "layer_norm_eps": 1e-12, "layer_norm_epsilon": null, "rotary_emb_base": null, "rotary_emb_fraction": null, "type_vocab_size": 2, "prenorm": false, "use_rms_norm": false, "rotary_emb_interleaved": false})"},
    {.gguf_name = "modern-bert", .hf_name = "modernbert", .activation = Activation::kGelu, .norm = NormKind::kLayer, .fused = true,
     .window_period = 3, .first_is_global = true, .local_theta = 10000, .bidirectional = true, .encoder = true,
     .hf_defaults = "{" ENCODER R"(, "hidden_activation": "gelu", "norm_eps": 1e-5, "local_attention": 128, "layer_types": null, "global_attn_every_n_layers": null, "global_rope_theta": 160000.0, "local_rope_theta": null})"},
};

#undef BERT
#undef ENCODER
#undef WINDOWS
#undef DELTA
#undef GEMMA
#undef GEMMA4
#undef GEMMA3
#undef GRANITE
#undef LATENT
#undef MAMBA
#undef MAMBA1
#undef LFM2

// The rows that files have added, the newest first, then the rows of the table.
std::vector<const Arch*>& added_rows() {
  static std::vector<const Arch*> all;
  return all;
}
std::vector<const Arch*> rows() {
  std::vector<const Arch*> all = added_rows();
  for (const Arch& arch : kArchs) all.push_back(&arch);
  return all;
}

const Arch& find(std::string_view name, const char* Arch::*dialect) {
  std::string known, last;
  for (const Arch* arch : rows()) {
    if (name == arch->*dialect) return *arch;
    if (last == arch->*dialect) continue;
    last = arch->*dialect;
    known += (known.empty() ? "" : ", ") + printable(last);
  }
  throw Error("architecture '{}' is not supported; supported are {}", printable(name), known);
}

}  // namespace

std::span<const Arch> all_archs() { return kArchs; }
void add_to_table(const Arch& arch) { added_rows().insert(added_rows().begin(), &arch); }

const Arch& find_gguf_arch(std::string_view name) { return find(name, &Arch::gguf_name); }
const Arch& find_hf_arch(std::string_view name, bool bidirectional, bool of_experts) {
  const Arch& first = find(name, &Arch::hf_name);
  const auto fits = [&](const Arch& arch) { return name == arch.hf_name && arch.bidirectional == bidirectional; };
  for (const Arch* arch : rows())
    if (fits(*arch) && arch->of_experts == of_experts) return *arch;
  for (const Arch* arch : rows())
    if (fits(*arch)) return *arch;
  if (bidirectional) throw Error("architecture '{}' is not supported with bidirectional attention", printable(name));
  return first;
}

std::string hf_defaults_of(std::string_view model_type) {
  for (const Arch* arch : rows())
    if (model_type == arch->hf_name) return arch->hf_defaults;
  return "{}";
}

}  // namespace ingot

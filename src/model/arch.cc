#include "model/arch.h"

#include <string>

#include "base/error.h"

namespace ingot {
namespace {

constexpr Arch kArchs[] = {
    {.gguf_name = "llama", .hf_name = "llama", .gguf_rope = RopeLayout::kInterleaved, .normalizes_experts = true},
    {.gguf_name = "llama", .hf_name = "mistral", .gguf_rope = RopeLayout::kInterleaved},
    {.gguf_name = "llama", .hf_name = "mixtral", .gguf_rope = RopeLayout::kInterleaved, .normalizes_experts = true},
    {.gguf_name = "qwen2", .hf_name = "qwen2", .hf_window_opt_in = true},
    {.gguf_name = "qwen2moe", .hf_name = "qwen2_moe", .hf_window_opt_in = true},
    {.gguf_name = "qwen3", .hf_name = "qwen3", .hf_window_opt_in = true},
    {.gguf_name = "qwen3moe", .hf_name = "qwen3_moe", .hf_window_opt_in = true, .normalizes_experts = true},
    {.gguf_name = "qwen3next", .hf_name = "qwen3_next", .hf_norms_less_one = true, .gguf_ffn_norm_is_post = true, .delta_period = 4, .gates_attention = true,
     .normalizes_experts = true, .hf_defaults = R"({"partial_rotary_factor": 0.25})"},
    {.gguf_name = "qwen35", .hf_name = "qwen3_5_text", .hf_norms_less_one = true, .gguf_ffn_norm_is_post = true, .delta_period = 4,
     .tiles_value_heads = true, .gates_attention = true, .hf_defaults = R"({"partial_rotary_factor": 0.25})"},
    {.gguf_name = "qwen35moe", .hf_name = "qwen3_5_moe_text", .hf_norms_less_one = true, .gguf_ffn_norm_is_post = true, .delta_period = 4,
     .tiles_value_heads = true, .gates_attention = true, .normalizes_experts = true, .hf_defaults = R"({"partial_rotary_factor": 0.25})"},
    {.gguf_name = "gemma", .hf_name = "gemma", .activation = Activation::kGeluTanh, .hf_norms_less_one = true, .scales_embedding = true,
     .hf_defaults = R"({"tie_word_embeddings": true, "head_dim": 256})"},
    {.gguf_name = "gemma2", .hf_name = "gemma2", .activation = Activation::kGeluTanh, .post_norms = true, .hf_norms_less_one = true,
     .scales_embedding = true, .window_period = 2, .wide_scale_layers = 46,
     .hf_defaults = R"({"tie_word_embeddings": true, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
                        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})"},
    {.gguf_name = "gemma3", .hf_name = "gemma3_text", .activation = Activation::kGeluTanh, .post_norms = true, .hf_norms_less_one = true,
     .scales_embedding = true, .window_period = 6, .local_theta = 10000, .wide_scale_layers = 62,
     .hf_defaults = R"({"tie_word_embeddings": true, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                        "query_pre_attn_scalar": 256, "sliding_window": 4096, "rope_theta": 1000000.0, "vocab_size": 262208,
                        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh"})"},
    {.gguf_name = "gemma-embedding", .hf_name = "gemma3_text", .activation = Activation::kGeluTanh, .post_norms = true, .hf_norms_less_one = true,
     .scales_embedding = true, .window_period = 6, .local_theta = 10000, .bidirectional = true},
    {.gguf_name = "phi3", .hf_name = "phi3", .fused = true},
    {.gguf_name = "smollm3", .hf_name = "smollm3", .gguf_rope = RopeLayout::kInterleaved, .hf_window_opt_in = true, .no_rope_period = 4,
     .hf_defaults = R"({"tie_word_embeddings": true})"},
    {.gguf_name = "granite", .hf_name = "granite", .gguf_rope = RopeLayout::kInterleaved},
    {.gguf_name = "granitemoe", .hf_name = "granitemoe", .gguf_rope = RopeLayout::kInterleaved, .normalizes_experts = true},
    {.gguf_name = "olmo2", .hf_name = "olmo2", .pre_norms = false, .post_norms = true, .norms_all_heads = true, .window_period = 4,
     .local_theta = kSameTheta},
    {.gguf_name = "olmo2", .hf_name = "olmo3", .pre_norms = false, .post_norms = true, .norms_all_heads = true, .window_period = 4,
     .local_theta = kSameTheta},
    {.gguf_name = "olmoe", .hf_name = "olmoe", .norms_all_heads = true},
    {.gguf_name = "seed_oss", .hf_name = "seed_oss", .gguf_ffn_norm_is_post = true},
    {.gguf_name = "exaone4", .hf_name = "exaone4", .pre_norms = false, .post_norms = true, .window_period = 4, .rope_needs_window = true},
    {.gguf_name = "glm4moe", .hf_name = "glm4_moe", .gguf_ffn_norm_is_post = true, .normalizes_experts = true,
     .hf_defaults = R"({"partial_rotary_factor": 0.5, "scoring_func": "sigmoid"})"},
    {.gguf_name = "minimax-m2", .hf_name = "minimax_m2", .norms_all_heads = true, .normalizes_experts = true,
     .hf_defaults = R"({"scoring_func": "sigmoid"})"},
    {.gguf_name = "deepseek2", .hf_name = "deepseek_v2", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .latent_attention = true},
    {.gguf_name = "deepseek2", .hf_name = "deepseek_v3", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .latent_attention = true, .normalizes_experts = true, .hf_defaults = R"({"scoring_func": "sigmoid"})"},
    {.gguf_name = "deepseek2", .hf_name = "kimi_k2", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .latent_attention = true, .normalizes_experts = true, .hf_defaults = R"({"scoring_func": "sigmoid"})"},
    {.gguf_name = "deepseek2", .hf_name = "glm4_moe_lite", .gguf_rope = RopeLayout::kInterleaved, .hf_rope = RopeLayout::kInterleaved,
     .latent_attention = true, .normalizes_experts = true, .hf_defaults = R"({"scoring_func": "sigmoid", "first_k_dense_replace": 1})"},
    {.gguf_name = "gpt-oss", .hf_name = "gpt_oss", .activation = Activation::kClampedSwiglu, .gguf_ffn_norm_is_post = true, .window_period = 2,
     .laced_experts = true, .normalizes_experts = true, .yarn_truncates = false},
};

const Arch& find(std::string_view name, const char* Arch::*dialect) {
  std::string known, last;
  for (const Arch& arch : kArchs) {
    if (name == arch.*dialect) return arch;
    if (last == arch.*dialect) continue;
    last = arch.*dialect;
    known += (known.empty() ? "" : ", ") + last;
  }
  throw Error("architecture '{}' is not supported; supported are {}", printable(name), known);
}

}  // namespace

std::span<const Arch> all_archs() { return kArchs; }

const Arch& find_gguf_arch(std::string_view name) { return find(name, &Arch::gguf_name); }
const Arch& find_hf_arch(std::string_view name, bool bidirectional) {
  const Arch& first = find(name, &Arch::hf_name);
  for (const Arch& arch : kArchs)
    if (name == arch.hf_name && arch.bidirectional == bidirectional) return arch;
  if (bidirectional) throw Error("architecture '{}' is not supported with attention to both sides", printable(name));
  return first;
}

const char* hf_defaults_of(std::string_view model_type) {
  for (const Arch& arch : kArchs)
    if (model_type == arch.hf_name) return arch.hf_defaults;
  return "{}";
}

}  // namespace ingot

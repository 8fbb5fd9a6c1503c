// Reads config.json of a Hugging Face model. HfConfig hides the differences between versions: transformers 5 writes
// rope_parameters, older releases write rope_theta and rope_scaling. A vision model has the text model's keys in
// text_config. dtype and torch_dtype are ignored, because each tensor has its own type. Numbers are checked against
// ranges that hold for any model. model/config/config.cc interprets the numbers for an architecture.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/huggingface/directory.h"
#include "io/huggingface/quantization.h"

namespace ingot {

struct HfRope {
  std::string kind = "default";  // rope_type
  float theta = 10000;
  bool is_off = false;  // rope_theta is null
  float partial_rotary_factor = 1;
  std::optional<float> factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
  std::optional<float> attention_factor, mscale, mscale_all_dim;
  std::vector<float> short_factor, long_factor;
  float local_partial = 0;    // of layers with a window; 0: partial_rotary_factor
  float query_beta = 0;       // llama_4_scaling_beta: of queries at positions from original_context on; 0: none
  std::vector<int> sections;  // mrope_section; empty: absent
  float alpha = 0;            // Hunyuan's factor for the base; 0: none
  float local_theta = 0;     // rope base of layers with a window, if different; else 0
  int original_context = 0;  // original_max_position_embeddings; max_position_embeddings if the file lacks it
  bool truncate = true;
};

// Of one layer, where per_layer_config differs from the other keys; 0: it does not.
struct HfLayer {
  int n_heads = 0, n_kv_heads = 0, head_dim = 0, ffn_dim = 0;
};

struct HfFamilyKeys;  // the document of a config.json

struct HfConfig {
  std::string source;      // config.json's path, for messages
  std::string name;
  std::string model_type;

  int n_layers = 0, dim = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, ffn_dim = 0, n_vocab = 0, n_ctx = 0;
  float norm_eps = 0;
  bool has_rms_eps = false;                // norm_eps is the file's rms_norm_eps
  std::string hidden_act = "silu";         // or hidden_activation, which has priority
  HfRope rope;
  std::optional<bool> tied_output;         // tie_word_embeddings
  int sliding_window = 0;                  // 0: null or absent
  bool use_sliding_window = false;
  bool attention_bias = false;
  bool bidirectional = false;              // use_bidirectional_attention
  bool causal = true;                      // is_causal; any decoder may set it to false
  std::optional<int> max_window_layers;
  int sliding_window_pattern = 0;          // of this many layers, all except the last have a window; 0: absent
  std::vector<std::string> layer_types;    // empty, or one for each layer
  std::vector<HfLayer> of_layers;          // per_layer_config: empty, or one for each layer
  std::vector<bool> layer_has_rope;        // no_rope_layers: empty, or one for each layer
  int no_rope_interval = 0;                // no_rope_layer_interval

  // Scales and caps; 0: absent.
  float query_pre_attn_scalar = 0, attn_softcap = 0, logit_softcap = 0;
  float embedding_multiplier = 0, attention_multiplier = 0, residual_multiplier = 0, logits_scaling = 0;

  // Encoders: the number of token types, and RoBERTa's padding token, from which the first position is computed.
  int n_token_types = 0, pad_id = 1;

  // Mixtures of experts; n_experts is 0 in other models.
  int n_experts = 0, n_experts_used = 0, expert_dim = 0, shared_expert_dim = 0, n_shared_experts = 0;
  int decoder_sparse_step = 1, first_k_dense = 0, n_groups = 1, n_groups_used = 0;
  std::vector<int> mlp_only_layers;
  std::optional<bool> norm_topk_prob;
  float routed_scaling = 1, swiglu_limit = 0;
  std::string topk_method;

  int full_attention_interval = 0;         // of this many layers, the last has full attention; 0: absent

  // Other keys of the family, for the kinds of layers that have them. Throw Error for a value of another type or range.
  bool has(const char* key) const;  // also by the family's default
  int integer_or(const char* key, int fallback, int64_t low, int64_t high) const;
  int integer_in(const char* object, const char* key, int fallback, int64_t low, int64_t high) const;
  bool flag_or(const char* key, bool fallback) const;
  float positive_or(const char* key, float fallback) const;  // 0 counts as absent
  float factor_or(const char* key, float fallback) const;    // 0 is refused
  std::string text_or(const char* key, const char* fallback) const;
  std::vector<std::string> texts(const char* key) const;  // a list of up to 1024 texts; empty: absent
  // Of a list with a number for each layer, or for some; empty: absent.
  std::vector<float> numbers(const char* key) const;
  std::vector<float> factors(const char* key, size_t n) const;  // a list of n positive numbers; absent: ones
  // Two numbers, of which the second is at least the first and may be infinite.
  std::optional<std::pair<float, float>> limits(const char* key) const;
  std::optional<std::vector<int>> integers(const char* key, int64_t low, int64_t high) const;  // nothing: no such list
  std::shared_ptr<const HfFamilyKeys> keys;  // null: none

  std::optional<HfQuantization> quantization;

  // Creates an Error about a key: "FILE: 'KEY': MESSAGE".
  template <class... Args>
  Error error(const char* key, fmt::format_string<Args...> format, Args&&... args) const {
    return Error("{}: '{}': {}", printable(source), key, fmt::format(format, std::forward<Args>(args)...));
  }
};

// Returns the keys of a model_type, in addition to the keys of all families: a JSON object with the values that
// transformers uses if the file lacks a key. null means no value. Without HfDefaults all keys are read.
using HfDefaults = std::function<std::string(std::string_view model_type)>;

// Throws Error naming the file, the key and the value. For an unsupported quantization, the Error names alternatives.
HfConfig read_hf_config(const HfDirectory& directory, const HfDefaults& defaults = nullptr);
// Parses a document in memory; `name` is the model's name.
HfConfig parse_hf_config(const JsonDocument& document, std::string name, const HfDefaults& defaults = nullptr);

// The tokens that end an answer, without duplicates: eos_token_id of config.json and generation_config.json, each a
// number or a list.
std::vector<int64_t> read_hf_ends(const HfDirectory& directory);

}  // namespace ingot

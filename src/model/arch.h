// Architectures as data: a row says what the checkpoint's keys and tensors do not. Sizes come from keys; biases and q/k
// norms from which tensors exist. docs/add-a-model.md shows how to add one.
#pragma once
#include <span>
#include <string_view>

#include "backend/backend.h"

namespace ingot {

constexpr float kSameTheta = -1;

struct Arch {
  const char* gguf_name;                          // general.architecture
  const char* hf_name;                            // model_type of config.json
  RopeLayout gguf_rope = RopeLayout::kHalfSplit;  // converters permuted the rows of llama's q and k, and no others'
  RopeLayout hf_rope = RopeLayout::kHalfSplit;
  bool hf_window_opt_in = false;  // sliding_window counts only with use_sliding_window, in config.json
  Activation activation = Activation::kSilu;
  Scoring scoring = Scoring::kSoftmax;  // of experts; GGUF files say it
  NormKind norm = NormKind::kRms;
  bool pre_norms = true;               // before attention and feed-forward
  bool post_norms = false;             // of what they add
  bool norms_all_heads = false;        // the q and k norms are over all heads together
  bool hf_norms_less_one = false;      // 1 has to be added to the norms of Hugging Face files
  bool scales_embedding = false;       // by sqrt(dim)
  bool fused = false;                  // q, k, v are one tensor, and so are gate and up
  bool gguf_ffn_norm_is_post = false;  // GGUF files name the norm before the feed-forward post_attention_norm
  // Of so many layers all but the last have the window, where the file does not say which: 0: all layers.
  int window_period = 0;
  int no_rope_period = 0;  // of so many layers the last has no rope, where the file does not say; 0: none
  // Rope base of layers with a window, where the file does not say, whose rope is not scaled; kSameTheta: the others';
  // 0: they have the others' rope.
  float local_theta = 0;
  bool rope_needs_window = false;  // in models of which some layers have a window, the others have no rope
  int wide_scale_layers = 0;       // files of so many layers scale attention by dim / n_heads, not head_dim
  int delta_period =
      0;  // of so many layers all but the last are gated delta nets, where the file does not say; 0: none
  bool tiles_value_heads = false;  // in GGUF files, neighbours among a delta net's value heads have different key heads
  bool gates_attention = false;    // the query projection also makes a gate on what is attended to, head by head
  bool laced_experts = false;      // rows of gate and up alternate in Hugging Face files, and matrices are transposed
  bool latent_attention = false;   // keys and values are projections of one small vector (arXiv:2405.04434)
  bool normalizes_experts = false;  // a token's expert weights sum to 1, where the file does not say
  bool yarn_truncates = true;       // in GGUF files, which cannot say
  bool bidirectional = false;       // Config::bidirectional, of all models of the row
  // Keys of a config.json that count besides those of all families (io/huggingface/config.cc), with what transformers
  // takes where the file has none.
  const char* hf_defaults = "{}";
};

std::span<const Arch> all_archs();

// The (first) row of that name in one of the dialects. Throws Error that lists the supported names.
const Arch& find_gguf_arch(std::string_view name);
const Arch& find_hf_arch(std::string_view name, bool bidirectional = false);

// hf_defaults of a model_type; "{}" for an unknown one.
const char* hf_defaults_of(std::string_view model_type);

}  // namespace ingot

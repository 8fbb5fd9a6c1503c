// The table of architectures. A row holds the facts that a checkpoint's keys and tensors do not state. Sizes are read
// from the keys. Biases and q/k norms are used if the checkpoint has their tensors. docs/add-a-model.md shows how to
// add a row.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"

namespace ingot {

constexpr float kSameTheta = -1;

struct Arch {
  const char* gguf_name = nullptr;                // general.architecture
  const char* hf_name = nullptr;                  // model_type of config.json
  RopeLayout gguf_rope = RopeLayout::kHalfSplit;  // converters permute the rows of q and k in some models
  RopeLayout hf_rope = RopeLayout::kHalfSplit;
  bool hf_window_opt_in = false;  // in config.json, sliding_window applies only with use_sliding_window
  Activation activation = Activation::kSilu;
  Scoring scoring = Scoring::kSoftmax;  // of experts, for directories; GGUF files have a key for it
  NormKind norm = NormKind::kRms;
  bool pre_norms = true;               // norms before attention and feed-forward
  bool sum_norms = false;              // norms after each addition to the residual stream, and none at the end
  bool post_norms = false;             // norms of the outputs of attention and feed-forward
  bool attention_norms_outputs = false;  // layers with attention have post_norms in place of pre_norms
  bool norms_all_heads = false;        // the q and k norms span all heads together
  bool norm_weight_plus_one = false;   // Hugging Face files store the norms' weights less 1
  bool scales_embedding = false;       // multiplies embeddings by sqrt(dim)
  bool fused = false;                  // q, k, v are one tensor; gate and up are one tensor
  bool gated = true;                   // feed-forward: act(gate) * up; otherwise act(up)
  bool gguf_ffn_norm_is_post = false;  // GGUF files call the norm before the feed-forward post_attention_norm
  bool final_norm_is_embed = false;    // files call the norm at the end a norm of the embedding
  bool lists_kv_heads = false;         // GGUF files list the KV heads of each layer: 0 for layers without attention
  // Of every `window_period` layers, all but the last have the window, if the file does not list them; 0: all layers
  // have it.
  int window_period = 0;
  bool first_is_global = false;  // of every `window_period` layers, all but the first have the window
  int no_rope_period = 0;  // of every n layers, the last has no rope, if the file does not say; 0: all have rope
  // Rope base of the layers with a window, if the file does not say; their rope is not scaled. kSameTheta: the base of
  // the other layers, not scaled. 0: the same rope as the other layers, scaling included.
  float local_theta = 0;
  bool rope_needs_window = false;  // if some layers have a window, the other layers have no rope
  int wide_scale_layers = 0;       // models of this many layers scale attention by dim / n_heads, not head_dim
  // The parts of the layers, if the file does not say: layers of a period, separated by spaces. Each has parts in
  // order, separated by '/'. Parts with '+' between them read the same input. "ffn" stands for feed_forward or experts,
  // as the file says; the other names are those of kinds (kinds.cc).
  const char* layers = "attention/ffn";
  bool one_part = false;            // each layer is one of the parts in `layers`, as the file says, and has one norm
  bool of_experts = false;          // of two rows with one hf_name, that of models with experts
  bool rope_opt_in = false;         // layers have rope only if the file says so
  bool routers_mark_experts = false;  // GGUF files do not list the layers with experts: they are those with a router
  bool tiles_value_heads = false;   // GGUF files order a delta net's value heads by h % n_key_heads
  bool rounds_embedding_scale = false;  // scales_embedding: the factor is rounded to bf16
  bool norms_values = false;        // each head of values has a norm without a weight
  // Layers without a window may lack the values' matrix: the values are the keys before norm and rope.
  bool values_may_be_keys = false;
  float score_scale = 0;            // the factor on q·k, if the file does not say; 0: by the size of heads
  bool dense_beside_experts = false;  // layers with experts have a feed-forward too (dense_experts)
  bool norms_heads = false;         // q and k have norms of each head without a weight, if the file does not deny it
  bool norms_after_rope = false;    // the norms of q and k are behind their rope
  bool gates_outputs = false;       // a matrix of its own gates the output of attention
  bool softplus_gate = false;       // by softplus, not by sigmoid
  bool norms_embedding = false;  // embeddings have a norm with a weight, as those of encoders
  bool normalizes_embedding = false;  // embeddings have a norm without a weight
  bool one_norm = false;            // the parts of a layer read the same norm
  bool fused_ffn = false;           // gate and up are one tensor, but q, k and v are not
  bool norm_by_eps = false;         // RMS norms if the file has rms_norm_eps, layer norms if it has layer_norm_eps
  bool scales_logits = false;       // the file's factor multiplies logits; otherwise logits are divided by it
  bool scales_expert_input = false;  // the weight of an expert multiplies its input
  bool gates_attention = false;     // the query projection also gives a gate for the attention output of each head
  bool interleaved_experts = false;  // Hugging Face files alternate the rows of gate and up, and transpose the matrices
  bool normalizes_experts = false;  // a token's expert weights sum to 1, if the file does not say
  bool yarn_truncates = true;       // for GGUF files, which have no key for it
  bool bidirectional = false;       // Config::bidirectional, for all models of the row
  // Bidirectional, with a norm of the embeddings and without an output matrix. Pairs of texts may have token types.
  bool encoder = false;
  bool learned_positions = false;    // a table of positions instead of rope
  bool positions_after_pad = false;  // in directories, position 0 is the table's row after the padding token's id
  // Keys of config.json that this architecture reads besides the keys of all families (io/huggingface/config.cc), each
  // with the value that transformers uses if the file lacks the key.
  const char* hf_defaults = "{}";

  // Whether a layer has the window, by a period; 0: all layers.
  bool has_window(int layer, int period) const {
    return period == 0 || (first_is_global ? layer % period > 0 : layer % period < period - 1);
  }
};

std::span<const Arch> all_archs();  // of the table, without rows of files
// Adds a row in front of all others. It must live as long as the process. Not safe beside other calls (arch_file.h).
void add_to_table(const Arch& arch);

// The row with this name in the dialect. If there are several, find_gguf_arch returns the first, and find_hf_arch the
// first with this `bidirectional`, and with this `of_experts` if there is one. Throws Error that lists the supported
// names.
const Arch& find_gguf_arch(std::string_view name);
const Arch& find_hf_arch(std::string_view name, bool bidirectional = false, bool of_experts = false);

// hf_defaults of a model_type; "{}" if the model_type is unknown.
std::string hf_defaults_of(std::string_view model_type);

}  // namespace ingot

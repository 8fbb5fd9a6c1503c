#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/gguf.h"

namespace ingot {
namespace {

// Reads "<arch>.<key>" and names that key in every complaint.
class Keys {
 public:
  Keys(const Metadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix) + ".") {}

  int integer(const char* key, int64_t low, int64_t high) const {
    return in_range(key, metadata_.get_u32(prefix_ + key), low, high);
  }
  int integer_or(const char* key, int64_t fallback, int64_t low, int64_t high) const {
    return in_range(key, metadata_.find_u32(prefix_ + key).value_or(static_cast<uint32_t>(fallback)), low, high);
  }
  float positive(const char* key) const { return above_zero(key, metadata_.get_f32(prefix_ + key)); }
  float positive_or(const char* key, float fallback) const {
    return above_zero(key, metadata_.find_f32(prefix_ + key).value_or(fallback));
  }
  std::string string_or(const char* key, std::string_view fallback) const {
    return std::string(metadata_.find_string(prefix_ + key).value_or(fallback));
  }
  bool has(const char* key) const { return metadata_.contains(prefix_ + key); }

 private:
  int in_range(const char* key, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high)
      throw Error("metadata '{}{}' is {}: expected {} to {}", printable(prefix_), key, value, low, high);
    return static_cast<int>(value);
  }
  float above_zero(const char* key, float value) const {
    if (!(value > 0)) throw Error("metadata '{}{}' is {}: expected a positive number", printable(prefix_), key, value);
    return value;
  }

  const Metadata& metadata_;
  const std::string prefix_;
};

RopeScaling read_rope_scaling(const Keys& keys, int n_ctx) {
  RopeScaling scaling;
  const std::string kind = keys.string_or("rope.scaling.type", keys.has("rope.scale_linear") ? "linear" : "none");
  if (kind == "none") return scaling;
  scaling.factor = keys.positive_or("rope.scaling.factor", keys.positive_or("rope.scale_linear", 1.0f));
  if (kind == "linear") {
    scaling.kind = RopeScalingKind::kLinear;
  } else if (kind == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
    scaling.original_context = keys.integer_or("rope.scaling.original_context_length", n_ctx, 1, 1 << 30);
    scaling.beta_fast = keys.positive_or("rope.scaling.yarn_beta_fast", scaling.beta_fast);
    scaling.beta_slow = keys.positive_or("rope.scaling.yarn_beta_slow", scaling.beta_slow);
    scaling.magnitude = keys.positive_or("rope.scaling.attn_factor", 1.0f) * (1.0f + 0.1f * std::log(std::max(1.0f, scaling.factor)));
  } else {
    throw Error("metadata 'rope.scaling.type' is '{}': supported are none, linear and yarn", printable(kind));
  }
  return scaling;
}

void read_heads(const Keys& keys, Config& c) {
  c.n_heads = keys.integer("attention.head_count", 1, 4096);
  c.n_kv_heads = keys.integer_or("attention.head_count_kv", c.n_heads, 1, c.n_heads);
  if (c.n_heads % c.n_kv_heads != 0)
    throw Error("attention.head_count {} is not a multiple of attention.head_count_kv {}", c.n_heads, c.n_kv_heads);
  if (!keys.has("attention.key_length") && c.dim % c.n_heads != 0)
    throw Error("embedding_length {} is not a multiple of attention.head_count {}, and there is no attention.key_length",
                c.dim, c.n_heads);
  c.head_dim = keys.integer_or("attention.key_length", c.dim / c.n_heads, 2, 1024);
  const int value_dim = keys.integer_or("attention.value_length", c.head_dim, 2, 1024);
  if (value_dim != c.head_dim)
    throw Error("attention.value_length {} differs from attention.key_length {}: not supported", value_dim, c.head_dim);
}

}  // namespace

Config config_from_gguf(const Gguf& file) {
  const Metadata& metadata = file.metadata();
  const std::string name(metadata.get_string("general.architecture"));
  Config c;
  c.arch = &find_gguf_arch(name);
  c.name = std::string(metadata.find_string("general.name").value_or(""));
  const Keys keys(metadata, name);
  c.n_layers = keys.integer("block_count", 1, 1024);
  c.dim = keys.integer("embedding_length", 1, 1 << 20);
  read_heads(keys, c);
  c.ffn_dim = keys.integer("feed_forward_length", 1, 1 << 24);
  if (keys.integer_or("expert_count", 0, 0, 1 << 16) > 0)
    throw Error("mixture-of-experts models of architecture '{}' are not supported", name);
  c.n_ctx_train = keys.integer("context_length", 1, 1 << 30);
  c.norm_eps = keys.positive("attention.layer_norm_rms_epsilon");
  c.rot_dim = keys.integer_or("rope.dimension_count", c.head_dim, 2, c.head_dim);
  if (c.rot_dim % 2 != 0) throw Error("metadata '{}.rope.dimension_count' is {}: expected an even number", name, c.rot_dim);
  c.rope_theta = keys.positive_or("rope.freq_base", 10000.0f);
  c.rope_scaling = read_rope_scaling(keys, c.n_ctx_train);
  c.rope_layout = c.arch->gguf_rope;
  c.sliding_window = keys.integer_or("attention.sliding_window", 0, 0, 1 << 30);
  const TensorInfo* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) throw Error("tensor 'token_embd.weight' is missing: this file holds a vocabulary, not a model");
  if (embedding->n_dims != 2 || embedding->shape[1] > (1 << 24))
    throw Error("tensor 'token_embd.weight' has {} dimensions and {} rows: expected 2 and at most {}", embedding->n_dims,
                embedding->shape[1], 1 << 24);
  c.n_vocab = static_cast<int>(embedding->shape[1]);
  return c;
}

}  // namespace ingot

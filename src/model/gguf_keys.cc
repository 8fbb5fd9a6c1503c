#include "model/gguf_keys.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "io/gguf_tokenizer_writer.h"
#include "io/hf_config.h"
#include "io/hf_tokenizer.h"

namespace ingot {
namespace {

// Writes "<arch>.<key>".
class KeyWriter {
 public:
  KeyWriter(GgufWriter& writer, std::string prefix) : writer_(writer), prefix_(std::move(prefix) + ".") {}
  template <class T>
  void set(const char* key, const T& value) const {
    writer_.set(prefix_ + key, value);
  }
  void count(const char* key, int value) const { set(key, static_cast<uint32_t>(value)); }

 private:
  GgufWriter& writer_;
  const std::string prefix_;
};

void write_yarn(const Checkpoint& checkpoint, const RopeScaling& scaling, const KeyWriter& keys) {
  if (!scaling.truncate)
    throw Error("{}: GGUF cannot say 'truncate': false of the YaRN rope scaling: run the directory as it is",
                printable(checkpoint.path()));
  const RopeScaling usual;
  keys.count("rope.scaling.original_context_length", scaling.original_context);
  if (scaling.beta_fast != usual.beta_fast) keys.set("rope.scaling.yarn_beta_fast", scaling.beta_fast);
  if (scaling.beta_slow != usual.beta_slow) keys.set("rope.scaling.yarn_beta_slow", scaling.beta_slow);
  // Readers multiply this with YaRN's own magnitude.
  const float extra = scaling.magnitude / (1.0f + 0.1f * std::log(std::max(1.0f, scaling.factor)));
  if (std::fabs(extra - 1.0f) > 1e-6f) keys.set("rope.scaling.attn_factor", extra);
}

// Llama 3's scaling is a tensor, rope_freqs (gguf_export.cc).
void write_rope(const Checkpoint& checkpoint, const Config& c, const KeyWriter& keys) {
  keys.count("rope.dimension_count", c.rot_dim);
  keys.set("rope.freq_base", c.rope_theta);
  const RopeScaling& scaling = c.rope_scaling;
  if (scaling.kind == RopeScalingKind::kNone || scaling.kind == RopeScalingKind::kLlama3) return;
  const bool is_yarn = scaling.kind == RopeScalingKind::kYarn;
  keys.set("rope.scaling.type", std::string(is_yarn ? "yarn" : "linear"));
  keys.set("rope.scaling.factor", scaling.factor);
  if (is_yarn) write_yarn(checkpoint, scaling, keys);
}

void write_sizes(const Config& c, const KeyWriter& keys) {
  keys.count("block_count", c.n_layers);
  keys.count("context_length", c.n_ctx_train);
  keys.count("embedding_length", c.dim);
  keys.count("feed_forward_length", c.ffn_dim);
  keys.count("attention.head_count", c.n_heads);
  keys.count("attention.head_count_kv", c.n_kv_heads);
  keys.count("attention.key_length", c.head_dim);
  keys.count("attention.value_length", c.head_dim);
  keys.set("attention.layer_norm_rms_epsilon", c.norm_eps);
  if (c.sliding_window > 0) keys.count("attention.sliding_window", c.sliding_window);
  keys.count("vocab_size", c.n_vocab);
}

}  // namespace

void write_gguf_keys(const Checkpoint& checkpoint, const Config& config, GgufWriter& writer) {
  const std::string arch = config.arch->gguf_name;
  writer.set("general.architecture", arch);
  writer.set("general.type", std::string("model"));
  writer.set("general.name", config.name);
  write_generation_config(checkpoint.generation(), writer);
  const KeyWriter keys(writer, arch);
  write_sizes(config, keys);
  write_rope(checkpoint, config, keys);
  const HfDirectory* directory = checkpoint.directory();
  CHECK(directory != nullptr);
  if (checkpoint.has_tokenizer()) {
    checkpoint.tokenizer();  // checks that it makes sense
    write_tokenizer(read_hf_tokenizer(*directory, read_hf_ends(*directory))->spec, config.n_vocab, writer);
  } else {
    log_warn("{}: there is no tokenizer.json: the file will have no tokenizer", printable(checkpoint.path()));
  }
  if (const auto chat_template = checkpoint.chat_template()) writer.set("tokenizer.chat_template", *chat_template);
}

}  // namespace ingot

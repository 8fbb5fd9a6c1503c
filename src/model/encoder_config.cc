#include "model/encoder_config.h"

#include <cmath>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/directory.h"

namespace ingot {
namespace {

constexpr EncoderArch kArchs[] = {
    {.gguf_name = "bert", .hf_name = "bert"},
    {.gguf_name = "bert", .hf_name = "roberta", .positions_after_pad = true},
    {.gguf_name = "bert", .hf_name = "xlm-roberta", .positions_after_pad = true},
    {.gguf_name = "bert", .hf_name = "camembert", .positions_after_pad = true},
    {.gguf_name = "nomic-bert", .hf_name = "nomic_bert", .activation = Activation::kSilu, .gated = true, .rope = true},
    {.gguf_name = "modern-bert", .hf_name = "modernbert", .pre_norm = true, .gated = true, .rope = true},
};

constexpr int64_t kMaxLayers = 1024, kMaxDim = 1 << 20, kMaxHeads = 4096, kMaxFfn = 1 << 24, kMaxVocab = 1 << 24,
                  kMaxContext = 1 << 24;
constexpr int kDefaultPad = 1;  // RoBERTa's padding id, if config.json has no pad_token_id

const EncoderArch* find_arch(std::string_view name, const char* EncoderArch::*dialect) {
  for (const EncoderArch& arch : kArchs)
    if (name == arch.*dialect) return &arch;
  return nullptr;
}

// Every n-th layer, starting with the first, is global; the others are local.
void set_pattern(EncoderConfig& c, int64_t n) {
  for (int i = 0; i < c.n_layers; ++i) c.is_local[i] = c.window > 0 && i % n != 0;
}

// ---- GGUF

EncoderConfig of_gguf(const Gguf& file, const EncoderArch& arch) {
  const Metadata& metadata = file.metadata();
  const std::string prefix = std::string(arch.gguf_name) + ".";
  auto in_range = [&](const std::string& key, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      throw metadata.error(key, "{} is out of range: expected {} to {}", value, low, high);
    return static_cast<int>(value);
  };
  auto integer = [&](const char* key, int64_t low, int64_t high) {
    return in_range(prefix + key, metadata.get_u32(prefix + key), low, high);
  };
  auto positive = [&](const char* key, float fallback) {
    const float value = metadata.find_f32(prefix + key).value_or(fallback);
    if (!(value > 0)) throw metadata.error(prefix + key, "{} is out of range: expected a positive number", value);
    return value;
  };
  EncoderConfig c{.arch = &arch,
                  .name = std::string(metadata.find_string("general.name").value_or("")),
                  .activation = arch.activation};
  c.n_layers = integer("block_count", 1, kMaxLayers);
  c.dim = integer("embedding_length", 1, kMaxDim);
  c.n_heads = integer("attention.head_count", 1, kMaxHeads);
  if (c.dim % c.n_heads != 0)
    throw metadata.error(prefix + "embedding_length", "{} is not a multiple of attention.head_count {}", c.dim,
                         c.n_heads);
  c.head_dim = c.dim / c.n_heads;
  c.ffn_dim = integer("feed_forward_length", 1, kMaxFfn);
  c.n_ctx = integer("context_length", 1, kMaxContext);
  metadata.get_f32(prefix + "attention.layer_norm_epsilon");
  c.norm_eps = positive("attention.layer_norm_epsilon", 0);
  c.rope_theta = positive("rope.freq_base", c.rope_theta);
  c.local_rope_theta = positive("rope.freq_base_swa", c.local_rope_theta);
  if (metadata.find_bool(prefix + "attention.causal").value_or(false))
    throw metadata.error(prefix + "attention.causal", "is true: '{}' models are read whole", arch.gguf_name);
  const TensorInfo* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) throw Error("{}: tensor 'token_embd.weight' is missing", printable(metadata.source()));
  c.n_vocab = in_range("token_embd.weight", embedding->n_dims == 2 ? static_cast<int64_t>(embedding->shape[1]) : 0, 1,
                       kMaxVocab);
  const std::string window = prefix + "attention.sliding_window", pattern = prefix + "attention.sliding_window_pattern";
  const int both_sides = in_range(window, metadata.find_u32(window).value_or(0), 0, kMaxContext);
  c.window = both_sides > 0 ? both_sides / 2 + 1 : 0;
  c.is_local.resize(c.n_layers);
  set_pattern(c, in_range(pattern, metadata.find_u32(pattern).value_or(3), 1, kMaxLayers));
  return c;
}

// ---- Hugging Face

// The first of these keys that the file has; transformers and older model code use different names.
Json any_of(const Json& root, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto value = root.find(key)) return *value;
  return root.at(*keys.begin());
}

int integer_of(const Json& root, std::initializer_list<const char*> keys, int64_t low, int64_t high) {
  return static_cast<int>(any_of(root, keys).integer(low, high));
}

float positive_of(const Json& value) {
  const auto number = static_cast<float>(value.number());
  if (!(number > 0) || !std::isfinite(number))
    throw value.error("{} is out of range: expected a positive number", value.number());
  return number;
}

Activation activation_of(const Json& root, const EncoderArch& arch) {
  for (const char* key : {"hidden_act", "hidden_activation", "activation_function"}) {
    const auto value = root.find(key);
    if (!value) continue;
    const std::string_view name = value->string();
    if (name == "gelu") return Activation::kGelu;
    if (name == "silu" || name == "swiglu" || name == "swish") return Activation::kSilu;
    if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::kGeluTanh;
    throw value->error("'{}' is not supported for models of type '{}'", printable(name, 64), arch.hf_name);
  }
  return arch.activation;
}

// Reads rope_parameters of transformers 5, for each type of layer or for all; older files have separate keys.
void read_rope(const Json& root, EncoderConfig& c) {
  for (const char* key : {"rope_theta", "global_rope_theta", "rotary_emb_base"})
    if (const auto value = root.find(key)) c.rope_theta = positive_of(*value);
  if (const auto value = root.find("local_rope_theta")) c.local_rope_theta = positive_of(*value);
  const auto all = root.find("rope_parameters");
  if (!all) return;
  auto read = [](const Json& rope, float& theta) {
    const auto type = rope.find("rope_type");
    if (type && type->string() != "default")
      throw type->error("'{}' is not supported for encoders", printable(type->string(), 64));
    if (const auto value = rope.find("rope_theta")) theta = positive_of(*value);
  };
  read(*all, c.rope_theta);
  if (const auto global = all->find("full_attention")) read(*global, c.rope_theta);
  if (const auto local = all->find("sliding_attention")) read(*local, c.local_rope_theta);
}

void read_local_layers(const Json& root, EncoderConfig& c) {
  c.is_local.resize(c.n_layers);
  const auto window = root.find("local_attention");
  if (!window) return;
  c.window = static_cast<int>(window->integer(1, kMaxContext)) / 2 + 1;
  const auto types = root.find("layer_types");
  if (!types)
    return set_pattern(
        c, root.find("global_attn_every_n_layers") ? root.at("global_attn_every_n_layers").integer(1, kMaxLayers) : 3);
  const std::vector<Json> elements = types->elements();
  if (elements.size() != static_cast<size_t>(c.n_layers))
    throw types->error("{} elements for {} layers", elements.size(), c.n_layers);
  for (int i = 0; i < c.n_layers; ++i) {
    c.is_local[i] = elements[i].string() == "sliding_attention";
    if (!c.is_local[i] && elements[i].string() != "full_attention")
      throw elements[i].error("layers of type '{}' are not supported", printable(elements[i].string(), 64));
  }
}

// Refuses variants that would change the results and are not implemented.
void refuse_variants(const Json& root) {
  struct Variant {
    const char* key;
    std::string_view wanted;
  };
  for (const auto& [key, wanted] : {Variant{"position_embedding_type", "absolute"}})
    if (const auto value = root.find(key); value && value->string() != wanted)
      throw value->error("'{}' is not supported: '{}' is", printable(value->string(), 64), wanted);
  for (const char* key : {"is_decoder", "add_cross_attention", "prenorm", "use_rms_norm", "rotary_emb_interleaved"})
    if (const auto value = root.find(key); value && value->boolean())
      throw value->error("is true, which is not supported for encoders");
  if (const auto fraction = root.find("rotary_emb_fraction"); fraction && fraction->number() != 1)
    throw fraction->error("{} is not supported: 1 is", fraction->number());
}

EncoderConfig of_directory(const HfDirectory& directory, const Json& root, const EncoderArch& arch) {
  refuse_variants(root);
  EncoderConfig c{.arch = &arch, .name = directory.name()};
  c.n_layers = integer_of(root, {"num_hidden_layers", "n_layer"}, 1, kMaxLayers);
  c.dim = integer_of(root, {"hidden_size", "n_embd"}, 1, kMaxDim);
  c.n_heads = integer_of(root, {"num_attention_heads", "n_head"}, 1, kMaxHeads);
  if (c.dim % c.n_heads != 0)
    throw any_of(root, {"hidden_size", "n_embd"}).error("{} is not a multiple of {} heads", c.dim, c.n_heads);
  c.head_dim = c.dim / c.n_heads;
  if (const auto head = root.find("head_dim"); head && head->integer(1, kMaxDim) != c.head_dim)
    throw head->error("{} is not hidden_size {} / {} heads: not supported", head->integer(1, kMaxDim), c.dim,
                      c.n_heads);
  c.ffn_dim = integer_of(root, {"intermediate_size", "n_inner"}, 1, kMaxFfn);
  c.n_vocab = integer_of(root, {"vocab_size"}, 1, kMaxVocab);
  if (arch.positions_after_pad) {
    const auto pad = root.find("pad_token_id");
    c.first_position = pad ? static_cast<int>(pad->integer(0, c.n_vocab - 1)) + 1 : kDefaultPad + 1;
  }
  c.n_ctx = integer_of(root, {"max_position_embeddings", "n_positions"}, 1 + c.first_position, kMaxContext) -
            c.first_position;
  c.norm_eps = positive_of(any_of(root, {"layer_norm_eps", "norm_eps", "layer_norm_epsilon"}));
  c.activation = activation_of(root, arch);
  if (arch.rope) read_rope(root, c);
  read_local_layers(root, c);
  return c;
}

void check_rope(const EncoderConfig& c, const Checkpoint& checkpoint) {
  if (c.arch->rope && c.head_dim % 2 != 0)
    throw Error("{}: heads of {} dimensions cannot be turned in pairs: the model is not one of its architecture",
                printable(checkpoint.path()), c.head_dim);
}

}  // namespace

std::span<const EncoderArch> all_encoder_archs() { return kArchs; }

std::optional<EncoderConfig> find_encoder_config(const Checkpoint& checkpoint) {
  std::optional<EncoderConfig> config;
  if (const Gguf* file = checkpoint.gguf()) {
    const auto name = file->metadata().find_string("general.architecture");
    if (const EncoderArch* arch = name ? find_arch(*name, &EncoderArch::gguf_name) : nullptr)
      config = of_gguf(*file, *arch);
  } else if (const HfDirectory* directory = checkpoint.directory()) {
    const JsonDocument document = directory->document("config.json");
    const auto type = document.root().find("model_type");
    if (const EncoderArch* arch = type ? find_arch(type->string(), &EncoderArch::hf_name) : nullptr)
      config = of_directory(*directory, document.root(), *arch);
  }
  if (config) check_rope(*config, checkpoint);
  return config;
}

}  // namespace ingot

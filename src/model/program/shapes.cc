#include "model/program/shapes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "model/config/kind.h"
#include "model/config/layer_inputs.h"
#include "model/config/rope_sections.h"
#include "model/files/quant_mix.h"
#include "model/layers/delta_net.h"
#include "model/layers/kda.h"
#include "model/layers/latent_attention.h"
#include "model/layers/mamba1.h"
#include "model/layers/mamba2.h"
#include "model/layers/rg_lru.h"
#include "model/layers/rwkv7.h"
#include "quant/fill.h"

namespace ingot {
namespace {

struct Shape {
  const char* name;
  const char* arch;
  int n_layers, dim, n_heads, n_kv_heads, head_dim, ffn_dim, n_vocab, n_ctx;
  float rope_theta, norm_eps;
  ExpertConfig experts = {};
  int window = 0;
  int n_dense = 0;  // how many first layers of a model with experts have none
  void (*set_parts)(Config&) = nullptr;  // sizes of other kinds of layer parts
};

void set_lite_latents(Config& c) {
  set_latents(c, {.kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128});
}
void set_flash_latents(Config& c) {
  set_latents(c, {.q_rank = 768, .kv_rank = 512, .nope_dim = 192, .rope_dim = 64, .value_dim = 256});
}
template <int n_value_heads>
void set_delta(Config& c) {
  c.parts.set(DeltaConfig{.n_key_heads = 16,
                          .n_value_heads = n_value_heads,
                          .key_dim = 128,
                          .value_dim = 128,
                          .conv_width = 4,
                          .tiled = true});
  c.parts.set(RopeSections{.sizes = {11, 11, 10}});  // of images
}

// The layers with attention; the others have the mixer that keeps states.
void mark_attention(Config& c, const std::function<bool(int)>& has_attention, int n_dense = 0) {
  for (int i = 0; i < c.n_layers; ++i) {
    if (static_cast<int>(c.layers.size()) == i) c.layers.emplace_back();
    c.layers[i].parts = arch_parts(*c.arch, i, c.experts.n > 0 && i >= n_dense);
    set_mixer(c.layers[i], has_attention(i) ? *kv_mixer(*c.arch) : *state_mixer(*c.arch));
    if (c.arch->rope_opt_in || c.arch->no_rope_period == 1) c.layers[i].rope = LayerRope::kNone;
  }
}
void set_mamba1(Config& c) {
  c.parts.set(Mamba1Config{.inner = 2 * c.dim, .state_dim = 16, .dt_rank = c.dim / 16, .conv_width = 4});
}
template <int n_heads>
void set_mamba2(Config& c) {
  c.parts.set(Mamba2Config{.n_heads = n_heads, .head_dim = 64, .state_dim = 128, .conv_width = 4});
}
void set_granite_hybrid(Config& c) {
  set_mamba2<48>(c);
  mark_attention(c, [](int i) { return i % 10 == 5; });
}
void set_kimi_linear(Config& c) {
  c.parts.set(KdaConfig{.n_heads = 32, .head_dim = 128, .conv_width = 4});
  set_lite_latents(c);
  mark_attention(c, [&c](int i) { return i % 4 == 3 || i + 1 == c.n_layers; }, 1);
}
void set_recurrent_gemma(Config& c) {
  c.parts.set(RgLruConfig{.n_heads = 10, .head_dim = c.dim / 10, .conv_width = 4});
  mark_attention(c, [](int i) { return i % 3 == 2; });
}

void set_rwkv7(Config& c) {
  c.parts.set(Rwkv7Config{.head_dim = 64, .decay_rank = 96, .rate_rank = 96, .value_rank = 64, .gate_rank = 320});
}

// Gemma 4: heads of 256 in layers with a window, and of 512 in the others, a quarter of whose pairs rotates. The last
// n_shared layers read the keys of earlier ones.
template <int n_kv_of_windows, int n_shared, int input_width>
void set_gemma4(Config& c) {
  c.rope_scaling = {.kind = RopeScalingKind::kProportional, .n_rotated = c.head_dim / 8};
  c.local_rot_dim = 256;
  for (LayerConfig& layer : c.layers)
    if (layer.window > 0) layer.heads = LayerHeads{c.n_heads, n_kv_of_windows, 256};
  for (int i = c.n_layers - n_shared; i < c.n_layers; ++i) c.layers[i].kv_layer = last_of_kind(c, i, c.n_layers - n_shared);
  c.parts.set(LayerInputsConfig{.width = input_width});
}

constexpr Shape kShapes[] = {
    {"smollm-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 2048, 1e4f, 1e-5f},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6f, 1e-6f},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6f, 1e-6f},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5f, 1e-5f},
    {"llama-3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 5e5f, 1e-5f},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e6f, 1e-6f},
    {"granite-1b-a400m", "granitemoe", 24, 1024, 16, 8, 64, 512, 49155, 131072, 1e4f, 1e-6f, {.n = 32, .n_used = 8, .ffn_dim = 512, .normalize = true}},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, 1e6f, 1e-6f, {.n = 128, .n_used = 8, .ffn_dim = 768, .normalize = true}},
    {"qwen3.5-0.8b", "qwen35", 24, 1024, 8, 2, 256, 3584, 248320, 262144, 1e7f, 1e-6f, {}, 0, 0, set_delta<16>},
    {"qwen3.5-9b", "qwen35", 32, 4096, 16, 4, 256, 12288, 248320, 262144, 1e7f, 1e-6f, {}, 0, 0, set_delta<32>},
    {"gemma-3-4b", "gemma3", 34, 2560, 8, 4, 256, 10240, 262208, 131072, 1e6f, 1e-6f, {}, 1024},
    {"gemma-3-27b", "gemma3", 62, 5376, 32, 16, 128, 21504, 262208, 131072, 1e6f, 1e-6f, {}, 1024},
    {"gemma-4-e4b", "gemma4", 42, 2560, 8, 2, 512, 10240, 262144, 131072, 1e6f, 1e-6f, {}, 512, 0, set_gemma4<2, 18, 256>},
    {"gemma-4-26b-a4b", "gemma4", 30, 2816, 16, 2, 512, 2112, 262144, 262144, 1e6f, 1e-6f,
     {.n = 128, .n_used = 8, .ffn_dim = 704, .normalize = true}, 1024, 0, set_gemma4<8, 0, 0>},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 64, 8, 64, 2880, 201088, 131072, 1.5e5f, 1e-5f,
     {.n = 32, .n_used = 4, .ffn_dim = 2880, .normalize = true}, 128},
    {"deepseek-v2-lite", "deepseek2", 27, 2048, 16, 1, 576, 10944, 102400, 163840, 1e4f, 1e-6f,
     {.n = 64, .n_used = 6, .ffn_dim = 1408, .shared_dim = 2816}, 0, 1, set_lite_latents},
    {"glm-4.7-flash", "deepseek2", 47, 2048, 20, 1, 576, 10240, 154880, 202752, 1e6f, 1e-5f,
     {.n = 64, .n_used = 4, .ffn_dim = 1536, .shared_dim = 1536, .scoring = Scoring::kSigmoid, .normalize = true, .scale = 1.8f},
     0, 1, set_flash_latents},
    {"mamba-2.8b", "mamba", 64, 2560, 1, 1, 1, 1, 50280, 1 << 20, 1e4f, 1e-5f, {}, 0, 0, set_mamba1},
    {"mamba2-2.7b", "mamba2", 64, 2560, 1, 1, 1, 1, 50288, 1 << 20, 1e4f, 1e-5f, {}, 0, 0, set_mamba2<80>},
    {"granite-4.0-h-tiny", "granitehybrid", 40, 1536, 12, 4, 128, 512, 100352, 131072, 1e4f, 1e-5f,
     {.n = 64, .n_used = 6, .ffn_dim = 512, .shared_dim = 1024, .normalize = true}, 0, 0, set_granite_hybrid},
    {"kimi-linear-48b-a3b", "kimi-linear", 27, 2304, 32, 1, 576, 9216, 163840, 1 << 20, 1e4f, 1e-5f,
     {.n = 256, .n_used = 8, .ffn_dim = 1024, .shared_dim = 1024, .scoring = Scoring::kSigmoid, .normalize = true, .scale = 2.446f},
     0, 1, set_kimi_linear},
    {"recurrentgemma-2b", "recurrentgemma", 26, 2560, 10, 1, 256, 7680, 256000, 8192, 1e4f, 1e-6f, {}, 2048, 0, set_recurrent_gemma},
    {"rwkv7-2.9b", "rwkv7", 32, 2560, 1, 1, 1, 10240, 65536, 1 << 20, 1e4f, 1e-5f, {}, 0, 0, set_rwkv7},
    {"llama-3.1-70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256, 131072, 5e5f, 1e-5f},
};

// Which layers have a window or experts. Empty: all layers are alike, or differ only as the architecture says.
std::vector<LayerConfig> layers_of(const Shape& s, const Arch& arch) {
  std::vector<LayerConfig> layers;
  const auto is_last = [](int i, int period) { return period > 0 && (i + 1) % period == 0; };
  for (int i = 0; (s.window > 0 || s.n_dense > 0) && i < s.n_layers; ++i) {
    const bool windowed = s.window > 0 && !is_last(i, arch.window_period);
    layers.push_back({.window = windowed ? s.window : 0,
                      .rope = windowed && arch.local_theta > 0 ? LayerRope::kLocal : LayerRope::kMain,
                      .parts = arch_parts(arch, i, s.experts.n > 0 && i >= s.n_dense)});
  }
  return layers;
}

constexpr int kUntiedDim = 4096;  // shapes of this dim or more have their own output matrix, except Gemma's

Format format_for_row(Format format, int64_t n) {
  if (n % info(format).block_size == 0) return format;
  return n % info(Format::Q8_0).block_size == 0 ? Format::Q8_0 : Format::F16;
}

constexpr int64_t kFilledAtOnce = 1 << 20;  // blocks

// Fills a matrix on all cores, because one core would take minutes for a large model. The blocks do not depend on the
// number of cores.
void fill_on_all_cores(ThreadPool& pool, Format format, uint64_t seed, uint8_t* blocks, int64_t n_blocks, float sigma) {
  const int64_t n_parts = (n_blocks + kFilledAtOnce - 1) / kFilledAtOnce;
  pool.parallel_for(n_parts, [&](int64_t part, int) {
    const int64_t first = part * kFilledAtOnce;
    fill_random(format, seed + static_cast<uint64_t>(part), blocks + first * info(format).block_bytes,
                std::min(kFilledAtOnce, n_blocks - first), sigma);
  });
}

class DummySource final : public WeightSource {
 public:
  DummySource(const Config& config, Format format, uint64_t seed) : config_(config), format_(format), seed_(seed) {
    for (int layer = 0; layer < config_.n_layers; ++layer)
      for (const PartKind* kind : parts_of(config_, layer))
        for (const VectorRow& row : kind->rows().vectors) {
          const std::string pattern = first_name(row.gguf_name), name = fmt::format(fmt::runtime(pattern), layer);
          if (!is_optional(row, config_) && applies(row, config_, layer)) needed_.insert({name, pattern});
          if (row.hf_kept == VectorRow::kLog) negative_.insert(name);
        }
  }

  std::string name() const override { return config_.name + " (random weights)"; }
  std::unique_ptr<WeightSource> again() const override {
    return std::make_unique<DummySource>(config_, format_, seed_);
  }

  bool find_shape(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!exists(name)) return false;
    out = {.format = format_of(name, n_out, n_in), .n_out = n_out, .n_in = n_in};
    return true;
  }

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!find_shape(name, n_out, n_in, out)) return false;
    const bool is_vector = n_out == 1 || negative_.contains(name);
    const Format format = out.format;
    uint8_t* bytes = buffers_.emplace_back(buffer_of(static_cast<size_t>(n_out) * row_bytes(format, n_in))).bytes.get();
    out.data = bytes;
    if (is_vector) {
      std::fill_n(reinterpret_cast<float*>(bytes), n_out * n_in,
                  name.ends_with(".bias") ? 0.01f : negative_.contains(name) ? -1.0f : 1.0f);
    } else {
      fill_on_all_cores(pool_, format, seed_ + std::hash<std::string>()(name), bytes,
                        n_out * (n_in / info(format).block_size), 1.0f / std::sqrt(static_cast<float>(n_in)));
    }
    return true;
  }

  void release(const HostTensor& tensor) override {
    buffers_.remove_if([&](Buffer& buffer) {
      if (buffer.bytes.get() != tensor.data) return false;
      if (buffer.size > spare_.size) spare_ = std::move(buffer);
      return true;
    });
  }

  size_t total_bytes() const override {
    size_t total = 0;
    const auto add = [&](const TensorRows& rows, int layer) {
      const LayerSizes sizes(config_, layer);
      std::set<Weight& (*)(void*)> seen;  // of several rows for one matrix, the first that exists is used
      for (const MatrixRow& row : rows.matrices)
        if (has(row, layer) && seen.insert(row.member).second)
          total += bytes_of(first_name(row.gguf_name), count_of(row, sizes) * size_of(row.n_out, sizes),
                            size_of(row.n_in, sizes));
      for (const VectorRow& row : rows.vectors)
        if (has(row, layer))
          total += bytes_of(first_name(row.gguf_name), count_of(row, sizes), size_of(row.n, sizes));
    };
    add(model_rows(), 0);
    for (int layer = 0; layer < config_.n_layers; ++layer)
      for (const PartKind* kind : parts_of(config_, layer)) add(kind->rows(), layer);
    return total;
  }

 private:
  template <class Row>
  bool has(const Row& row, int layer) const {
    return applies(row, config_, layer) && exists(first_name(row.gguf_name));
  }
  // The format that the tensor has in quantized files.
  Format format_of(const std::string& name, int64_t n_out, int64_t n_in) const {
    const bool keeps = info(format_).block_size > 1 && !is_quantizable(name, 2);
    return n_out == 1 || keeps ? Format::F32 : format_for_row(format_, n_in);
  }
  size_t bytes_of(const std::string& name, int64_t n_out, int64_t n_in) const {
    return n_out * row_bytes(format_of(name, n_out, n_in), n_in);
  }
  static std::string first_name(const std::string& names) { return names.substr(0, names.find('|')); }

  // True if this architecture has the optional tensor.
  bool exists(const std::string& name) const {
    if (name.empty() || name.starts_with("rope_factors_")) return false;
    if (name.ends_with(".post_attention_norm.weight"))
      return config_.arch->post_norms || config_.arch->attention_norms_outputs;
    const std::string_view arch = config_.arch->gguf_name;
    if (name == "output.weight") return config_.dim >= kUntiedDim && !arch.starts_with("gemma");
    if (needed_.contains(name)) return true;
    if (name.ends_with("attn_qkv.weight")) return config_.arch->fused || !config_.arch->encoder;
    if (name == "rope_freqs.weight") return false;
    if (name.ends_with(".bias"))
      return arch == "qwen2" &&
             (name.ends_with("attn_q.bias") || name.ends_with("attn_k.bias") || name.ends_with("attn_v.bias"));
    if (name.ends_with("_q_norm.weight") || name.ends_with("_k_norm.weight"))
      return config_.arch->gates_attention || config_.arch->norms_all_heads || arch == "qwen3" || arch == "qwen3moe" ||
             arch == "gemma3" || arch == "gemma4" || arch == "exaone4";
    if (name.ends_with(".attn_v.weight")) return has_values(name);
    if (name.ends_with("_sinks.weight")) return arch == "gpt-oss";
    if (name.ends_with("attn_kv_b.weight")) return false;
    if (name.ends_with("ffn_gate_inp_shexp.weight")) return arch == "qwen2moe" || config_.arch->gates_attention;
    return true;
  }

  // Where layers without a window have fewer heads of keys, their values are the keys.
  bool has_values(std::string_view name) const {
    int layer = 0;
    std::from_chars(name.data() + sizeof("blk.") - 1, name.data() + name.size(), layer);
    const auto fewer = [&](const LayerConfig& other) { return other.heads && other.heads->n_kv_heads > config_.n_kv_heads; };
    return !config_.arch->values_may_be_keys || config_.layer(layer).window > 0 || !std::ranges::any_of(config_.layers, fewer);
  }

  struct Buffer {
    size_t size = 0;
    std::unique_ptr<uint8_t[]> bytes;
  };

  // Takes the spare buffer if it is large enough. Fresh memory costs more time than the numbers. It is not zeroed,
  // because the threads that fill it are the first to touch it.
  Buffer buffer_of(size_t size) {
    if (size <= spare_.size) return std::exchange(spare_, {});
    return {size, std::make_unique_for_overwrite<uint8_t[]>(size)};
  }

  const Config config_;
  const Format format_;
  const uint64_t seed_;
  std::set<std::string> needed_, negative_;  // names of vectors: that every model has; whose values are negative
  std::list<Buffer> buffers_;
  Buffer spare_;  // of the largest released tensor
  ThreadPool pool_;
};

}  // namespace

std::string shape_names() {
  std::string names;
  for (const Shape& shape : kShapes) names += names.empty() ? shape.name : std::string(", ") + shape.name;
  return names;
}

Config config_of_shape(const std::string& name) {
  for (const Shape& s : kShapes) {
    if (name != s.name) continue;
    Config c;
    c.arch = &find_gguf_arch(s.arch);
    c.name = s.name;
    c.n_layers = s.n_layers;
    c.dim = s.dim;
    c.n_heads = s.n_heads;
    c.n_kv_heads = s.n_kv_heads;
    c.head_dim = c.rot_dim = s.head_dim;
    c.ffn_dim = s.ffn_dim;
    c.n_vocab = s.n_vocab;
    c.n_ctx_train = s.n_ctx;
    c.norm_eps = s.norm_eps;
    c.rope_theta = s.rope_theta;
    c.rope_layout = c.arch->gguf_rope;
    c.experts = s.experts;
    c.sliding_window = s.window;
    if (s.window > 0) c.local_theta = c.arch->local_theta;
    c.layers = layers_of(s, *c.arch);
    if (s.set_parts != nullptr) s.set_parts(c);
    if (c.n_recurrent_layers() > 0) c.rot_dim = std::max(c.head_dim / 4, 2);
    if (const int rope_dim = c.part<LatentConfig>().rope_dim; rope_dim > 0) c.rot_dim = rope_dim;
    return c;
  }
  throw UsageError("unknown shape '{}'; known are {}", printable(name), shape_names());
}

std::unique_ptr<WeightSource> dummy_source(const Config& config, Format format, uint64_t seed) {
  return std::make_unique<DummySource>(config, format, seed);
}

}  // namespace ingot

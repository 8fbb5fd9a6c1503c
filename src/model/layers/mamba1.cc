// Mamba (backend/blocks/mamba1.h). Every rank computes all of it: each channel's step depends on all channels.
#include "model/layers/mamba1.h"

#include <algorithm>

#include "backend/blocks/mamba1.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/files/weights.h"
#include "model/layers/joins.h"
#include "model/layers/listed_layers.h"
#include "model/layers/short_conv.h"

namespace ingot {
extern const PartKind kMamba1Part;
}
namespace ingot::mamba1_part {
namespace {

using B = Mamba1Block;

constexpr int kMaxInner = 1 << 20, kMaxStateDim = 256, kMaxRank = 1 << 16;

const Mamba1Config& mamba(const Config& c) { return c.part<Mamba1Config>(); }

constexpr Dim kInner = {[](const Config& c) -> int64_t { return mamba(c).inner; }};
constexpr Dim kTwoInner = {[](const Config& c) -> int64_t { return 2 * int64_t{mamba(c).inner}; }};
constexpr Dim kState = {[](const Config& c) -> int64_t { return mamba(c).state_dim; }};
constexpr Dim kRank = {[](const Config& c) -> int64_t { return mamba(c).dt_rank; }};
constexpr Dim kScanInputs = {
    [](const Config& c) -> int64_t { return mamba(c).dt_rank + 2 * int64_t{mamba(c).state_dim}; }};
constexpr Dim kConvWidth = {[](const Config& c) -> int64_t { return mamba(c).conv_width; }};

bool may_have_conv_bias(const Config& c, int) { return mamba(c).conv_bias.value_or(true); }
bool may_lack_conv_bias(const Config& c) { return !mamba(c).conv_bias.value_or(false); }
// FalconMamba's norms have no weights.
bool has_norms(const Config& c, int) { return mamba(c).has_norms; }

// Names in Jamba and in Mamba's own checkpoints.
#define SCAN_NAMES(name) "model.layers.{}.mamba." name "|backbone.layers.{}.mixer." name

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.ssm_in.weight", .hf_name = SCAN_NAMES("in_proj.weight"),
     .member = at<&B::w_in>, .n_out = kTwoInner, .n_in = kModelDim},
    {.gguf_name = "blk.{}.ssm_x.weight", .hf_name = SCAN_NAMES("x_proj.weight"),
     .member = at<&B::w_x>, .n_out = kScanInputs, .n_in = kInner},
    {.gguf_name = "blk.{}.ssm_dt.weight", .hf_name = SCAN_NAMES("dt_proj.weight"),
     .member = at<&B::w_dt>, .n_out = kInner, .n_in = kRank},
    {.gguf_name = "blk.{}.ssm_out.weight", .hf_name = SCAN_NAMES("out_proj.weight"),
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kInner},
};

constexpr VectorRow scan_norm(const char* gguf_name, const char* hf_name, VectorMember member, const Dim& n) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n = n, .optional = kOptional,
          .when = has_norms};
}

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.ssm_conv1d.weight", .hf_name = SCAN_NAMES("conv1d.weight"),
     .member = at<&B::conv>, .n = kConvWidth, .count = kInner},
    {.gguf_name = "blk.{}.ssm_conv1d.bias", .hf_name = SCAN_NAMES("conv1d.bias"),
     .member = at<&B::conv_bias>, .n = kInner, .optional = may_lack_conv_bias, .when = may_have_conv_bias},
    scan_norm("blk.{}.ssm_dt_norm.weight", SCAN_NAMES("dt_layernorm.weight"), at<&B::dt_norm, &NormArgs::weight>, kRank),
    scan_norm("blk.{}.ssm_b_norm.weight", SCAN_NAMES("b_layernorm.weight"), at<&B::b_norm, &NormArgs::weight>, kState),
    scan_norm("blk.{}.ssm_c_norm.weight", SCAN_NAMES("c_layernorm.weight"), at<&B::c_norm, &NormArgs::weight>, kState),
    {.gguf_name = "blk.{}.ssm_dt.bias", .hf_name = SCAN_NAMES("dt_proj.bias"), .member = at<&B::dt_bias>, .n = kInner},
    {.gguf_name = "blk.{}.ssm_a", .hf_name = SCAN_NAMES("A_log"),
     .member = at<&B::decay>, .n = kState, .hf_kept = VectorRow::kLog, .count = kInner},
    {.gguf_name = "blk.{}.ssm_d", .hf_name = SCAN_NAMES("D"), .member = at<&B::skip>, .n = kInner},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};

TensorRows rows() { return {kMatrices, kVectors}; }

// Layers with attention are listed, if the architecture has any. Such architectures have the norms.
void read_gguf(const GgufKeys& keys, Config& c) {
  const bool is_hybrid = kv_mixer(*c.arch) != nullptr;
  const char* eps = "ssm.dt_b_c_rms_epsilon";  // ingot's own key: llama.cpp takes the model's eps
  c.parts.set(Mamba1Config{.inner = keys.integer("ssm.inner_size", 1, kMaxInner),
                           .state_dim = keys.integer("ssm.state_size", 1, kMaxStateDim),
                           .dt_rank = keys.integer("ssm.time_step_rank", 1, kMaxRank),
                           .conv_width = keys.integer("ssm.conv_kernel", 2, kMaxConvWidth),
                           .has_norms = keys.boolean_or("ssm.dt_b_c_rms", is_hybrid),
                           .norms_eps = keys.has(eps) ? keys.positive(eps) : 0});
  if (is_hybrid) mark_layers_without_kv_heads(keys, c, kMamba1Part);
}

// The layers with attention, one of each period.
void mark_layers(const HfConfig& file, Config& c) {
  const int period = file.integer_or("attn_layer_period", 1, 1, 1024),
            offset = file.integer_or("attn_layer_offset", 0, 0, period - 1);
  for (int i = 0; i < c.n_layers; ++i) set_mixer(c.layers[i], i % period == offset ? kAttentionPart : kMamba1Part);
}

// Keys of Jamba, and of Mamba.
void read_hf(const HfConfig& file, Config& c) {
  const bool is_hybrid = kv_mixer(*c.arch) != nullptr;
  const auto needed = [&](const char* key, int64_t low, int64_t high) {
    const int value = file.integer_or(key, 0, low, high);
    if (value == 0) throw file.error(key, "is missing");
    return value;
  };
  const char *rank = is_hybrid ? "mamba_dt_rank" : "time_step_rank", *bias = is_hybrid ? "mamba_proj_bias" : "use_bias";
  const bool is_auto = file.text_or(rank, "") == "auto";
  const int64_t inner = int64_t{c.dim} * needed(is_hybrid ? "mamba_expand" : "expand", 1, 64);
  if (inner > kMaxInner)
    throw file.error("hidden_size", "makes {} channels: at most {} are supported", inner, kMaxInner);
  Mamba1Config m{.inner = static_cast<int>(inner),
                 .state_dim = needed(is_hybrid ? "mamba_d_state" : "state_size", 1, kMaxStateDim),
                 .dt_rank = is_auto ? (c.dim + 15) / 16 : needed(rank, 1, kMaxRank),
                 .conv_width = needed(is_hybrid ? "mamba_d_conv" : "conv_kernel", 2, kMaxConvWidth)};
  if (file.flag_or(bias, false)) throw file.error(bias, "is true, which is not supported");
  m.conv_bias = file.flag_or(is_hybrid ? "mamba_conv_bias" : "use_conv_bias", true);
  m.norms_eps = file.positive_or("mixer_rms_eps", 0);
  m.has_norms = is_hybrid || m.norms_eps > 0;
  c.parts.set(m);
  if (is_hybrid) mark_layers(file, c);
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  const Mamba1Config& m = mamba(c);
  keys.count("ssm.conv_kernel", m.conv_width);
  keys.count("ssm.state_size", m.state_dim);
  keys.count("ssm.time_step_rank", m.dt_rank);
  keys.count("ssm.inner_size", m.inner);
  if (kv_mixer(*c.arch) == nullptr) keys.set("ssm.dt_b_c_rms", m.has_norms);
  if (m.norms_eps > 0 && m.norms_eps != c.norm_eps) keys.set("ssm.dt_b_c_rms_epsilon", m.norms_eps);
}

// The inputs of the short convolution but the token's own, and each channel's state.
std::vector<StateBuffer> states(const Config& c) {
  const Mamba1Config& m = mamba(c);
  return {{.name = "inputs", .rows = m.conv_width - 1, .cols = m.inner},
          {.name = "states", .rows = m.state_dim, .cols = m.inner, .by_column = true}};
}

Block make(const Config& c, int layer) {
  const Mamba1Config& m = mamba(c);
  B b{.norm = norm_of(c), .has_norms = m.has_norms, .inner = m.inner, .state_dim = m.state_dim, .dt_rank = m.dt_rank,
      .join = join_of(c, layer)};
  b.dt_norm.eps = b.b_norm.eps = b.c_norm.eps = m.norms_eps > 0 ? m.norms_eps : c.norm_eps;
  b.join.sums = false;
  return b;
}

// Jamba's norms have weights, FalconMamba's have none.
void check(Block& block, const Config& c, int layer, const WeightSource& source) {
  const B& b = block.get<B>();
  const bool all = b.dt_norm.weight && b.b_norm.weight && b.c_norm.weight,
             any = b.dt_norm.weight || b.b_norm.weight || b.c_norm.weight;
  if (any != all || (kv_mixer(*c.arch) != nullptr && !all))
    throw Error("{}: layer {} lacks at least one of the norms of dt, b and c", source.name(), layer);
}

}  // namespace
}  // namespace ingot::mamba1_part

namespace ingot {

const PartKind kMamba1Part = {.name = "mamba1",
                              .make = mamba1_part::make,
                              .rows = mamba1_part::rows,
                              .check = mamba1_part::check,
                              .read_gguf = mamba1_part::read_gguf,
                              .read_hf = mamba1_part::read_hf,
                              .write_gguf = mamba1_part::write_gguf,
                              .hf_layer_type = "linear_attention|mamba",
                              .states = mamba1_part::states};

}  // namespace ingot

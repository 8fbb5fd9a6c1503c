// Mamba-2 (backend/blocks/mamba2.h). Every rank computes all of it: a model may have one group of heads.
#include "model/layers/mamba2.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <tuple>

#include "backend/blocks/mamba2.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/config/multipliers.h"
#include "model/layers/joins.h"
#include "model/layers/listed_layers.h"
#include "model/layers/short_conv.h"

namespace ingot {
extern const PartKind kMamba2Part;
}
namespace ingot::mamba2_part {
namespace {

using B = Mamba2Block;

constexpr int kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxStateDim = 1024;

const Mamba2Config& mamba(const Config& c) { return c.part<Mamba2Config>(); }

constexpr Dim kColumns = {[](const Config& c) -> int64_t {
  return mamba(c).inner() + mamba(c).n_channels() + mamba(c).n_heads;
}};
constexpr Dim kInner = {[](const Config& c) -> int64_t { return mamba(c).inner(); }};
constexpr Dim kEachChannel = {[](const Config& c) -> int64_t { return mamba(c).n_channels(); }};
constexpr Dim kConvWidth = {[](const Config& c) -> int64_t { return mamba(c).conv_width; }};
constexpr Dim kHeads = {[](const Config& c) -> int64_t { return mamba(c).n_heads; }};
constexpr Dim kGroups = {[](const Config& c) -> int64_t { return mamba(c).n_groups; }};
constexpr Dim kOfGroup = {[](const Config& c) -> int64_t { return mamba(c).inner() / mamba(c).n_groups; }};

bool may_have_conv_bias(const Config& c, int) { return mamba(c).conv_bias.value_or(true); }
bool may_lack_conv_bias(const Config& c) { return !mamba(c).conv_bias.value_or(false); }

float column_factor(const Config& c, int64_t row) {
  const Multipliers& m = c.part<Multipliers>();
  int64_t end = 0;
  for (size_t i = 0; i < m.ssm_columns.size(); ++i)
    if (row < (end += mamba(c).columns()[i])) return m.ssm_in * m.ssm_columns[i];
  return 1;
}
float output_factor(const Config& c, int64_t) { return c.part<Multipliers>().ssm_out; }

bool has_norm(const Config& c, int) { return mamba(c).has_norm.value_or(true); }
bool may_lack_norm(const Config& c) { return !mamba(c).has_norm; }

// Names in hybrid models and in Mamba-2's own checkpoints.
#define MIXER_NAMES(name) \
  "model.layers.{}.mamba." name "|backbone.layers.{}.mixer." name "|model.layers.{}.mamba_decoder.mamba." name

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.ssm_in.weight", .hf_name = MIXER_NAMES("in_proj.weight"),
     .member = at<&B::w_in>, .n_out = kColumns, .n_in = kModelDim, .gguf_factor = column_factor},
    {.gguf_name = "blk.{}.ssm_out.weight", .hf_name = MIXER_NAMES("out_proj.weight"),
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kInner, .gguf_factor = output_factor},
};

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.ssm_conv1d.weight", .hf_name = MIXER_NAMES("conv1d.weight"),
     .member = at<&B::conv>, .n = kConvWidth, .count = kEachChannel},
    {.gguf_name = "blk.{}.ssm_conv1d.bias", .hf_name = MIXER_NAMES("conv1d.bias"),
     .member = at<&B::conv_bias>, .n = kEachChannel, .optional = may_lack_conv_bias, .when = may_have_conv_bias},
    {.gguf_name = "blk.{}.ssm_a", .hf_name = MIXER_NAMES("A_log"),
     .member = at<&B::decay>, .n = kOne, .hf_kept = VectorRow::kLog, .count = kHeads},
    {.gguf_name = "blk.{}.ssm_dt.bias", .hf_name = MIXER_NAMES("dt_bias"), .member = at<&B::dt_bias>, .n = kHeads},
    {.gguf_name = "blk.{}.ssm_d", .hf_name = MIXER_NAMES("D"), .member = at<&B::skip>, .n = kOne, .count = kHeads},
    {.gguf_name = "blk.{}.ssm_norm.weight", .hf_name = MIXER_NAMES("norm.weight"),
     .member = at<&B::value_norm, &NormArgs::weight>, .n = kOfGroup, .optional = may_lack_norm, .when = has_norm,
     .count = kGroups},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};

TensorRows rows() { return {kMatrices, kVectors}; }

// Layers with attention are listed, if the architecture has any.
void read_gguf(const GgufKeys& keys, Config& c) {
  Mamba2Config m{.n_heads = keys.integer("ssm.time_step_rank", 1, kMaxHeads),
                 .n_groups = keys.integer("ssm.group_count", 1, kMaxHeads),
                 .state_dim = keys.integer("ssm.state_size", 1, kMaxStateDim),
                 .conv_width = keys.integer("ssm.conv_kernel", 2, kMaxConvWidth)};
  const int inner = keys.integer("ssm.inner_size", 1, 1 << 20);
  if (inner % m.n_heads != 0)
    throw keys.error("ssm.inner_size", "{} is not a multiple of ssm.time_step_rank {}", inner, m.n_heads);
  if (m.n_heads % m.n_groups != 0)
    throw keys.error("ssm.time_step_rank", "{} is not a multiple of ssm.group_count {}", m.n_heads, m.n_groups);
  m.head_dim = inner / m.n_heads;
  c.parts.set(m);
  if (kv_mixer(*c.arch) != nullptr) mark_layers_without_kv_heads(keys, c, kMamba2Part);
}

// The names of a size in config.json: of hybrid models, Nemotron-H, Mamba-2 and Zamba 2. A family has one of them.
struct SizeKey {
  std::initializer_list<const char*> names;
  int Mamba2Config::*field;
  int64_t low, high;
};
const SizeKey kSizes[] = {
    {{"mamba_n_heads", "mamba_num_heads", "num_heads", "n_mamba_heads"}, &Mamba2Config::n_heads, 1, kMaxHeads},
    {{"mamba_n_groups", "n_groups", "mamba_ngroups"}, &Mamba2Config::n_groups, 1, kMaxHeads},
    {{"mamba_d_state", "ssm_state_size", "state_size"}, &Mamba2Config::state_dim, 1, kMaxStateDim},
    {{"mamba_d_conv", "conv_kernel"}, &Mamba2Config::conv_width, 2, kMaxConvWidth},
};

const char* own_key(const HfConfig& file, std::initializer_list<const char*> names) {
  const auto own = std::ranges::find_if(names, [&](const char* name) { return file.has(name); });
  return own != names.end() ? *own : *names.begin();
}

// The columns of all heads together, if the file states them.
int64_t stated_inner(const HfConfig& file, const Config& c) {
  if (const int own = file.integer_or("mamba_d_ssm", 0, 1, 1 << 20); own > 0) return own;
  return int64_t{c.dim} * file.integer_or(own_key(file, {"mamba_expand", "expand"}), 0, 1, 64);
}

void read_head_dim(const HfConfig& file, const Config& c, Mamba2Config& m) {
  const char *dim = own_key(file, {"mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim"}),
             *heads = own_key(file, kSizes[0].names);
  const int64_t inner = stated_inner(file, c);
  m.head_dim = file.text_or(dim, "") == "auto" ? 0 : file.integer_or(dim, 0, 1, kMaxHeadDim);
  if (m.head_dim == 0) m.head_dim = static_cast<int>(std::min<int64_t>(inner / m.n_heads, kMaxHeadDim));
  if (m.head_dim == 0) throw file.error(dim, "is missing");
  if (inner > 0 && m.inner() != inner)
    throw file.error(heads, "{} heads of {} columns are not the {} columns of the expanded width", m.n_heads,
                     m.head_dim, inner);
}

// Bamba's list of the layers with attention.
void mark_layers(const HfConfig& file, Config& c) {
  const auto attention = file.integers("attn_layer_indices", 0, c.n_layers - 1);
  if (!attention) return;
  for (int i = 0; i < c.n_layers; ++i)
    set_mixer(c.layers[i], std::ranges::count(*attention, i) > 0 ? kAttentionPart : kMamba2Part);
}

void read_hf(const HfConfig& file, Config& c) {
  Mamba2Config m;
  for (const SizeKey& row : kSizes) {
    const char* key = own_key(file, row.names);
    m.*row.field = file.integer_or(key, 0, row.low, row.high);
    if (m.*row.field == 0) throw file.error(key, "is missing");
  }
  read_head_dim(file, c, m);
  if (m.n_heads % m.n_groups != 0)
    throw file.error(own_key(file, kSizes[0].names), "{} is not a multiple of the {} groups", m.n_heads, m.n_groups);
  for (const char* bias : {"mamba_proj_bias", "use_bias"})
    if (file.flag_or(bias, false)) throw file.error(bias, "is true, which is not supported");
  m.conv_bias = file.flag_or(own_key(file, {"mamba_conv_bias", "use_conv_bias"}), true);
  if (file.has("mamba_rms_norm")) m.has_norm = file.flag_or("mamba_rms_norm", false);
  if (m.has_norm == true && file.flag_or("mamba_norm_before_gate", false))
    throw file.error("mamba_norm_before_gate", "is true, which is not supported with mamba_rms_norm");
  if (file.has("n_mamba_heads")) m.min_step = file.positive_or("time_step_min", 0);  // Zamba 2 has no other limit
  if (const auto limits = file.limits("time_step_limit")) std::tie(m.min_step, m.max_step) = *limits;
  c.parts.set(m);
  mark_layers(file, c);
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  const Mamba2Config& m = mamba(c);
  if (m.min_step > 0 || std::isfinite(m.max_step))
    throw Error("GGUF cannot store time_step_limit ({} to {}): run the directory without converting it", m.min_step,
                m.max_step);
  keys.count("ssm.conv_kernel", m.conv_width);
  keys.count("ssm.state_size", m.state_dim);
  keys.count("ssm.group_count", m.n_groups);
  keys.count("ssm.time_step_rank", m.n_heads);
  keys.count("ssm.inner_size", static_cast<int>(m.inner()));
}

// The inputs of the short convolution but the token's own, and each head's matrix.
std::vector<StateBuffer> states(const Config& c) {
  const Mamba2Config& m = mamba(c);
  return {{.name = "inputs", .rows = m.conv_width - 1, .cols = m.n_channels()},
          {.name = "matrices", .count = m.n_heads, .rows = m.state_dim, .cols = m.head_dim, .by_column = true}};
}

Block make(const Config& c, int layer) {
  const Mamba2Config& m = mamba(c);
  B b{.norm = norm_of(c)};
  b.value_norm.eps = c.norm_eps;
  b.n_heads = m.n_heads, b.head_dim = m.head_dim, b.n_groups = m.n_groups, b.state_dim = m.state_dim;
  b.min_step = m.min_step, b.max_step = m.max_step;
  const Multipliers& factors = c.part<Multipliers>();
  b.column_factors = factors.ssm_columns;
  for (float& factor : b.column_factors) factor *= factors.ssm_in;
  b.join = join_of(c, layer);
  b.join.scale *= factors.ssm_out;
  b.join.sums = false;
  return b;
}

}  // namespace
}  // namespace ingot::mamba2_part

namespace ingot {

const PartKind kMamba2Part = {.name = "mamba2",
                              .make = mamba2_part::make,
                              .rows = mamba2_part::rows,
                              .read_gguf = mamba2_part::read_gguf,
                              .read_hf = mamba2_part::read_hf,
                              .write_gguf = mamba2_part::write_gguf,
                              .hf_layer_type = "linear_attention|mamba",
                              .states = mamba2_part::states};

}  // namespace ingot

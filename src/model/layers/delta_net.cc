// Gated delta nets (backend/blocks/delta_net.h). A group is a key head with its data: q, k, and the values and gates of
// its value heads.
#include "model/layers/delta_net.h"

#include "backend/blocks/delta_net.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/config/rope_sections.h"
#include "model/config/shards.h"
#include "model/files/weights.h"
#include "model/layers/joins.h"
#include "model/layers/short_conv.h"

namespace ingot {
extern const PartKind kDeltaNetPart;
}
namespace ingot::delta_net_part {
namespace {

using B = DeltaBlock;

const DeltaConfig& delta(const Config& c) { return c.part<DeltaConfig>(); }

// The values of the rank's key heads. If they are tiled, each tile has one value head for every key head.
std::vector<Range> values_of(const Config& rank, int64_t each) {
  const DeltaConfig& d = delta(rank.share->model);
  const Range own{delta(rank).first_key_head, delta(rank).n_key_heads};
  const int64_t ratio = d.n_value_heads / d.n_key_heads;
  if (!d.tiled) return scaled(own, ratio * each);
  std::vector<Range> ranges;
  for (int64_t tile = 0; tile < ratio; ++tile)
    ranges.push_back({(tile * d.n_key_heads + own.first) * each, own.n * each});
  return merged(ranges);
}
std::vector<Range> keys_of(const Config& rank) {
  return scaled({delta(rank).first_key_head, delta(rank).n_key_heads}, delta(rank).key_dim);
}
std::vector<Range> channels_of(const Config& rank) {
  const int64_t all_keys = delta(rank.share->model).all_keys();
  const Range own = keys_of(rank).front();
  std::vector<Range> ranges = {own, {all_keys + own.first, own.n}};
  for (const Range& values : values_of(rank, delta(rank).value_dim))
    ranges.push_back({2 * all_keys + values.first, values.n});
  return merged(ranges);
}

int64_t keys_size(const Config& c) { return delta(c).all_keys(); }
int64_t two_keys_size(const Config& c) { return 2 * delta(c).all_keys(); }
int64_t channels_size(const Config& c) { return delta(c).n_channels(); }
int64_t key_head_count(const Config& c) { return delta(c).n_key_heads; }
int64_t key_size(const Config& c) { return delta(c).key_dim; }
int64_t two_key_size(const Config& c) { return 2 * delta(c).key_dim; }
int64_t groups_size(const Config& c) { return delta(c).n_channels() + delta(c).all_values(); }
int64_t gate_in_group(const Config& c) { return 2 * delta(c).key_dim + delta(c).all_values() / delta(c).n_key_heads; }
int64_t two_value_heads(const Config& c) { return 2 * delta(c).n_value_heads; }
int64_t value_heads_of_group(const Config& c) { return delta(c).n_value_heads / delta(c).n_key_heads; }

constexpr Dim kKeys = {keys_size, keys_of};
constexpr Dim kValues = {[](const Config& c) -> int64_t { return delta(c).all_values(); },
                         [](const Config& rank) { return values_of(rank, delta(rank).value_dim); }};
constexpr Dim kValueHeads = {[](const Config& c) -> int64_t { return delta(c).n_value_heads; },
                             [](const Config& rank) { return values_of(rank, 1); }};
constexpr Dim kEachChannel = {channels_size, channels_of};
constexpr Dim kConvWidth = {[](const Config& c) -> int64_t { return delta(c).conv_width; }};
constexpr Dim kValue = {[](const Config& c) -> int64_t { return delta(c).value_dim; }};

constexpr Slice kQOfChannels = {channels_size}, kKOfChannels = {channels_size, keys_size},
                kVOfChannels = {channels_size, two_keys_size};
constexpr Slice kQOfGroup = {.total = groups_size, .groups = key_head_count},
                kKOfGroup = {.total = groups_size, .first = key_size, .groups = key_head_count},
                kVOfGroup = {.total = groups_size, .first = two_key_size, .groups = key_head_count},
                kGateOfGroup = {.total = groups_size, .first = gate_in_group, .groups = key_head_count};
// Betas come before alphas.
constexpr Slice kBetaOfGroup = {.total = two_value_heads, .groups = key_head_count},
                kAlphaOfGroup = {.total = two_value_heads, .first = value_heads_of_group, .groups = key_head_count};

// The source index of each element: the first `first` elements stay in place; then value heads of `dim` elements each,
// reordered so that the heads of one key head are no longer neighbours. Empty: the architecture's GGUF files do not
// tile value heads.
std::vector<int32_t> tiled_order(const Config& c, int first, int dim) {
  const DeltaConfig& d = delta(c);
  if (!c.arch->tiles_value_heads || d.n_key_heads == d.n_value_heads) return {};
  const int n_shared = d.n_value_heads / d.n_key_heads;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < first; ++i) order.push_back(i);
  for (int head = 0; head < d.n_value_heads; ++head) {
    const int stored = head % d.n_key_heads * n_shared + head / d.n_key_heads;
    for (int i = 0; i < dim; ++i) order.push_back(first + stored * dim + i);
  }
  return order;
}
std::vector<int32_t> tiled_channels(const Config& c, int64_t) {
  return tiled_order(c, 2 * delta(c).all_keys(), delta(c).value_dim);
}
std::vector<int32_t> tiled_values(const Config& c, int64_t) { return tiled_order(c, 0, delta(c).value_dim); }
std::vector<int32_t> tiled_heads(const Config& c, int64_t) { return tiled_order(c, 0, 1); }

// GGUF files have the grouped projections of qwen3_next as two tensors.
std::vector<std::pair<const char*, std::vector<int32_t>>> split_groups(const Config& c) {
  const DeltaConfig& d = delta(c);
  const int values = d.all_values() / d.n_key_heads, group = 2 * (d.key_dim + values);
  std::vector<int32_t> qkv, gate;
  const auto take = [&](std::vector<int32_t>& order, int first, int n) {
    for (int g = 0; g < d.n_key_heads; ++g)
      for (int i = 0; i < n; ++i) order.push_back(g * group + first + i);
  };
  take(qkv, 0, d.key_dim);
  take(qkv, d.key_dim, d.key_dim);
  take(qkv, 2 * d.key_dim, values);
  take(gate, 2 * d.key_dim + values, values);
  return {{"blk.{}.attn_qkv.weight", qkv}, {"blk.{}.attn_gate.weight", gate}};
}

struct StoredName {
  const char *gguf, *hf;
};
constexpr StoredName kChannels = {"blk.{}.attn_qkv.weight", "model.layers.{}.linear_attn.in_proj_qkv.weight"},
                     kGates = {"blk.{}.attn_gate.weight", "model.layers.{}.linear_attn.in_proj_z.weight"},
                     kGroups = {"blk.{}.ssm_in.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight"},
                     kBetas = {"blk.{}.ssm_beta.weight", "model.layers.{}.linear_attn.in_proj_b.weight"},
                     kAlphas = {"blk.{}.ssm_alpha.weight", "model.layers.{}.linear_attn.in_proj_a.weight"},
                     kPairs = {"blk.{}.ssm_ba.weight", "model.layers.{}.linear_attn.in_proj_ba.weight"};

// Each projection may be stored in two ways.
constexpr MatrixRow projection(StoredName name, Weight& (*member)(void*), const Dim& n_out, const Slice& slice = {},
                               RowOrder gguf_rows = nullptr) {
  return {.gguf_name = name.gguf, .hf_name = name.hf, .member = member, .n_out = n_out, .n_in = kModelDim,
          .shard = Shard::kColumns, .optional = kOptional, .gguf_slice = slice, .hf_slice = slice,
          .gguf_rows = gguf_rows};
}

constexpr MatrixRow first_of_groups() {
  MatrixRow row = projection(kGroups, at<&B::wq>, kKeys, kQOfGroup);
  row.gguf_split = split_groups;
  return row;
}

constexpr MatrixRow kMatrices[] = {
    projection(kChannels, at<&B::wq>, kKeys, kQOfChannels, tiled_channels),
    projection(kChannels, at<&B::wk>, kKeys, kKOfChannels),
    projection(kChannels, at<&B::wv>, kValues, kVOfChannels),
    projection(kGates, at<&B::gate>, kValues, {}, tiled_values),
    first_of_groups(),
    projection(kGroups, at<&B::wk>, kKeys, kKOfGroup),
    projection(kGroups, at<&B::wv>, kValues, kVOfGroup),
    projection(kGroups, at<&B::gate>, kValues, kGateOfGroup),
    projection(kBetas, at<&B::w_beta>, kValueHeads, {}, tiled_heads),
    projection(kAlphas, at<&B::w_alpha>, kValueHeads, {}, tiled_heads),
    projection(kPairs, at<&B::w_beta>, kValueHeads, kBetaOfGroup),
    projection(kPairs, at<&B::w_alpha>, kValueHeads, kAlphaOfGroup),
    {.gguf_name = "blk.{}.ssm_out.weight", .hf_name = "model.layers.{}.linear_attn.out_proj.weight",
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kValues, .shard = Shard::kRows, .gguf_columns = tiled_values},
};

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.ssm_conv1d.weight", .hf_name = "model.layers.{}.linear_attn.conv1d.weight",
     .member = at<&B::conv>, .n = kConvWidth, .shard = Shard::kMatrices, .count = kEachChannel,
     .gguf_rows = tiled_channels},
    {.gguf_name = "blk.{}.ssm_a", .hf_name = "model.layers.{}.linear_attn.A_log",
     .member = at<&B::decay>, .n = kValueHeads, .shard = Shard::kColumns, .hf_kept = VectorRow::kLog,
     .gguf_rows = tiled_heads},
    {.gguf_name = "blk.{}.ssm_dt.bias|blk.{}.ssm_dt", .hf_name = "model.layers.{}.linear_attn.dt_bias",
     .member = at<&B::dt>, .n = kValueHeads, .shard = Shard::kColumns, .gguf_rows = tiled_heads},
    {.gguf_name = "blk.{}.ssm_norm.weight", .hf_name = "model.layers.{}.linear_attn.norm.weight",
     .member = at<&B::value_norm, &NormArgs::weight>, .n = kValue},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};

// Ollama's files of hybrid models list this as attention.head_count_kv for these layers.
constexpr uint32_t kNoHeads = 0;

// Finds the gated delta nets: from the file's list, or else the layers without KV heads, or else all but the last layer
// of each period.
void mark_layers(const GgufKeys& keys, Config& c) {
  const auto listed = keys.metadata().find_bool_per_layer(keys.name("attention.recurrent_layers"), c.layers.size());
  const Value* heads = keys.metadata().find(keys.name("attention.head_count_kv"));
  const auto kv_heads = heads != nullptr && heads->is_array()
                            ? keys.metadata().get_u32s(keys.name("attention.head_count_kv"))
                            : std::vector<uint32_t>{};
  const bool has_period = !listed && std::ranges::count(kv_heads, kNoHeads) == 0;
  const int period = keys.integer_or("full_attention_interval", arch_period(*c.arch), 1, 1024);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const bool is_delta = listed       ? (*listed)[i]
                          : has_period ? (static_cast<int>(i) + 1) % period != 0
                                       : kv_heads[i] == kNoHeads;
    set_mixer(c.layers[i], is_delta ? kDeltaNetPart : *kv_mixer(*c.arch));
  }
}

// The keys are those that llama.cpp uses for state-space models.
void read_gguf(const GgufKeys& keys, Config& c) {
  DeltaConfig d = read_delta_sizes(keys);
  d.tiled = keys.boolean_or("ssm.v_head_reordered", c.arch->tiles_value_heads);  // a key of Ollama's
  c.parts.set(d);
  mark_layers(keys, c);
}

void read_hf(const HfConfig& file, Config& c) { c.parts.set(read_delta_sizes(file)); }

// The rope's sections are for positions in images; text has one section.
void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  write_delta_sizes(delta(c), keys);
  if (c.arch->tiles_value_heads && c.part<RopeSections>().sizes.empty())
    keys.set("rope.dimension_sections", std::vector<int32_t>{11, 11, 10, 0});
  std::vector<bool> recurrent;
  for (int i = 0; i < c.n_layers; ++i) recurrent.push_back(c.layer(i).has(kDeltaNetPart));
  const auto period = std::find(recurrent.begin(), recurrent.end(), false) - recurrent.begin() + 1;
  keys.count("full_attention_interval", static_cast<int>(period));
  for (int i = 0; i < c.n_layers; ++i)
    if (recurrent[i] != ((i + 1) % period != 0)) return keys.set("attention.recurrent_layers", recurrent);
}

// MLX stores the norms of Qwen's hybrids with the 1 added. It also moves the axes of their convolutions, so the shape
// of a convolution shows which norms the checkpoint has.
bool has_whole_norms(WeightSource& source, const Config& c, int layer) {
  HostTensor conv;
  const std::string name = fmt::format("model.layers.{}.linear_attn.conv1d.weight", layer);
  return source.find(name, delta(c).n_channels(), delta(c).conv_width, conv) && conv.n_in == 1;
}

TensorRows rows() { return {kMatrices, kVectors}; }

Block make(const Config& c, int layer) {
  const DeltaConfig& d = delta(c);
  B b{.norm = norm_of(c)};
  b.value_norm.eps = c.norm_eps;
  b.n_key_heads = d.n_key_heads, b.n_heads = d.n_value_heads, b.key_dim = d.key_dim, b.value_dim = d.value_dim;
  b.tiled = d.tiled;
  b.join = join_of(c, layer);
  return b;
}

// The inputs of the short convolution but the token's own, and each head's matrix.
std::vector<StateBuffer> states(const Config& c) {
  const DeltaConfig& d = delta(c);
  return {{.name = "inputs", .rows = d.conv_width - 1, .cols = d.n_channels()},
          {.name = "matrices", .count = d.n_value_heads, .rows = d.key_dim, .cols = d.value_dim, .by_column = true}};
}

void check(Block& block, const Config&, int layer, const WeightSource& source) {
  const B& b = block.get<B>();
  if (!b.wq || !b.wk || !b.wv || !b.gate || !b.w_beta || !b.w_alpha)
    throw Error("{}: the projections of the gated delta net of layer {} are missing: {}", source.name(), layer,
                source.dialect() == Dialect::kGguf
                    ? "'attn_qkv', 'attn_gate', 'ssm_beta' and 'ssm_alpha', or 'ssm_in' and 'ssm_ba'"
                    : "'linear_attn.in_proj_qkv', '_z', '_b' and '_a', or '_qkvz' and '_ba'");
}

// Ranks have neighbouring key heads, with all value heads that use them.
void divide(const Deal& deal, Config& rank) {
  const DeltaConfig& d = delta(deal.model);
  const int64_t neighbours = d.tiled ? 1 : d.n_value_heads / d.n_key_heads;
  const int64_t unit = heads_in_blocks(d.n_key_heads, neighbours * d.value_dim, deal.block);
  const Range own = deal.deal(d.n_key_heads / unit, unit, "key heads");
  DeltaConfig part = d;
  part.first_key_head = own.first;
  part.n_key_heads = static_cast<int>(own.n);
  part.n_value_heads = static_cast<int>(own.n) * (d.n_value_heads / d.n_key_heads);
  rank.parts.set(part);
}

}  // namespace
}  // namespace ingot::delta_net_part

namespace ingot {

DeltaConfig read_delta_sizes(const GgufKeys& keys) {
  DeltaConfig d;
  d.n_key_heads = keys.integer("ssm.group_count", 1, 4096);
  d.n_value_heads = keys.integer("ssm.time_step_rank", 1, 4096);
  d.key_dim = keys.integer("ssm.state_size", 1, 1024);
  d.conv_width = keys.integer("ssm.conv_kernel", 2, kMaxConvWidth);
  if (d.n_value_heads % d.n_key_heads != 0)
    throw keys.error("ssm.time_step_rank", "{} is not a multiple of ssm.group_count {}", d.n_value_heads,
                     d.n_key_heads);
  const int values = keys.integer("ssm.inner_size", 1, 1 << 20);
  if (values % d.n_value_heads != 0)
    throw keys.error("ssm.inner_size", "{} is not a multiple of ssm.time_step_rank {}", values, d.n_value_heads);
  d.value_dim = values / d.n_value_heads;
  return d;
}

// In these files the value heads of one key head are neighbours.
DeltaConfig read_delta_sizes(const HfConfig& file, const DeltaConfig& usual) {
  constexpr int kMaxHeads = 4096, kMaxHeadDim = 1024;
  const auto needed = [&](const char* key, int fallback, int64_t low, int64_t high) {
    const int value = file.integer_or(key, fallback, low, high);
    if (value == 0) throw file.error(key, "is missing");
    return value;
  };
  DeltaConfig d{.n_key_heads = needed("linear_num_key_heads", usual.n_key_heads, 1, kMaxHeads),
                .n_value_heads = needed("linear_num_value_heads", usual.n_value_heads, 1, kMaxHeads)};
  d.key_dim = needed("linear_key_head_dim", usual.key_dim, 1, kMaxHeadDim);
  d.value_dim = needed("linear_value_head_dim", usual.value_dim, 1, kMaxHeadDim);
  d.conv_width = needed("linear_conv_kernel_dim", 0, 2, kMaxConvWidth);
  if (d.n_value_heads % d.n_key_heads != 0)
    throw file.error("linear_num_value_heads", "{} is not a multiple of linear_num_key_heads {}", d.n_value_heads,
                     d.n_key_heads);
  return d;
}

void write_delta_sizes(const DeltaConfig& d, const GgufKeyWriter& keys) {
  keys.count("ssm.conv_kernel", d.conv_width);
  keys.count("ssm.state_size", d.key_dim);
  keys.count("ssm.group_count", d.n_key_heads);
  keys.count("ssm.time_step_rank", d.n_value_heads);
  keys.count("ssm.inner_size", d.all_values());
}

const PartKind kDeltaNetPart = {.name = "delta_net",
                                .make = delta_net_part::make,
                                .rows = delta_net_part::rows,
                                .check = delta_net_part::check,
                                .read_gguf = delta_net_part::read_gguf,
                                .read_hf = delta_net_part::read_hf,
                                .write_gguf = delta_net_part::write_gguf,
                                .hf_layer_type = "linear_attention",
                                .states = delta_net_part::states,
                                .has_whole_norms = delta_net_part::has_whole_norms,
                                .divide = delta_net_part::divide};

}  // namespace ingot

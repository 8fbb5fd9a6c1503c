// Gated delta nets (backend/blocks/delta_net.h). A group is a key head with its data: q, k, and the values and gates of
// its value heads.
#include "backend/blocks/delta_net.h"

#include "base/error.h"
#include "model/layers/joins.h"
#include "model/shards.h"
#include "model/weights.h"

namespace ingot::delta_net_part {
namespace {

using B = DeltaBlock;

// The values of the rank's key heads. If they are tiled, each tile has one value head for every key head.
std::vector<Range> values_of(const Config& rank, int64_t each) {
  const DeltaConfig& d = rank.share->model.delta;
  const Range own{rank.delta.first_key_head, rank.delta.n_key_heads};
  const int64_t ratio = d.n_value_heads / d.n_key_heads;
  if (!d.tiled) return scaled(own, ratio * each);
  std::vector<Range> ranges;
  for (int64_t tile = 0; tile < ratio; ++tile)
    ranges.push_back({(tile * d.n_key_heads + own.first) * each, own.n * each});
  return merged(ranges);
}
std::vector<Range> keys_of(const Config& rank) {
  return scaled({rank.delta.first_key_head, rank.delta.n_key_heads}, rank.delta.key_dim);
}
std::vector<Range> channels_of(const Config& rank) {
  const int64_t all_keys = rank.share->model.delta.all_keys();
  const Range own = keys_of(rank).front();
  std::vector<Range> ranges = {own, {all_keys + own.first, own.n}};
  for (const Range& values : values_of(rank, rank.delta.value_dim))
    ranges.push_back({2 * all_keys + values.first, values.n});
  return merged(ranges);
}

int64_t keys_size(const Config& c) { return c.delta.all_keys(); }
int64_t two_keys_size(const Config& c) { return 2 * c.delta.all_keys(); }
int64_t channels_size(const Config& c) { return c.delta.n_channels(); }
int64_t key_head_count(const Config& c) { return c.delta.n_key_heads; }
int64_t key_size(const Config& c) { return c.delta.key_dim; }
int64_t two_key_size(const Config& c) { return 2 * c.delta.key_dim; }
int64_t groups_size(const Config& c) { return c.delta.n_channels() + c.delta.all_values(); }
int64_t gate_in_group(const Config& c) { return 2 * c.delta.key_dim + c.delta.all_values() / c.delta.n_key_heads; }
int64_t two_value_heads(const Config& c) { return 2 * c.delta.n_value_heads; }
int64_t value_heads_of_group(const Config& c) { return c.delta.n_value_heads / c.delta.n_key_heads; }

constexpr Dim kKeys = {keys_size, keys_of};
constexpr Dim kValues = {[](const Config& c) -> int64_t { return c.delta.all_values(); },
                         [](const Config& rank) { return values_of(rank, rank.delta.value_dim); }};
constexpr Dim kValueHeads = {[](const Config& c) -> int64_t { return c.delta.n_value_heads; },
                             [](const Config& rank) { return values_of(rank, 1); }};
constexpr Dim kEachChannel = {channels_size, channels_of};
constexpr Dim kConvWidth = {[](const Config& c) -> int64_t { return c.delta.conv_width; }};
constexpr Dim kValue = {[](const Config& c) -> int64_t { return c.delta.value_dim; }};

constexpr Slice kQOfChannels = {channels_size}, kKOfChannels = {channels_size, keys_size},
                kVOfChannels = {channels_size, two_keys_size};
constexpr Slice kQOfGroup = {.total = groups_size, .groups = key_head_count},
                kKOfGroup = {.total = groups_size, .first = key_size, .groups = key_head_count},
                kVOfGroup = {.total = groups_size, .first = two_key_size, .groups = key_head_count},
                kGateOfGroup = {.total = groups_size, .first = gate_in_group, .groups = key_head_count};
// Betas come before alphas.
constexpr Slice kBetaOfGroup = {.total = two_value_heads, .groups = key_head_count},
                kAlphaOfGroup = {.total = two_value_heads, .first = value_heads_of_group, .groups = key_head_count};

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
constexpr MatrixRow projection(StoredName name, Weight& (*member)(void*), const Dim& n_out, const Slice& slice = {}) {
  return {.gguf_name = name.gguf, .hf_name = name.hf, .member = member, .n_out = n_out, .n_in = kModelDim,
          .shard = Shard::kColumns, .optional = kOptional, .gguf_slice = slice, .hf_slice = slice};
}

constexpr MatrixRow kMatrices[] = {
    projection(kChannels, at<&B::wq>, kKeys, kQOfChannels),
    projection(kChannels, at<&B::wk>, kKeys, kKOfChannels),
    projection(kChannels, at<&B::wv>, kValues, kVOfChannels),
    projection(kGates, at<&B::gate>, kValues),
    projection(kGroups, at<&B::wq>, kKeys, kQOfGroup),
    projection(kGroups, at<&B::wk>, kKeys, kKOfGroup),
    projection(kGroups, at<&B::wv>, kValues, kVOfGroup),
    projection(kGroups, at<&B::gate>, kValues, kGateOfGroup),
    projection(kBetas, at<&B::w_beta>, kValueHeads),
    projection(kAlphas, at<&B::w_alpha>, kValueHeads),
    projection(kPairs, at<&B::w_beta>, kValueHeads, kBetaOfGroup),
    projection(kPairs, at<&B::w_alpha>, kValueHeads, kAlphaOfGroup),
    {.gguf_name = "blk.{}.ssm_out.weight", .hf_name = "model.layers.{}.linear_attn.out_proj.weight",
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kValues, .shard = Shard::kRows},
};

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.ssm_conv1d.weight", .hf_name = "model.layers.{}.linear_attn.conv1d.weight",
     .member = at<&B::conv>, .n = kConvWidth, .shard = Shard::kMatrices, .count = kEachChannel},
    {.gguf_name = "blk.{}.ssm_a", .hf_name = "model.layers.{}.linear_attn.A_log",
     .member = at<&B::decay>, .n = kValueHeads, .shard = Shard::kColumns, .hf_kept = VectorRow::kLog},
    {.gguf_name = "blk.{}.ssm_dt.bias|blk.{}.ssm_dt", .hf_name = "model.layers.{}.linear_attn.dt_bias",
     .member = at<&B::dt>, .n = kValueHeads, .shard = Shard::kColumns},
    {.gguf_name = "blk.{}.ssm_norm.weight", .hf_name = "model.layers.{}.linear_attn.norm.weight",
     .member = at<&B::value_norm, &NormArgs::weight>, .n = kValue},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};

Block make(const Config& c, int) {
  const DeltaConfig& d = c.delta;
  B b{.norm = norm_of(c)};
  b.value_norm.eps = c.norm_eps;
  b.n_key_heads = d.n_key_heads, b.n_heads = d.n_value_heads, b.key_dim = d.key_dim, b.value_dim = d.value_dim;
  b.tiled = d.tiled;
  b.join = join_of(c);
  return b;
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
  const DeltaConfig& d = deal.model.delta;
  const int64_t neighbours = d.tiled ? 1 : d.n_value_heads / d.n_key_heads;
  const int64_t unit = heads_in_blocks(d.n_key_heads, neighbours * d.value_dim, deal.block);
  const Range own = deal.deal(d.n_key_heads / unit, unit, "key heads");
  rank.delta.first_key_head = own.first;
  rank.delta.n_key_heads = static_cast<int>(own.n);
  rank.delta.n_value_heads = static_cast<int>(own.n) * (d.n_value_heads / d.n_key_heads);
}

}  // namespace
}  // namespace ingot::delta_net_part

namespace ingot {

const PartKind kDeltaNetPart = {.name = "delta_net",
                                .make = delta_net_part::make,
                                .rows = [] { return TensorRows{delta_net_part::kMatrices, delta_net_part::kVectors}; },
                                .check = delta_net_part::check,
                                .divide = delta_net_part::divide};

}  // namespace ingot

#include "model/shards.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/draft_config.h"
#include "model/tensor_finder.h"

namespace ingot {
namespace {

// Divides a model among ranks.
struct Divided {
  const Config& model;
  int rank, n_ranks;
  int64_t n_groups = 1;  // of n_ranks ranks each; each group divides its own part

  // Gives each rank neighbouring units, as evenly as possible. `each`: elements of a unit. `advice` ends the message.
  Range deal(int64_t n_units, int64_t each, const char* what, const char* advice = "") const {
    if (n_units < n_ranks)
      throw UsageError("{} ranks are too many for {}: its {} can be divided into at most {} part{} of whole blocks{}",
                       n_groups * n_ranks, model.name.empty() ? "this model" : printable(model.name), what,
                       n_groups * n_units, n_groups * n_units == 1 ? "" : "s", advice);
    const int64_t first = n_units * rank / n_ranks, end = n_units * (rank + 1) / n_ranks;
    return {first * each, (end - first) * each};
  }

  // Columns of a feed-forward. Kernels are fastest for multiples of 32.
  Range deal_columns(int64_t n, int64_t block, const char* what, const char* advice = "") const {
    if (n == 0) return {};
    int64_t unit = std::gcd(n, std::lcm(block, int64_t{32}));
    if (n / unit < n_ranks) unit = std::gcd(n, block);
    return deal(n / unit, unit, what, advice);
  }
};

// The fewest heads of `dim` columns that fill whole blocks.
int64_t heads_in_blocks(int64_t n_heads, int64_t dim, int64_t block) {
  const int64_t columns = std::gcd(block, n_heads * dim);
  return columns / std::gcd(columns, dim);
}

void deal_heads(const Divided& d, int64_t block, Share& share) {
  const Config& c = d.model;
  const int64_t unit = heads_in_blocks(c.n_heads, c.attended_dim() / c.n_heads, block);
  if (c.latent.kv_rank > 0) {
    share.heads = d.deal(c.n_heads / unit, unit, "heads");
    share.kv_heads = {0, c.n_kv_heads};
    return;
  }
  const int64_t group = c.n_heads / c.n_kv_heads;
  if (c.n_kv_heads >= d.n_ranks) {
    const int64_t kv_unit = unit / std::gcd(unit, group);
    share.kv_heads = d.deal(c.n_kv_heads / kv_unit, kv_unit, "heads of keys and values");
    share.heads = {share.kv_heads.first * group, share.kv_heads.n * group};
    return;
  }
  if (d.n_ranks % c.n_kv_heads != 0)
    throw UsageError("{} ranks cannot share {} KV heads: use a number of ranks that is a multiple or a divisor of {}",
                     d.n_ranks, c.n_kv_heads, c.n_kv_heads);
  const int each = d.n_ranks / c.n_kv_heads;  // ranks that have the same keys
  const Divided of_group{c, d.rank % each, each, c.n_kv_heads};
  share.kv_heads = {d.rank / each, 1};
  share.heads = of_group.deal(group % unit == 0 ? group / unit : 1, group % unit == 0 ? unit : group, "heads");
  share.heads.first += share.kv_heads.first * group;
  share.is_first_with_kv = d.rank % each == 0;
}

void deal_key_heads(const Divided& d, int64_t block, Share& share) {
  const DeltaConfig& delta = d.model.delta;
  if (delta.n_key_heads == 0) return;
  const int64_t neighbours = delta.tiled ? 1 : delta.n_value_heads / delta.n_key_heads;
  const int64_t unit = heads_in_blocks(delta.n_key_heads, neighbours * delta.value_dim, block);
  share.key_heads = d.deal(delta.n_key_heads / unit, unit, "key heads");
}

void deal_experts(const Divided& d, int64_t block, bool whole, Share& share) {
  const ExpertConfig& e = d.model.experts;
  if (whole && e.n == 0)
    throw UsageError("ep needs a model with experts, but this model has none: ranks divide it without ep");
  share.experts = whole ? d.deal(e.n, 1, "experts") : Range{0, e.n};
  share.expert_ffn = whole ? Range{0, e.ffn_dim}
                           : d.deal_columns(e.ffn_dim, block, "experts' feed-forward",
                                            e.n >= d.n_ranks ? ", but ranks can have whole experts: use ep" : "");
  share.shared_ffn = d.deal_columns(e.shared_dim, block, "shared expert's feed-forward");
}

void deal_vocabulary(const Divided& d, Share& share) {
  const int64_t n = d.model.n_vocab, least = (n + d.n_ranks - 1) / d.n_ranks, whole = (least + 31) / 32 * 32;
  share.rank_vocab = static_cast<int>((d.n_ranks - 1) * whole < n ? whole : least);
  const int64_t first = int64_t{share.rank_vocab} * d.rank;
  if (int64_t{share.rank_vocab} * (d.n_ranks - 1) >= n) d.deal(0, 1, "vocabulary");
  share.vocab = {first, std::min<int64_t>(share.rank_vocab, n - first)};
}

std::vector<Range> scaled(const Range& units, int64_t each) { return {{units.first * each, units.n * each}}; }

// The values of the rank's key heads. If they are tiled, each tile has one value head for every key head.
std::vector<Range> values_of(const Share& share, int64_t each) {
  const DeltaConfig& d = share.model.delta;
  const int64_t ratio = d.n_value_heads / d.n_key_heads;
  if (!d.tiled) return scaled(share.key_heads, ratio * each);
  std::vector<Range> ranges;
  for (int64_t tile = 0; tile < ratio; ++tile)
    ranges.push_back({(tile * d.n_key_heads + share.key_heads.first) * each, share.key_heads.n * each});
  return ranges;
}

std::vector<Range> channels_of(const Share& share) {
  const DeltaConfig& d = share.model.delta;
  std::vector<Range> ranges;
  for (const int64_t part : {0, d.all_keys()})
    ranges.push_back({part + share.key_heads.first * d.key_dim, share.key_heads.n * d.key_dim});
  for (Range values : values_of(share, d.value_dim)) {
    values.first += 2 * int64_t{d.all_keys()};
    ranges.push_back(values);
  }
  return ranges;
}

// Neighbouring ranges become one.
std::vector<Range> merged(const std::vector<Range>& ranges) {
  std::vector<Range> all;
  for (const Range& range : ranges) {
    if (!all.empty() && all.back().first + all.back().n == range.first) {
      all.back().n += range.n;
    } else {
      all.push_back(range);
    }
  }
  return all;
}

// The same part of each of the groups, which have `size` elements.
std::vector<Range> in_each(const std::vector<Range>& groups, int64_t size, const std::vector<Range>& part) {
  std::vector<Range> all;
  for (const Range& some : groups)
    for (int64_t i = some.first; i < some.first + some.n; ++i)
      for (const Range& range : part) all.push_back({i * size + range.first, range.n});
  return merged(all);
}

// The successive matrices or vectors of a row that the rank has.
std::vector<Range> kept_of_count(Size count, Shard shard, const Config& c) {
  if (count == Size::kNone) return {{0, 1}};
  if (shard == Shard::kNone) return {{0, size_of(count, c.share ? c.share->model : c)}};
  return kept(count, c);
}

}  // namespace

Config config_of_rank(const Config& model, int rank, int n_ranks, int64_t block, bool whole_experts) {
  Share share{.model = model, .rank = rank, .n_ranks = n_ranks};
  const Divided d{model, rank, n_ranks};
  deal_heads(d, block, share);
  deal_key_heads(d, block, share);
  deal_vocabulary(d, share);
  const bool has_plain =
      model.experts.n == 0 || std::ranges::any_of(model.layers, [](const LayerKind& l) { return !l.experts; });
  if (has_plain) share.ffn = d.deal_columns(model.ffn_dim, block, "feed-forward");
  deal_experts(d, block, whole_experts, share);

  Config c = model;
  c.n_heads = static_cast<int>(share.heads.n);
  c.n_kv_heads = static_cast<int>(share.kv_heads.n);
  if (has_plain) c.ffn_dim = static_cast<int>(share.ffn.n);
  c.experts.n = static_cast<int>(share.experts.n);
  c.experts.ffn_dim = static_cast<int>(share.expert_ffn.n);
  c.experts.shared_dim = static_cast<int>(share.shared_ffn.n);
  if (c.delta.n_key_heads > 0)
    c.delta.n_value_heads = static_cast<int>(share.key_heads.n) * (model.delta.n_value_heads / model.delta.n_key_heads);
  c.delta.n_key_heads = static_cast<int>(share.key_heads.n);
  c.share = std::make_shared<const Share>(std::move(share));
  return c;
}

int64_t largest_block(WeightSource& source, const Config& model, bool whole_experts) {
  TensorFinder finder(source, model, true);
  int64_t largest = 1;
  HostTensor host;
  for (int layer = 0; layer < model.n_layers; ++layer)
    for (const auto& row : layer_matrices())
      if (row.shard == Shard::kRows && !(whole_experts && row.count == Size::kExperts) &&
          applies(row.when, model, layer) && finder.find(row, layer, host))
        largest = std::lcm(largest, int64_t{info(host.format).block_size});
  return largest;
}

std::vector<Range> kept(Size size, const Config& c) {
  using enum Size;
  const Share* share = c.share.get();
  const int64_t n = size_of(size, share == nullptr ? c : share->model);
  if (share == nullptr) return {{0, n}};
  const Config& model = share->model;
  switch (size) {
    case kQ:
    case kTwoQ:
    case kAttended:
    case Size::kLatentQ:
    case kHeads: return scaled(share->heads, n / model.n_heads);
    case kKv: return scaled(share->kv_heads, model.head_dim);
    case kFfn: return {share->ffn};
    case kExperts: return {share->experts};
    case kExpertFfn: return {share->expert_ffn};
    case kSharedFfn: return {share->shared_ffn};
    case kVocab: return {share->vocab};
    case kDeltaKeys: return scaled(share->key_heads, model.delta.key_dim);
    case kDeltaValues:
    case kValueHeads: return merged(values_of(*share, n / model.delta.n_value_heads));
    case kChannels: return merged(channels_of(*share));
    default: return {{0, n}};
  }
}

template <class Owner>
std::optional<RankPart> part_of(const MatrixRow<Owner>& row, const Config& c) {
  const Config& model = c.share ? c.share->model : c;
  const std::vector<Range> matrices = kept_of_count(row.count, row.shard, c);
  const int64_t n_out = size_of(row.n_out, model), n_in = size_of(row.n_in, model);
  RankPart cut{.rows = in_each(matrices, n_out, {{0, n_out}}), .columns = {{0, n_in}}};
  if (row.shard == Shard::kColumns) cut.rows = in_each(matrices, n_out, kept(row.n_out, c));
  if (row.shard == Shard::kRows) cut.columns = kept(row.n_in, c);
  return cut;
}

template <class Owner>
std::optional<RankPart> part_of(const VectorRow<Owner>& row, const Config& c) {
  const Config& model = c.share ? c.share->model : c;
  const bool is_of_own_expert = row.count == Size::kExperts && c.experts.n < model.experts.n;
  if (row.shard == Shard::kOnce && c.share && c.share->rank > 0 && !is_of_own_expert) return std::nullopt;
  RankPart cut{.rows = kept_of_count(row.count, row.shard, c), .columns = {{0, size_of(row.n, model)}}};
  if (row.shard == Shard::kColumns) cut.columns = kept(row.n, c);
  return cut;
}

template std::optional<RankPart> part_of(const MatrixRow<LayerWeights>&, const Config&);
template std::optional<RankPart> part_of(const MatrixRow<ModelWeights>&, const Config&);
template std::optional<RankPart> part_of(const VectorRow<LayerWeights>&, const Config&);
template std::optional<RankPart> part_of(const VectorRow<ModelWeights>&, const Config&);
// A draft head is on one rank, which has all of it.
template std::optional<RankPart> part_of(const MatrixRow<DraftHeadWeights>&, const Config&);
template std::optional<RankPart> part_of(const VectorRow<DraftHeadWeights>&, const Config&);

}  // namespace ingot

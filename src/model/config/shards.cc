#include "model/config/shards.h"

#include <algorithm>

#include "base/error.h"
#include "model/config/kind.h"

namespace ingot {
namespace {

void deal_vocabulary(const Deal& d) {
  Share& share = d.share;
  const int64_t n = d.model.n_vocab, least = (n + d.n_ranks - 1) / d.n_ranks, whole = (least + 31) / 32 * 32;
  share.rank_vocab = static_cast<int>((d.n_ranks - 1) * whole < n ? whole : least);
  const int64_t first = int64_t{share.rank_vocab} * d.rank;
  if (int64_t{share.rank_vocab} * (d.n_ranks - 1) >= n) d.deal(0, 1, "vocabulary");
  share.vocab = {first, std::min<int64_t>(share.rank_vocab, n - first)};
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
std::vector<Range> kept_of_count(const Dim& count, Shard shard, const Config& c) {
  if (!count) return {{0, 1}};
  if (shard == Shard::kNone) return {{0, size_of(count, c.share ? c.share->model : c)}};
  return kept(count, c);
}

}  // namespace

Range Deal::deal(int64_t n_units, int64_t each, const char* what, const char* advice) const {
  if (n_units < n_ranks)
    throw UsageError("{} ranks are too many for {}: its {} can be divided into at most {} part{} of whole blocks{}",
                     n_groups * n_ranks, model.name.empty() ? "this model" : printable(model.name), what,
                     n_groups * n_units, n_groups * n_units == 1 ? "" : "s", advice);
  const int64_t first = n_units * rank / n_ranks, end = n_units * (rank + 1) / n_ranks;
  return {first * each, (end - first) * each};
}

Range Deal::deal_columns(int64_t n, const char* what, const char* advice) const {
  if (n == 0) return {};
  int64_t unit = std::gcd(n, std::lcm(block, int64_t{32}));
  if (n / unit < n_ranks) unit = std::gcd(n, block);
  return deal(n / unit, unit, what, advice);
}

int64_t heads_in_blocks(int64_t n_heads, int64_t dim, int64_t block) {
  const int64_t columns = std::gcd(block, n_heads * dim);
  return columns / std::gcd(columns, dim);
}

std::vector<Range> scaled(const Range& units, int64_t each) { return {{units.first * each, units.n * each}}; }

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

Config config_of_rank(const Config& model, int rank, int n_ranks, int64_t block, bool whole_experts) {
  if (whole_experts && model.experts.n == 0)
    throw UsageError("ep needs a model with experts, but this model has none: ranks divide it without ep");
  Share share{.model = model, .rank = rank, .n_ranks = n_ranks};
  const Deal deal{model, share, rank, n_ranks, block, whole_experts};
  Config c = model;
  for (const PartKind* kind : all_kinds())
    if (kind->divide != nullptr && uses(model, *kind)) kind->divide(deal, c);
  deal_vocabulary(deal);
  c.share = std::make_shared<const Share>(std::move(share));
  // Layers of other sizes are divided as if all layers were like them.
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    LayerConfig& own = c.layers[static_cast<size_t>(layer)];
    if (!own.heads && own.ffn_dim == 0) continue;
    Config alike = LayerSizes(model, layer);
    for (LayerConfig& other : alike.layers) other.heads.reset(), other.ffn_dim = 0;
    const Config part = config_of_rank(alike, rank, n_ranks, block, whole_experts);
    own.heads = LayerHeads{part.n_heads, part.n_kv_heads, part.head_dim};
    own.ffn_dim = part.ffn_dim;
    own.share = part.share;
  }
  return c;
}

std::vector<Range> kept(const Dim& dim, const Config& c) {
  if (c.share && dim.of_rank != nullptr) return dim.of_rank(c);
  return {{0, size_of(dim, c.share ? c.share->model : c)}};
}

std::optional<RankPart> part_of(const MatrixRow& row, const Config& c) {
  const Config& model = c.share ? c.share->model : c;
  const std::vector<Range> matrices = kept_of_count(row.count, row.shard, c);
  const int64_t n_out = size_of(row.n_out, model), n_in = size_of(row.n_in, model);
  RankPart cut{.rows = in_each(matrices, n_out, {{0, n_out}}), .columns = {{0, n_in}}};
  if (row.shard == Shard::kColumns) cut.rows = in_each(matrices, n_out, kept(row.n_out, c));
  if (row.shard == Shard::kRows) cut.columns = kept(row.n_in, c);
  return cut;
}

std::optional<RankPart> part_of(const VectorRow& row, const Config& c) {
  const Config& model = c.share ? c.share->model : c;
  const bool is_of_own_expert = row.count.used != nullptr && size_of(row.count, c) < size_of(row.count, model);
  if (row.shard == Shard::kOnce && c.share && c.share->rank > 0 && !is_of_own_expert) return std::nullopt;
  RankPart cut{.rows = kept_of_count(row.count, row.shard, c), .columns = {{0, size_of(row.n, model)}}};
  if (row.shard == Shard::kColumns) cut.columns = kept(row.n, c);
  return cut;
}

}  // namespace ingot

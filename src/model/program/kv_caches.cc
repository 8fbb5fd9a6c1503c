#include "model/program/kv_caches.h"

#include <algorithm>
#include <tuple>

#include "backend/batch.h"
#include "base/error.h"
#include "model/config/kind.h"

namespace ingot {
namespace {

KvCacheKind kind_of(const Config& c, int layer, const PartKind& kind) {
  const LayerSizes layer_sizes(c, layer);
  const Config& sizes = layer_sizes;
  return {.n_kv_heads = sizes.n_kv_heads,
          .head_dim = sizes.head_dim,
          .values_are_keys = kind.values_are_keys,
          .window = c.bidirectional || kind.reads_source ? 0 : c.layer(layer).window,
          .of_source = kind.reads_source};
}

// The layer whose keys the layer reads.
int layer_of_keys(const Config& c, int layer) {
  const int earlier = c.layer(layer).kv_layer;
  return earlier < 0 ? layer : earlier;
}

// Calls f(layer, kind) for each part that has keys of its own.
template <class F>
void for_each_part(const Config& c, const OwnParts& part, F&& f) {
  for (int layer = 0; layer < c.n_layers; ++layer)
    for (const PlacedKind& placed : placed_parts(c, layer))
      if (part.layer(layer, placed.part) && writes_kv(c, layer, *placed.kind)) f(layer, *placed.kind);
}

}  // namespace

std::vector<KvCacheKind> kv_caches(const Config& c) {
  std::vector<KvCacheKind> caches;
  for_each_part(c, {}, [&](int layer, const PartKind& part) {
    const KvCacheKind kind = kind_of(c, layer, part);
    if (std::ranges::find(caches, kind) == caches.end()) caches.push_back(kind);
  });
  std::ranges::stable_sort(caches, {}, [](const KvCacheKind& kind) {
    return std::tuple(kind.of_source, kind.window > 0, -kind.window);
  });
  // Without attention, the blocks of a cache without layers still count tokens, for the prefix cache.
  if (caches.empty() || caches.front().of_source)
    caches.insert(caches.begin(), {.n_kv_heads = std::max(1, c.n_kv_heads), .head_dim = std::max(1, c.head_dim)});
  if (c.draft_head) caches.front().window = 0;
  if (std::ranges::count(caches, true, &KvCacheKind::of_source) > 1)
    throw Error("layers read sources with keys of different shapes: not supported");
  if (caches.size() > kMaxTables)
    throw Error("the model's layers need {} KV caches of different shapes and windows: at most {} are supported",
                caches.size(), kMaxTables);
  return caches;
}

int kv_cache_of(const Config& c, std::span<const KvCacheKind> caches, int layer, const PartKind& part) {
  const KvCacheKind kind = kind_of(c, layer_of_keys(c, layer), part);
  const auto found = std::ranges::find(caches, kind);
  return found == caches.end() ? 0 : static_cast<int>(found - caches.begin());  // the first, if a draft head uses it
}

void check_kv_types(bool values_are_keys, KvTypes types) {
  if (values_are_keys && types.differ())
    throw Error("a KV cache of {} does not suit this model, whose values are its keys: use one type, such as q8_0",
                kv_type_name(types));
}

std::vector<KvShape> kv_shapes(const Config& c, const OwnParts& part, int block_size, KvTypes types) {
  const std::vector<KvCacheKind> caches = kv_caches(c);
  std::vector<KvShape> shapes;
  for (const KvCacheKind& kind : caches) {
    check_kv_types(kind.values_are_keys, types);
    shapes.push_back({.n_layers = 0,
                      .n_kv_heads = kind.n_kv_heads,
                      .head_dim = kind.head_dim,
                      .block_size = block_size,
                      .dtype = types,
                      .table = static_cast<int>(shapes.size()),
                      .of_source = kind.of_source,
                      .values_are_keys = kind.values_are_keys});
  }
  for_each_part(c, part, [&](int layer, const PartKind& of_layer) {
    ++shapes[static_cast<size_t>(kv_cache_of(c, caches, layer, of_layer))].n_layers;
  });
  return shapes;
}

void set_blocks(std::span<KvShape> shapes, std::span<const KvCacheKind> kinds, const KvLoad& load) {
  // Of running sequences; for the next turn of a conversation, the ends of its prompt and of its answer; and of two
  // beginnings that many sequences share.
  const int64_t n_windows = 3 * int64_t{load.max_seqs} + (load.max_seqs > 1 ? 2 : 0);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const int64_t size = shapes[i].block_size, window = kinds[i].window;
    const int64_t needed = n_windows * (window + 3 * size) + 2 * int64_t{load.max_batch_tokens};
    const int64_t n = window == 0 ? load.n_tokens : std::min(load.n_tokens, needed);
    const auto blocks_of = [&](int64_t n_rows) { return static_cast<int>((n_rows + size - 1) / size); };
    shapes[i].n_blocks = kinds[i].of_source ? load.max_seqs * blocks_of(load.max_source_rows) : blocks_of(n);
  }
}

int n_layers_of(std::span<const KvShape> caches) {
  int n = 0;
  for (const KvShape& cache : caches) n += cache.n_layers;
  return n;
}

size_t token_bytes_of(std::span<const KvShape> caches) {
  size_t bytes = 0;
  for (const KvShape& cache : caches) bytes += cache.token_bytes();
  return bytes;
}

}  // namespace ingot

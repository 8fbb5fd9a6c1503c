// The KV caches of a model. Layers whose keys have one shape and one window share a cache, so a cache with a window
// needs blocks for the window only.
#pragma once
#include <span>
#include <vector>

#include "backend/kv.h"
#include "model/config/config.h"
#include "model/config/split.h"

namespace ingot {

struct KvCacheKind {
  int n_kv_heads = 0, head_dim = 0;
  bool values_are_keys = false;  // KvShape
  int window = 0;                // tokens that a token sees; 0: all
  bool of_source = false;        // KvShape
  bool operator==(const KvCacheKind&) const = default;
};

// The caches in the order of a batch's block tables: the widest window first. A draft head uses the first cache, which
// then keeps all tokens. All layers of a bidirectional model share one cache. The cache of sources is the last. Throws
// Error if there are more than kMaxTables, or two of sources.
std::vector<KvCacheKind> kv_caches(const Config& config);
// The index of the cache that the layer's parts of this kind use.
int kv_cache_of(const Config& config, std::span<const KvCacheKind> caches, int layer, const PartKind& kind);
// Throws Error if values that are keys would have a type of their own.
void check_kv_types(bool values_are_keys, KvTypes types);
// The shape of each cache on a device that has a part of the model, without blocks. n_layers is 0 if the device has no
// layer of the cache.
std::vector<KvShape> kv_shapes(const Config& config, const OwnParts& part, int block_size, KvTypes types);
// Sets the blocks of caches of these kinds. Without a window: for n_tokens. With a window: for the windows of max_seqs
// sequences, for what steps in flight write, and for windows that the prefix cache keeps; but not for more than
// n_tokens.
struct KvLoad {
  int64_t n_tokens = 0;
  int max_seqs = 1, max_batch_tokens = 0;
  int max_source_rows = 0;  // of a sequence
};
void set_blocks(std::span<KvShape> shapes, std::span<const KvCacheKind> kinds, const KvLoad& load);
int n_layers_of(std::span<const KvShape> caches);
size_t token_bytes_of(std::span<const KvShape> caches);  // of the keys and values of one token in all layers

}  // namespace ingot

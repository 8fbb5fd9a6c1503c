// SavedPrefix: the cached part of a history, with a copy of its KV blocks (Engine::save_prefix). The server writes the
// prefix to a file and later restores it into an engine of the same model, so the engine does not recompute these
// tokens.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"

namespace ingot {

// Everything but the model that the bytes of saved blocks depend on.
struct PrefixLayout {
  std::string name;        // Runner::kv_layout()
  int block_tokens = 0;
  struct OfPool {
    size_t block_bytes = 0;
    int n_blocks = 0;  // of the whole pool: no prefix has more
  };
  std::vector<OfPool> pools;
  int n_vocab = 0;
};

struct PrefixView {
  CacheKey root;  // of the history's salt (root_key)
  std::span<const int32_t> tokens;
  struct OfPool {
    int n_missing = 0;                // blocks at the beginning without bytes: they are before the pool's window
    std::span<const uint8_t> blocks;  // [n_blocks - n_missing, block_bytes]; the last block may be partly filled
  };
  std::vector<OfPool> pools;
};

struct SavedPrefix {
  CacheKey root;
  std::vector<int32_t> tokens;
  struct OfPool {
    int n_missing = 0;
    std::vector<uint8_t> blocks;
  };
  std::vector<OfPool> pools;
  PrefixView view() const {
    PrefixView view{root, tokens, {}};
    for (const OfPool& pool : pools) view.pools.push_back({pool.n_missing, pool.blocks});
    return view;
  }
};

}  // namespace ingot

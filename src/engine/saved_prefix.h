// Saved prefixes: the cached part of a history, copied between the KV cache and host memory. The server writes the
// copy to a file and later restores it into an engine of the same model, so the engine does not recompute these tokens.
//
// A prefix may have gigabytes, and a copy takes the stepping thread. So a prefix is copied in pieces, each between two
// steps. The caller asks for the next piece when it has worked on the last one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"

namespace ingot {

inline constexpr size_t kPieceBytes = size_t{8} << 20;  // copied in some milliseconds
inline int blocks_of_piece(size_t block_bytes) {
  return static_cast<int>(std::max<size_t>(1, kPieceBytes / std::max<size_t>(block_bytes, 1)));
}

// Everything but the model that the bytes of saved blocks depend on.
struct PrefixLayout {
  std::string name;  // Runner::kv_layout()
  int block_tokens = 0;
  struct OfPool {
    size_t block_bytes = 0;
    int n_blocks = 0;  // of the whole pool: no prefix has more
  };
  std::vector<OfPool> pools;
  int n_vocab = 0;
};

// Blocks of the cache while a history is saved or restored. If the requests need the blocks meanwhile, they get them,
// and the copy fails. Only the stepping thread uses this object.
struct HeldBlocks {
  CacheKey root;
  std::vector<int32_t> tokens;
  std::vector<int> n_missing;               // of each pool, as in CachedPrefix
  int n_known = 0;                          // blocks at the beginning that are cached already
  std::vector<std::vector<int32_t>> pools;  // [n_blocks]; -1: no block
  bool is_held = false;
};

// The part of a history that the cache has.
struct CachedPrefix {
  CacheKey root;  // of the history's salt (root_key)
  std::vector<int32_t> tokens;
  struct OfPool {
    int n_missing = 0;          // blocks at the beginning without bytes: they are before the pool's window
    int n_full = 0;             // full blocks after those
    std::vector<uint8_t> tail;  // bytes of the last block, if it is partly filled; else empty
  };
  std::vector<OfPool> pools;
  std::shared_ptr<HeldBlocks> held;  // the full blocks
};

}  // namespace ingot

// Copies of prefixes for tests of the engine without its own thread: all pieces, with a step for each.
#pragma once
#include "collector.h"
#include "engine/engine.h"

namespace ingot {

// Steps until the call has been handled.
template <class T>
T get(Engine& engine, std::future<T> future) {
  while (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) engine.step();
  return future.get();
}

// The part of a history that an engine had, with all bytes: of each pool, those of the full blocks, then the tail's.
struct PrefixBytes {
  CachedPrefix prefix;
  std::vector<std::vector<uint8_t>> pools;
  std::vector<int> n_missing() const {
    std::vector<int> all;
    for (const CachedPrefix::OfPool& pool : prefix.pools) all.push_back(pool.n_missing);
    return all;
  }
};

inline PrefixBytes save_prefix(Engine& engine, const CacheKey& root, const Tokens& tokens, int n_at_once = 3) {
  PrefixBytes saved{get(engine, engine.find_prefix(root, tokens)), {}};
  for (size_t i = 0; i < saved.prefix.pools.size(); ++i) {
    const CachedPrefix::OfPool& pool = saved.prefix.pools[i];
    const size_t size = engine.prefix_layout().pools[i].block_bytes;
    std::vector<uint8_t>& bytes = saved.pools.emplace_back(static_cast<size_t>(pool.n_full) * size);
    for (int first = 0, n; first < pool.n_full; first += n) {
      n = std::min(n_at_once, pool.n_full - first);
      const auto piece = std::span(bytes).subspan(static_cast<size_t>(first) * size, static_cast<size_t>(n) * size);
      get(engine, engine.read_prefix(saved.prefix, static_cast<int>(i), first, piece));
    }
    bytes.insert(bytes.end(), pool.tail.begin(), pool.tail.end());
  }
  engine.drop_prefix(saved.prefix.held);
  return saved;
}

inline void write_pieces(Engine& engine, const std::shared_ptr<HeldBlocks>& held, const PrefixBytes& saved,
                         int n_at_once = 3) {
  for (size_t i = 0; i < saved.pools.size(); ++i) {
    const size_t size = engine.prefix_layout().pools[i].block_bytes, n_blocks = saved.pools[i].size() / size;
    for (size_t first = 0, n; first < n_blocks; first += n) {
      n = std::min(static_cast<size_t>(n_at_once), n_blocks - first);
      get(engine, engine.write_prefix(held, static_cast<int>(i), static_cast<int>(first),
                                      std::span(saved.pools[i]).subspan(first * size, n * size)));
    }
  }
}

inline void restore_prefix(Engine& engine, const PrefixBytes& saved) {
  const auto held = get(engine, engine.hold_prefix(saved.prefix.root, saved.prefix.tokens, saved.n_missing()));
  write_pieces(engine, held, saved);
  get(engine, engine.keep_prefix(held));
}

}  // namespace ingot

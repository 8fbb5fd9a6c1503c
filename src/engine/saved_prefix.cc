// Saved prefixes: copies between the prefix cache and host memory, on the stepping thread between two steps.
#include "engine/saved_prefix.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "engine/engine.h"

namespace ingot {

// ---- Scheduler ----

const CacheMatch& Scheduler::find_cached(const CacheKey& root, const CacheTokens& tokens) {
  matched_ = nullptr;
  cache_.find(root, tokens, match_);
  return match_;
}

// All blocks of the history are held until the last one is cached, so that a later block never evicts an earlier one.
void Scheduler::add_cached(const CacheKey& root, const CacheTokens& tokens, std::span<const int> n_missing,
                           const std::function<void(int pool, int i, int32_t block)>& write) {
  const int size = limits_.block_size, n_tokens = static_cast<int>(tokens.size()), n_blocks = blocks_for(n_tokens);
  const CacheMatch& known = find_cached(root, tokens.first(n_tokens / size * size));
  const auto n_known = static_cast<int>(known.pools[0].blocks.size());
  std::vector<std::vector<int32_t>> held(limits_.pools.size());
  // The last block first, so that the end of the history is evicted before its beginning.
  const auto release = [&] {
    for (int pool = 0; pool < n_pools(); ++pool)
      for (auto& own = held[static_cast<size_t>(pool)]; !own.empty(); own.pop_back()) release_block(pool, own.back());
  };
  try {
    for (int pool = 0; pool < n_pools(); ++pool) {
      auto& own = held[static_cast<size_t>(pool)];
      own.reserve(static_cast<size_t>(n_blocks));
      for (const int32_t block : known.pools[static_cast<size_t>(pool)].blocks) {
        if (block < 0) continue;
        pools_[static_cast<size_t>(pool)].share(block);
        own.push_back(block);
      }
      const int n_new = n_blocks - std::max(n_known, pool == 0 ? 0 : n_missing[static_cast<size_t>(pool)]);
      if (n_new > this->pool(pool).n_free())
        throw Error(
            "the history needs {} blocks of the KV cache, but only {} are free: try again when fewer requests run",
            n_new, this->pool(pool).n_free());
    }
    CacheKey key = known.key;
    for (int i = n_known; i < n_blocks; ++i) {
      for (int pool = 0; pool < n_pools(); ++pool) {
        int32_t& block = blocks_[static_cast<size_t>(pool)] = -1;
        const bool is_missing = i < n_missing[static_cast<size_t>(pool)];
        if (is_missing && pool > 0) continue;
        block = pools_[static_cast<size_t>(pool)].take();
        held[static_cast<size_t>(pool)].push_back(block);
        if (!is_missing) write(pool, i, block);
      }
      const int n = std::min(size, n_tokens - i * size);
      key = cache_.insert(key, tokens.subspan(static_cast<size_t>(i) * size, n), blocks_);
      if (i < n_missing[0]) cache_.lose(blocks_[0]);
    }
  } catch (...) {
    release();
    throw;
  }
  release();
}

int Scheduler::erase_cached(const CacheKey& root, const CacheTokens& tokens) {
  const CacheMatch::OfPool& match = find_cached(root, tokens).pools[0];
  const auto erase = [&](int32_t block) {
    if (block < 0 || pool().refs(block) > 0) return false;
    cache_.erase(block);
    pools_[0].discard(block);
    return true;
  };
  int n_erased = match.tail >= 0 && erase(match.tail) ? match_.n_tail : 0;
  for (auto block = match.blocks.rbegin(); block != match.blocks.rend(); ++block)
    n_erased += erase(*block) ? limits_.block_size : 0;
  return n_erased;
}

// ---- Engine ----

// Calls the function on the stepping thread.
template <class F>
auto Engine::call(F function) {
  const auto task = std::make_shared<std::packaged_task<decltype(function())()>>(std::move(function));
  if (!inbox_.push({.order = Order::kCall, .sequence = nullptr, .call = [task] { (*task)(); }}))
    throw Error("the engine has stopped");
  return task->get_future();
}

void Engine::check_saves() const {
  if (!options_.prefix_cache) throw Error("the prefix cache is off");
  if (runner_.info().n_states > 0)
    throw Error("this model has recurrent layers: their states are not in the KV cache, so histories are not saved");
  if (runner_.info().source.dim > 0) throw Error("this model reads sources, whose keys are not saved");
  if (runner_.kv_layout().empty()) throw Error("this device cannot copy blocks of the KV cache");
}

PrefixLayout Engine::prefix_layout() const {
  const RunnerInfo& info = runner_.info();
  PrefixLayout layout{
      .name = runner_.kv_layout(), .block_tokens = info.block_size, .pools = {}, .n_vocab = info.n_vocab};
  for (size_t pool = 0; pool < info.pools.size(); ++pool)
    layout.pools.push_back({runner_.kv_block_bytes(static_cast<int>(pool)), info.pools[pool].n_blocks});
  return layout;
}

std::future<SavedPrefix> Engine::save_prefix(const CacheKey& root, std::vector<int32_t> tokens) {
  check_saves();
  return call([this, root, tokens = std::move(tokens)] {
    const CacheMatch& match = scheduler_.find_cached(root, tokens);
    SavedPrefix saved{.root = root, .tokens = {tokens.begin(), tokens.begin() + match.n_tokens}, .pools = {}};
    for (int pool = 0; pool < static_cast<int>(match.pools.size()); ++pool) {
      const CacheMatch::OfPool& found = match.pools[static_cast<size_t>(pool)];
      std::vector<int32_t> blocks = found.blocks;
      if (found.tail >= 0) blocks.push_back(found.tail);
      const auto last_missing = std::find(blocks.rbegin(), blocks.rend(), -1);
      const size_t n_missing = static_cast<size_t>(blocks.rend() - last_missing);
      const size_t size = runner_.kv_block_bytes(pool), n_copied = blocks.size() - n_missing;
      saved.pools.push_back({static_cast<int>(n_missing), std::vector<uint8_t>(n_copied * size)});
      for (size_t i = 0; i < n_copied; ++i)
        runner_.read_kv(pool, blocks[n_missing + i], std::span(saved.pools.back().blocks).subspan(i * size, size));
    }
    return saved;
  });
}

std::future<void> Engine::restore_prefix(const PrefixView& prefix) {
  check_saves();
  const PrefixLayout layout = prefix_layout();
  const size_t n_blocks = (prefix.tokens.size() + layout.block_tokens - 1) / layout.block_tokens;
  CHECK_EQ(prefix.pools.size(), layout.pools.size());
  std::vector<int> n_missing;
  for (size_t i = 0; i < prefix.pools.size(); ++i) {
    const auto& [n, blocks] = prefix.pools[i];
    CHECK(n >= 0 && static_cast<size_t>(n) <= n_blocks);
    CHECK_EQ(blocks.size(), (n_blocks - static_cast<size_t>(n)) * layout.pools[i].block_bytes);
    n_missing.push_back(n);
  }
  return call([this, prefix, layout, n_missing = std::move(n_missing)] {
    scheduler_.add_cached(prefix.root, prefix.tokens, n_missing, [&](int pool, int i, int32_t block) {
      const PrefixView::OfPool& from = prefix.pools[static_cast<size_t>(pool)];
      const size_t size = layout.pools[static_cast<size_t>(pool)].block_bytes;
      runner_.write_kv(pool, block, from.blocks.subspan(static_cast<size_t>(i - from.n_missing) * size, size));
    });
    publish();
  });
}

std::future<int> Engine::erase_prefix(const CacheKey& root, std::vector<int32_t> tokens) {
  check_saves();
  return call([this, root, tokens = std::move(tokens)] {
    const int n_erased = scheduler_.erase_cached(root, tokens);
    publish();
    return n_erased;
  });
}

}  // namespace ingot

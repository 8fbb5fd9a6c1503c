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
void Scheduler::add_cached(const CacheKey& root, const CacheTokens& tokens, int n_missing,
                           const std::function<void(int i, int32_t block)>& write) {
  const int size = limits_.block_size, n_tokens = static_cast<int>(tokens.size()), n_blocks = blocks_for(n_tokens);
  const CacheMatch& known = find_cached(root, tokens.first(n_tokens / size * size));
  const auto n_known = static_cast<int>(known.blocks.size());
  std::vector<int32_t> held;
  held.reserve(n_blocks);
  for (const int32_t block : known.blocks) {
    if (block < 0) continue;
    pool_.share(block);
    held.push_back(block);
  }
  // The last block first, so that the end of the history is evicted before its beginning.
  const auto release = [&] {
    for (; !held.empty(); held.pop_back()) pool_.release(held.back(), cache_.holds(held.back()));
  };
  try {
    if (n_blocks - n_known > pool_.n_free())
      throw Error(
          "the history needs {} blocks of the KV cache, but only {} are free: try again when fewer requests run",
          n_blocks - n_known, pool_.n_free());
    CacheKey key = known.key;
    for (int i = n_known; i < n_blocks; ++i) {
      const int32_t block = pool_.take();
      held.push_back(block);
      if (i >= n_missing) write(i, block);
      const int n = std::min(size, n_tokens - i * size);
      key = cache_.insert(key, tokens.subspan(static_cast<size_t>(i) * size, n), block);
      if (i < n_missing) cache_.lose(block);
    }
  } catch (...) {
    release();
    throw;
  }
  release();
}

int Scheduler::erase_cached(const CacheKey& root, const CacheTokens& tokens) {
  const CacheMatch& match = find_cached(root, tokens);
  const auto erase = [&](int32_t block) {
    if (block < 0 || pool_.refs(block) > 0) return false;
    cache_.erase(block);
    pool_.discard(block);
    return true;
  };
  int n_erased = match.tail >= 0 && erase(match.tail) ? match.n_tail : 0;
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
  if (runner_.kv_layout().empty()) throw Error("this device cannot copy blocks of the KV cache");
}

PrefixLayout Engine::prefix_layout() const {
  const RunnerInfo& info = runner_.info();
  return {runner_.kv_layout(), info.block_size, runner_.kv_block_bytes(), info.n_blocks, info.n_vocab};
}

std::future<SavedPrefix> Engine::save_prefix(const CacheKey& root, std::vector<int32_t> tokens) {
  check_saves();
  return call([this, root, tokens = std::move(tokens)] {
    const CacheMatch& match = scheduler_.find_cached(root, tokens);
    std::vector<int32_t> blocks = match.blocks;
    if (match.tail >= 0) blocks.push_back(match.tail);
    SavedPrefix saved{.root = root, .tokens = {tokens.begin(), tokens.begin() + match.n_tokens}, .blocks = {}};
    const auto last_missing = std::find(blocks.rbegin(), blocks.rend(), -1);
    saved.n_missing = static_cast<int>(blocks.rend() - last_missing);
    const size_t size = runner_.kv_block_bytes(), n_copied = blocks.size() - saved.n_missing;
    saved.blocks.resize(n_copied * size);
    for (size_t i = 0; i < n_copied; ++i)
      runner_.read_kv(blocks[saved.n_missing + i], std::span(saved.blocks).subspan(i * size, size));
    return saved;
  });
}

std::future<void> Engine::restore_prefix(const PrefixView& prefix) {
  check_saves();
  const PrefixLayout layout = prefix_layout();
  const size_t n_blocks = (prefix.tokens.size() + layout.block_tokens - 1) / layout.block_tokens;
  CHECK(prefix.n_missing >= 0 && static_cast<size_t>(prefix.n_missing) <= n_blocks);
  CHECK_EQ(prefix.blocks.size(), (n_blocks - prefix.n_missing) * layout.block_bytes);
  return call([this, prefix, size = layout.block_bytes] {
    scheduler_.add_cached(prefix.root, prefix.tokens, prefix.n_missing, [&](int i, int32_t block) {
      runner_.write_kv(block, prefix.blocks.subspan((i - prefix.n_missing) * size, size));
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

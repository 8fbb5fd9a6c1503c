// Saved prefixes: pieces of copies, on the stepping thread between two steps.
#include "engine/saved_prefix.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/engine.h"

namespace ingot {
namespace {

[[noreturn]] void throw_taken_back() {
  throw Error("requests needed the blocks of the history while they were copied: try again when fewer requests run");
}

}  // namespace

// ---- Scheduler ----

const CacheMatch& Scheduler::find_cached(const CacheKey& root, const CacheTokens& tokens) {
  matched_ = nullptr;
  cache_.find(root, tokens, match_);
  return match_;
}

// Holds the full blocks of the history that are cached.
const CacheMatch& Scheduler::hold_cached(const std::shared_ptr<HeldBlocks>& held, const CacheTokens& tokens) {
  const CacheMatch& found = find_cached(held->root, tokens);
  held->n_known = static_cast<int>(found.pools[0].blocks.size());
  for (const CacheMatch::OfPool& pool : found.pools) held->pools.push_back(pool.blocks);
  holds_.push_back(held);
  held->is_held = true;
  for (size_t pool = 0; pool < pools_.size(); ++pool)
    for (const int32_t block : held->pools[pool])
      if (block >= 0) pools_[pool].share(block);
  return found;
}

// Holds the cached blocks of the history too, so that no new block evicts one of them.
void Scheduler::hold(const std::shared_ptr<HeldBlocks>& held) {
  const int size = limits_.block_size, n_tokens = static_cast<int>(held->tokens.size()),
            n_blocks = blocks_for(n_tokens);
  hold_cached(held, CacheTokens(held->tokens).first(n_tokens / size * size));
  try {
    for (int pool = 0; pool < n_pools(); ++pool) {
      auto& own = held->pools[static_cast<size_t>(pool)];
      own.resize(static_cast<size_t>(n_blocks), -1);
      // Each block of another pool belongs to one of the first pool, which has a block for missing bytes too.
      const int first = std::max(held->n_known, pool == 0 ? 0 : held->n_missing[static_cast<size_t>(pool)]);
      if (n_blocks - first > this->pool(pool).n_free())
        throw Error(
            "the history needs {} blocks of the KV cache, but only {} are free: try again when fewer requests run",
            n_blocks - first, this->pool(pool).n_free());
      for (int i = first; i < n_blocks; ++i) own[static_cast<size_t>(i)] = pools_[static_cast<size_t>(pool)].take();
    }
  } catch (...) {
    drop(*held);
    throw;
  }
}

void Scheduler::keep(HeldBlocks& held) {
  const int size = limits_.block_size, n_tokens = static_cast<int>(held.tokens.size());
  const CacheTokens tokens(held.tokens);
  const CacheMatch& known = find_cached(held.root, tokens.first(n_tokens / size * size));
  const auto n_known =
      static_cast<int>(known.pools[0].blocks.size());  // another request may have cached some meanwhile
  if (n_known < held.n_known) throw_taken_back();
  CacheKey key = known.key;
  for (int i = n_known; i < blocks_for(n_tokens); ++i) {
    for (int pool = 0; pool < n_pools(); ++pool)
      blocks_[static_cast<size_t>(pool)] = held.pools[static_cast<size_t>(pool)][static_cast<size_t>(i)];
    key =
        cache_.insert(key, tokens.subspan(static_cast<size_t>(i) * size, std::min(size, n_tokens - i * size)), blocks_);
    if (i < held.n_missing[0]) cache_.lose(blocks_[0]);
  }
  drop(held);
}

// The last block first, so that the end of the history is evicted before its beginning.
void Scheduler::drop(HeldBlocks& held) {
  if (!std::exchange(held.is_held, false)) return;
  for (int pool = 0; pool < n_pools(); ++pool)
    for (auto& own = held.pools[static_cast<size_t>(pool)]; !own.empty(); own.pop_back())
      if (own.back() >= 0) release_block(pool, own.back());
  std::erase_if(holds_, [&](const auto& other) { return other.get() == &held; });
}

// Before a plan: without room for all tokens that the step may compute, the sequences get the held blocks.
void Scheduler::take_back_holds() {
  int64_t n_tokens = 0;
  for (const auto* list : {&running_, &waiting_})
    for (const Sequence* sequence : *list) n_tokens += sequence->n_todo();
  const int n_most = blocks_for(static_cast<int>(std::min<int64_t>(n_tokens, limits_.max_batch_tokens))) +
                     std::min(n_running() + n_waiting(), limits_.max_seqs);
  if (std::ranges::all_of(pools_, [&](const BlockPool& pool) { return pool.n_free() >= n_most; })) return;
  while (!holds_.empty()) drop(*std::shared_ptr(holds_.back()));
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

// Copies the tail too, because a sequence may continue it before the next piece.
CachedPrefix Engine::cached_prefix(const CacheMatch& match, std::span<const int32_t> tokens,
                                   const std::shared_ptr<HeldBlocks>& held) {
  CachedPrefix prefix{
      .root = held->root, .tokens = {tokens.begin(), tokens.begin() + match.n_tokens}, .pools = {}, .held = held};
  for (int pool = 0; pool < static_cast<int>(match.pools.size()); ++pool) {
    const CacheMatch::OfPool& found = match.pools[static_cast<size_t>(pool)];
    const auto last_missing = std::find(found.blocks.rbegin(), found.blocks.rend(), -1);
    const auto n_missing = static_cast<int>(found.blocks.rend() - last_missing);
    held->n_missing.push_back(n_missing);
    auto& own = prefix.pools.emplace_back();
    own.n_missing = n_missing, own.n_full = static_cast<int>(found.blocks.size()) - n_missing;
    if (found.tail < 0) continue;
    own.tail.resize(runner_.kv_block_bytes(pool));
    runner_.read_kv(pool, found.tail, own.tail);
  }
  publish();
  return prefix;
}

std::future<CachedPrefix> Engine::find_prefix(const CacheKey& root, std::vector<int32_t> tokens) {
  check_saves();
  return call([this, root, tokens = std::move(tokens), held = std::make_shared<HeldBlocks>()] {
    held->root = root;
    const CacheMatch& match = scheduler_.hold_cached(held, tokens);
    try {
      return cached_prefix(match, tokens, held);
    } catch (...) {
      scheduler_.drop(*held);
      throw;
    }
  });
}

std::future<void> Engine::read_prefix(const CachedPrefix& prefix, int pool, int first, std::span<uint8_t> to) {
  return call([this, held = prefix.held, pool, first, to] {
    if (!held->is_held) throw_taken_back();
    const size_t size = runner_.kv_block_bytes(pool);
    const int at = held->n_missing[static_cast<size_t>(pool)] + first;
    for (size_t i = 0; i < to.size() / size; ++i)
      runner_.read_kv(pool, held->pools[static_cast<size_t>(pool)][static_cast<size_t>(at) + i],
                      to.subspan(i * size, size));
  });
}

std::future<std::shared_ptr<HeldBlocks>> Engine::hold_prefix(const CacheKey& root, std::vector<int32_t> tokens,
                                                             std::vector<int> n_missing) {
  check_saves();
  CHECK_EQ(n_missing.size(), runner_.info().pools.size());
  const auto held = std::make_shared<HeldBlocks>();
  held->root = root, held->tokens = std::move(tokens), held->n_missing = std::move(n_missing);
  return call([this, held] {
    scheduler_.hold(held);
    publish();
    return held;
  });
}

// Blocks that are cached already are not written.
std::future<void> Engine::write_prefix(const std::shared_ptr<HeldBlocks>& held, int pool, int first,
                                       std::span<const uint8_t> from) {
  return call([this, held, pool, first, from] {
    if (!held->is_held) throw_taken_back();
    const size_t size = runner_.kv_block_bytes(pool);
    for (size_t i = 0; i < from.size() / size; ++i) {
      const int block = held->n_missing[static_cast<size_t>(pool)] + first + static_cast<int>(i);
      if (block >= held->n_known)
        runner_.write_kv(pool, held->pools[static_cast<size_t>(pool)][static_cast<size_t>(block)],
                         from.subspan(i * size, size));
    }
  });
}

std::future<void> Engine::keep_prefix(const std::shared_ptr<HeldBlocks>& held) {
  return call([this, held] {
    if (!held->is_held) throw_taken_back();
    scheduler_.keep(*held);
    publish();
  });
}

void Engine::drop_prefix(const std::shared_ptr<HeldBlocks>& held) noexcept {
  try {
    call([this, held] {
      scheduler_.drop(*held);
      publish();
    });
  } catch (const std::exception&) {  // the engine has stopped, or memory is short: the next plan may need the blocks
  }
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

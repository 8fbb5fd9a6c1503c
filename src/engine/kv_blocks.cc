#include "engine/kv_blocks.h"

#include <utility>

#include "base/check.h"

namespace ingot {

BlockPool::BlockPool(int n_blocks, std::function<void(int32_t)> on_evict)
    : on_evict_(std::move(on_evict)), refs_(n_blocks, 0), next_(n_blocks + 1, -1), previous_(n_blocks + 1, -1) {
  next_[n_blocks] = previous_[n_blocks] = n_blocks;
  free_.reserve(n_blocks);
  for (int32_t block = n_blocks - 1; block >= 0; --block) free_.push_back(block);
}

int BlockPool::refs(int32_t block) const {
  CHECK(block >= 0 && block < n_blocks());
  return refs_[block];
}

int32_t BlockPool::take() {
  int32_t block = -1;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (n_cached_ > 0) {
    block = next_[n_blocks()];
    unlink(block);
    if (on_evict_) on_evict_(block);
  } else {
    return -1;
  }
  CHECK_EQ(refs_[block], 0);
  refs_[block] = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  CHECK(refs(block) > 0 || is_cached(block));
  if (refs_[block]++ == 0) unlink(block);
}

void BlockPool::release(int32_t block, Keep keep) {
  CHECK_GT(refs(block), 0);
  if (--refs_[block] > 0) return;
  if (keep == Keep::kNot) {
    free_.push_back(block);
  } else {
    link(block, keep == Keep::kBriefly ? next_[n_blocks()] : n_blocks());
  }
}

void BlockPool::discard(int32_t block) {
  if (refs(block) > 0 || !is_cached(block)) return;
  unlink(block);
  free_.push_back(block);
}

void BlockPool::link(int32_t block, int32_t next) {
  const int32_t previous = previous_[next];
  previous_[block] = previous;
  next_[block] = next;
  next_[previous] = previous_[next] = block;
  ++n_cached_;
}

void BlockPool::unlink(int32_t block) {
  next_[previous_[block]] = next_[block];
  previous_[next_[block]] = previous_[block];
  next_[block] = previous_[block] = -1;
  --n_cached_;
}

}  // namespace ingot

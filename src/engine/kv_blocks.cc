#include "engine/kv_blocks.h"

#include "base/check.h"

namespace ingot {

BlockPool::BlockPool(int n_blocks) : refs_(n_blocks, 0) {
  free_.reserve(n_blocks);
  for (int32_t block = n_blocks - 1; block >= 0; --block) free_.push_back(block);
}

int BlockPool::refs(int32_t block) const {
  CHECK(block >= 0 && block < n_blocks());
  return refs_[block];
}

int32_t BlockPool::take() {
  if (free_.empty()) return -1;
  const int32_t block = free_.back();
  free_.pop_back();
  CHECK_EQ(refs_[block], 0);
  refs_[block] = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  CHECK_GT(refs(block), 0);
  ++refs_[block];
}

void BlockPool::release(int32_t block) {
  CHECK_GT(refs(block), 0);
  if (--refs_[block] == 0) free_.push_back(block);
}

}  // namespace ingot

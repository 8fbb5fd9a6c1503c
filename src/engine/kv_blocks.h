// BlockPool: counts the holders of each KV block, or of each state slot (state_slots.h). A block with one holder is
// writable by that holder. A full block may be shared and is then immutable. A block without a holder is either free or
// cached. The content of a cached block stays until the space is needed. The block cached for the longest time is
// evicted first. The pool handles block numbers only: the backend owns the memory, and the prefix cache records the
// content.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace ingot {

class BlockPool {
 public:
  // on_evict is called with each cached block that take() evicts.
  explicit BlockPool(int n_blocks, std::function<void(int32_t)> on_evict = {});

  int n_blocks() const { return static_cast<int>(refs_.size()); }
  // The number of blocks that take() can return: free and cached.
  int n_free() const { return static_cast<int>(free_.size()) + n_cached_; }
  int n_cached() const { return n_cached_; }
  int n_used() const { return n_blocks() - n_free(); }
  int refs(int32_t block) const;

  int32_t take();               // a block for a new holder; -1 if all blocks are held
  void share(int32_t block);    // adds a holder to a block that is held or cached
  // Removes a holder. Without holders, the block is free or cached; kBriefly: it is the next one to be evicted.
  enum class Keep : uint8_t { kNot, kBriefly, kLong };
  void release(int32_t block, Keep keep = Keep::kNot);
  void discard(int32_t block);  // frees the block if it is cached: its content is no longer useful

 private:
  bool is_cached(int32_t block) const { return next_[block] >= 0; }
  void link(int32_t block, int32_t next);  // before `next` in the ring
  void unlink(int32_t block);

  const std::function<void(int32_t)> on_evict_;
  std::vector<int32_t> free_;   // last freed first: that block is probably still in a processor's cache
  std::vector<int32_t> refs_;   // the number of holders of each block
  // The cached blocks as a linked ring, oldest first. Index n_blocks is the start and the end of the ring.
  std::vector<int32_t> next_, previous_;  // -1: not cached
  int n_cached_ = 0;
};

}  // namespace ingot

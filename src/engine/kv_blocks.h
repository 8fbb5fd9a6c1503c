// BlockPool: who holds which KV block, or which slot for a state (state_slots.h). A block that one sequence holds is
// writable by it; a full one may be shared and is then immutable. A block that nobody holds is blank, or kept for what
// is in it until its place is needed: the one kept longest goes first. Knows numbers only: the pages belong to the
// backend, what is in them to the prefix cache.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace ingot {

class BlockPool {
 public:
  // Called with a kept block that take() is about to give away.
  explicit BlockPool(int n_blocks, std::function<void(int32_t)> on_evict = {});

  int n_blocks() const { return static_cast<int>(refs_.size()); }
  int n_free() const { return static_cast<int>(blank_.size()) + n_kept_; }  // what take() can give
  int n_kept() const { return n_kept_; }
  int n_used() const { return n_blocks() - n_free(); }
  int refs(int32_t block) const;

  int32_t take();                                  // a block for a new holder; -1 when all are held
  void share(int32_t block);                       // one more holder, of a block that is held or kept
  void release(int32_t block, bool keep = false);  // one holder fewer; the last one leaves it kept or blank
  void blank(int32_t block);                       // if it is kept: what is in it is of no use any more

 private:
  bool kept(int32_t block) const { return next_[block] >= 0; }
  void link(int32_t block);  // as the one kept last
  void unlink(int32_t block);

  const std::function<void(int32_t)> on_evict_;
  std::vector<int32_t> blank_;  // last freed first, for it is the likeliest to be in a processor's cache
  std::vector<int32_t> refs_;   // holders of each block
  // The kept blocks as a ring, kept longest first; its start and end is the place after the last block.
  std::vector<int32_t> next_, previous_;  // -1: not kept
  int n_kept_ = 0;
};

}  // namespace ingot

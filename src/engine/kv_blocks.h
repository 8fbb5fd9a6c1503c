// BlockPool: who holds which KV block. A block that one sequence holds is writable by it; a full one may be shared and
// is then immutable. Knows numbers only: the pages themselves belong to the backend.
#pragma once
#include <cstdint>
#include <vector>

namespace ingot {

class BlockPool {
 public:
  explicit BlockPool(int n_blocks);

  int n_blocks() const { return static_cast<int>(refs_.size()); }
  int n_free() const { return static_cast<int>(free_.size()); }
  int n_used() const { return n_blocks() - n_free(); }
  int refs(int32_t block) const;

  int32_t take();                // a block that nobody holds; -1 when there is none
  void share(int32_t block);     // one more holder of a held block
  void release(int32_t block);   // one fewer; the last one frees it

 private:
  std::vector<int32_t> free_;  // last freed first, for it is the likeliest to be in a cache
  std::vector<int32_t> refs_;  // holders of each block
};

}  // namespace ingot

// Maps pairs of token ids to their merge. A flat hash table, because encoding a megabyte of text reads the table
// millions of times.
#pragma once
#include <bit>
#include <optional>
#include <vector>

#include "base/splitmix.h"
#include "text/tokenizers/merge.h"

namespace ingot {

class MergeTable {
 public:
  explicit MergeTable(size_t n_merges) : slots_(std::bit_ceil(n_merges * 2 + 1)) {}

  // Returns false, and changes nothing, if the table already has the pair.
  bool insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[position(key(left, right))];
    if (slot.key != kEmpty) return false;
    slot = {key(left, right), merge};
    return true;
  }

  std::optional<Merge> find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[position(key(left, right))];
    if (slot.key == kEmpty) return std::nullopt;
    return slot.merge;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair: ids are not negative
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };

  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // The slot with this key, or the empty slot for it. At most half of the slots are used.
  size_t position(uint64_t key) const {
    size_t i = splitmix(key) & (slots_.size() - 1);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<Slot> slots_;
};

class Vocab;
struct TokenizerSpec;

// The table of spec.merges. Throws Error for merges that are malformed, repeated, or contain a token that does not
// exist.
MergeTable read_merges(const Vocab& vocab, const TokenizerSpec& spec);

}  // namespace ingot

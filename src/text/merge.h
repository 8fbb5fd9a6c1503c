// The merge loop that both BPE dialects share: neighbouring symbols join, best rank first and leftmost among equals, until no
// pair of neighbours may. A heap of candidate pairs over a linked list: O(n log n) in the length of the text.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace ingot {

struct Symbol {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  uint32_t begin, size;  // its bytes in the text; size 0 once joined to the symbol on its left
  int32_t id;            // its token, or -1
  uint32_t prev = kNone, next = kNone;
};

struct Merge {
  uint32_t rank;  // lower merges first
  int32_t id;     // the token that the two make
};

// Scratch memory, kept from word to word.
class MergeQueue {
 public:
  // Links the symbols in order and merges them; what is left is the list from symbols[0] along `next`.
  // find(left, right) gives the Merge of two neighbouring Symbols, if they have one.
  template <class Find>
  void merge_all(std::vector<Symbol>& symbols, const Find& find) {
    heap_.clear();
    for (uint32_t i = 0; i + 1 < symbols.size(); ++i) {
      symbols[i].next = i + 1;
      symbols[i + 1].prev = i;
      if (const auto merge = find(symbols[i], symbols[i + 1])) heap_.push_back(candidate(symbols, i, *merge));
    }
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate best = heap_.back();
      heap_.pop_back();
      const uint32_t i = static_cast<uint32_t>(best.order);
      Symbol& left = symbols[i];
      // Symbols only grow or vanish, so the pair is as it was if both are there and their sizes still add up.
      if (left.size == 0 || left.next == Symbol::kNone || left.size + symbols[left.next].size != best.size) continue;
      Symbol& right = symbols[left.next];
      left.size += right.size;
      left.id = best.id;
      left.next = right.next;
      right.size = 0;
      if (left.next != Symbol::kNone) {
        symbols[left.next].prev = i;
        push(symbols, i, find(left, symbols[left.next]));
      }
      if (left.prev != Symbol::kNone) push(symbols, left.prev, find(symbols[left.prev], left));
    }
  }

 private:
  struct Candidate {
    uint64_t order;  // rank, then position
    uint32_t size;   // bytes of the two together
    int32_t id;
    bool operator<(const Candidate& other) const { return order > other.order; }  // the top of a heap is its largest
  };

  static Candidate candidate(const std::vector<Symbol>& symbols, uint32_t i, const Merge& merge) {
    const Symbol& left = symbols[i];
    return {uint64_t{merge.rank} << 32 | i, left.size + symbols[left.next].size, merge.id};
  }
  void push(const std::vector<Symbol>& symbols, uint32_t i, const std::optional<Merge>& merge) {
    if (!merge) return;
    heap_.push_back(candidate(symbols, i, *merge));
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<Candidate> heap_;
};

}  // namespace ingot

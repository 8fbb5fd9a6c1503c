// The merge loop of both BPE dialects: adjacent symbols merge, best rank first and leftmost among equal ranks, until no
// adjacent pair can merge. A heap of candidate pairs over a linked list takes O(n log n) in the length of the text.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace ingot {

struct Merge {
  uint32_t rank;  // lower merges first
  int32_t id;     // the token that the two symbols make
};

struct Symbol {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  uint32_t begin, size;  // its bytes in the text; size 0 once joined to the symbol on its left
  int32_t id;            // its token, or -1
  uint32_t prev = kNone, next = kNone;
  std::optional<Merge> with_next = std::nullopt;
};

// Scratch memory, reused for each word.
class MergeQueue {
 public:
  // Links the symbols in order and merges them. The result is the list from symbols[0] along `next`. find(left, right)
  // returns the Merge of two adjacent Symbols, if there is one.
  template <class Find>
  void merge_all(std::vector<Symbol>& symbols, const Find& find) {
    heap_.clear();
    for (uint32_t i = 0; i + 1 < symbols.size(); ++i) {
      symbols[i].next = i + 1;
      symbols[i + 1].prev = i;
      symbols[i].with_next = find(symbols[i], symbols[i + 1]);
      if (symbols[i].with_next) heap_.push_back(key(symbols[i].with_next->rank, i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t best = heap_.back();
      heap_.pop_back();
      const auto i = static_cast<uint32_t>(best);
      // Skips a key if its pair has changed since the push.
      if (!symbols[i].with_next || key(symbols[i].with_next->rank, i) != best) continue;
      join(symbols, i);
      update(symbols, i, find);
      if (symbols[i].prev != Symbol::kNone) update(symbols, symbols[i].prev, find);
    }
  }

 private:
  static uint64_t key(uint32_t rank, uint32_t position) { return uint64_t{rank} << 32 | position; }

  static void join(std::vector<Symbol>& symbols, uint32_t i) {
    Symbol& left = symbols[i];
    Symbol& right = symbols[left.next];
    left.size += right.size;
    left.id = left.with_next->id;
    left.next = right.next;
    right.size = 0;
    right.with_next.reset();
    if (left.next != Symbol::kNone) symbols[left.next].prev = i;
  }

  template <class Find>
  void update(std::vector<Symbol>& symbols, uint32_t i, const Find& find) {
    Symbol& left = symbols[i];
    left.with_next = left.next == Symbol::kNone ? std::nullopt : find(left, symbols[left.next]);
    if (!left.with_next) return;
    heap_.push_back(key(left.with_next->rank, i));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  std::vector<uint64_t> heap_;
};

}  // namespace ingot

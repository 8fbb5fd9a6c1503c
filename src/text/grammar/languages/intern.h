// WordLists: stores each list of words once and identifies the list by a number.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/splitmix.h"

namespace ingot {

class WordLists {
 public:
  // Throws Error if there are more than `max` lists, or more than kMaxInternedWords words in them. `what` is the name of
  // the lists in the message.
  WordLists(size_t max, const char* what) : max_(max), what_(what) {}
  static constexpr size_t kMaxInternedWords = size_t{1} << 23;

  uint32_t intern(std::span<const uint32_t> words) {
    uint64_t hash = words.size();
    for (uint32_t word : words) hash = splitmix(hash ^ word);
    if (2 * (hashes_.size() + 1) > slots_.size()) grow();
    size_t at = hash & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      const uint32_t id = slots_[at] - 1;
      if (hashes_[id] == hash && std::ranges::equal((*this)[id], words)) return id;
    }
    if (starts_.size() >= max_) throw Error("the grammar is too large: it needs more than {} {}", max_, what_);
    if (words_.size() + words.size() > kMaxInternedWords)
      throw Error("the grammar is too large: its {} need more than {} words", what_, kMaxInternedWords);
    starts_.push_back(words_.size());
    words_.insert(words_.end(), words.begin(), words.end());
    hashes_.push_back(hash);
    return (slots_[at] = static_cast<uint32_t>(starts_.size())) - 1;
  }
  // Valid until the next intern().
  std::span<const uint32_t> operator[](uint32_t id) const {
    const size_t end = id + 1 < starts_.size() ? starts_[id + 1] : words_.size();
    return {words_.data() + starts_[id], end - starts_[id]};
  }
  std::vector<uint32_t> copy(uint32_t id) const { return {(*this)[id].begin(), (*this)[id].end()}; }
  size_t size() const { return starts_.size(); }
  size_t n_bytes() const {
    return (words_.capacity() + slots_.capacity()) * sizeof(uint32_t) +
           (starts_.capacity() + hashes_.capacity()) * sizeof(uint64_t);
  }

 private:
  void grow() {
    slots_.assign(std::max<size_t>(16, slots_.size() * 2), 0);
    for (uint32_t id = 0; id < hashes_.size(); ++id) {
      size_t at = hashes_[id] & (slots_.size() - 1);
      while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = id + 1;
    }
  }

  size_t max_;
  const char* what_;
  std::vector<uint32_t> words_;
  std::vector<size_t> starts_;
  std::vector<uint64_t> hashes_;  // one for each list
  std::vector<uint32_t> slots_;   // open addressing: the number of a list + 1, or 0
};

}  // namespace ingot

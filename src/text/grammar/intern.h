// Lists of words, each kept once and known by its number.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/splitmix.h"

namespace ingot {

class WordLists {
 public:
  // Throws Error where more than `max` lists would be kept. `what` names them.
  WordLists(size_t max, const char* what) : max_(max), what_(what) {}

  uint32_t intern(std::span<const uint32_t> words) {
    uint64_t hash = words.size();
    for (uint32_t word : words) hash = splitmix(hash ^ word);
    const auto [begin, end] = index_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (std::ranges::equal((*this)[it->second], words)) return it->second;
    }
    if (starts_.size() >= max_) throw Error("the grammar is too large: it needs more than {} {}", max_, what_);
    starts_.push_back(words_.size());
    words_.insert(words_.end(), words.begin(), words.end());
    const auto id = static_cast<uint32_t>(starts_.size() - 1);
    index_.emplace(hash, id);
    return id;
  }
  // Valid until the next intern().
  std::span<const uint32_t> operator[](uint32_t id) const {
    const size_t end = id + 1 < starts_.size() ? starts_[id + 1] : words_.size();
    return {words_.data() + starts_[id], end - starts_[id]};
  }
  std::vector<uint32_t> copy(uint32_t id) const { return {(*this)[id].begin(), (*this)[id].end()}; }
  size_t size() const { return starts_.size(); }

 private:
  size_t max_;
  const char* what_;
  std::vector<uint32_t> words_;
  std::vector<size_t> starts_;
  std::unordered_multimap<uint64_t, uint32_t> index_;
};

}  // namespace ingot

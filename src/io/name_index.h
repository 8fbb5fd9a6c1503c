// Finds an entry by name among entries that stay in file order: a sorted list of their positions. Sorting instead of
// hashing, so that a hostile file cannot choose names that make the lookup slow, and so that duplicates become
// neighbours.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace ingot {

class NameIndex {
 public:
  NameIndex() = default;
  // name_of(i) is the name of entry i. find() calls name_of again, and it must return the same names.
  template <class NameOf>
  NameIndex(size_t n, const NameOf& name_of) : order_(n) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
  }

  // The second of two entries that share a name, if there are any.
  template <class NameOf>
  std::optional<size_t> duplicate(const NameOf& name_of) const {
    for (size_t i = 1; i < order_.size(); ++i)
      if (name_of(order_[i - 1]) == name_of(order_[i])) return order_[i];
    return std::nullopt;
  }

  template <class NameOf>
  std::optional<size_t> find(std::string_view name, const NameOf& name_of) const {
    auto it = std::lower_bound(order_.begin(), order_.end(), name,
                               [&](uint32_t entry, std::string_view wanted) { return name_of(entry) < wanted; });
    if (it == order_.end() || name_of(*it) != name) return std::nullopt;
    return *it;
  }

 private:
  std::vector<uint32_t> order_;
};

}  // namespace ingot

// Finds an entry by name: a list of the entries' positions, sorted by name; the entries stay in file order. Sorting,
// unlike hashing, gives a hostile file no way to make lookups slow, and puts duplicates next to each other.
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
  // name_of(i) is the name of entry i. find() and duplicate() must get the same names.
  template <class NameOf>
  NameIndex(size_t n, const NameOf& name_of) : order_(n) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
  }

  // The second of two entries with the same name; nothing if all names are distinct.
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

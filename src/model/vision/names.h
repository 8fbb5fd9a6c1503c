// Names in one text, with '|' between them.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

inline std::vector<std::string> split_names(std::string_view names) {
  std::vector<std::string> all;
  while (!names.empty()) {
    const size_t end = std::min(names.find('|'), names.size());
    all.emplace_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return all;
}

inline bool is_one_of_names(std::string_view name, std::string_view names) {
  for (const std::string& one : split_names(names))
    if (one == name) return true;
  return false;
}

}  // namespace ingot

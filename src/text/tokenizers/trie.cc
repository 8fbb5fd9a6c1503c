#include "text/tokenizers/trie.h"

#include <algorithm>
#include <cstring>

namespace ingot {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> keys) {
  std::erase_if(keys, [](const auto& key) { return key.first.empty(); });
  std::sort(keys.begin(), keys.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  keys.erase(std::unique(keys.begin(), keys.end(), same), keys.end());
  struct Range {
    size_t begin, end, depth;  // the keys below a node; they share `depth` bytes
  };
  std::vector<Range> ranges{{0, keys.size(), 0}};
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && keys[begin].first.size() == depth) nodes_[node].number = keys[begin++].second;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = keys[begin].first[depth];
      size_t next = begin + 1;
      while (next < end && keys[next].first[depth] == byte) ++next;
      nodes_.emplace_back();
      labels_.push_back(static_cast<uint8_t>(byte));
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[node].n_children = static_cast<uint32_t>(nodes_.size()) - nodes_[node].first_child;
  }
}

uint32_t Trie::child(uint32_t node, uint8_t label) const {
  const Node& n = nodes_[node];
  if (n.n_children == 0) return 0;
  const uint8_t* labels = labels_.data() + n.first_child;
  const void* found = std::memchr(labels, label, n.n_children);
  return found == nullptr ? 0 : n.first_child + static_cast<uint32_t>(static_cast<const uint8_t*>(found) - labels);
}

}  // namespace ingot

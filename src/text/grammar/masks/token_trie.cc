#include "text/grammar/masks/token_trie.h"

#include <algorithm>

namespace ingot {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::ranges::sort(tokens);
  std::vector<uint32_t> path;  // the nodes of the previous token
  std::string_view before;
  for (const auto& [bytes, id] : tokens) {
    if (bytes.size() > kMaxTokenBytes) continue;
    size_t same = 0;
    while (same < bytes.size() && same < before.size() && bytes[same] == before[same]) ++same;
    while (path.size() > same) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size()), path.pop_back();
    while (path.size() < bytes.size()) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(bytes[path.size() - 1]), static_cast<uint16_t>(path.size()), 0, 0, 0});
    }
    if (bytes.empty()) {
      ++n_root_;
    } else {
      Node& node = nodes_[path.back()];
      if (node.n_tokens++ == 0) node.first_token = static_cast<uint32_t>(tokens_.size());
    }
    tokens_.push_back(id);
    before = bytes;
  }
  for (uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

}  // namespace ingot

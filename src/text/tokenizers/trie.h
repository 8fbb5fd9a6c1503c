// Trie: maps keys to numbers, and finds all keys at the start of a text. The nodes are in one array, where the children
// of a node are adjacent. For WordPiece, Unigram and World vocabularies.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

class Trie {
 public:
  Trie() = default;
  // Among equal keys the lowest number counts; empty keys are ignored. Numbers must not be negative. Keeps no views.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> keys);

  // Calls f(length, number) for every key at the start of text, shortest first.
  template <class F>
  void for_each_prefix(std::string_view text, F&& f) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].number >= 0) f(i + 1, nodes_[node].number);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint32_t n_children = 0;
    int32_t number = -1;
  };
  uint32_t child(uint32_t node, uint8_t label) const;  // 0: none

  std::vector<Node> nodes_{1};
  std::vector<uint8_t> labels_{0};  // for each node, the byte that leads to it
};

}  // namespace ingot

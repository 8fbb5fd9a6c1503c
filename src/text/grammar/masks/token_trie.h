// TokenTrie: the tokens of a vocabulary as a trie of bytes, and the walk that finds the tokens that a grammar allows.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

class TokenTrie {
 public:
  static constexpr size_t kMaxTokenBytes = 512;  // a longer token is never allowed

  struct Node {
    uint8_t byte;
    uint16_t depth;               // 1 for a token's first byte
    uint32_t end;                 // index after the last node below this one
    uint32_t first_token, n_tokens;  // range in `tokens`: the tokens that end at this node
  };

  TokenTrie() = default;
  // tokens: the bytes and the id of each token, in any order. A token without bytes ends at the root.
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  // In depth-first order: a node, then all nodes below it.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::span<const int32_t> tokens_at(const Node& node) const {
    return {tokens_.data() + node.first_token, node.n_tokens};
  }
  std::span<const int32_t> root_tokens() const { return {tokens_.data(), n_root_}; }

  // Calls step(state, byte) down the trie from `state`, and visit(node, state) at each node whose state is not dead.
  // The walk begins at node `first` and ends before `last`.
  template <class State, class Step, class Visit>
  void walk(State state, uint32_t first, uint32_t last, Step&& step, Visit&& visit) const {
    if (first >= last) return;
    std::array<State, kMaxTokenBytes + 1> states;
    const uint16_t base = static_cast<uint16_t>(nodes_[first].depth - 1);
    states[0] = state;
    for (uint32_t i = first; i < last;) {
      const Node& node = nodes_[i];
      const State next = step(states[node.depth - base - 1], node.byte);
      if (next.is_dead()) {
        i = node.end;
        continue;
      }
      states[node.depth - base] = next;
      visit(node, next);
      ++i;
    }
  }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  size_t n_root_ = 0;
};

}  // namespace ingot

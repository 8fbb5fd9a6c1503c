// PrefixCache: which KV block holds which tokens after which prefix. A sequence's full blocks form a chain: each names
// its parent, and the first one the salt; so equal chains mean equal histories under one salt. A hash only finds
// candidates: parent and tokens are compared. The end of a finished sequence, less than a block, is kept too; whoever
// continues it takes that block over.
//
// Where every layer of the model has a window, a chain is of use without the blocks in front of it. So there a block
// that is given away leaves its tokens behind, as long as there is room, and whoever continues the chain is still found
// by comparing all of them.
//
// Where the input is a vector instead of a token (an image's, say), the digest of what stands behind that row is
// compared, too.
//
// Of models with recurrent layers, blocks alone are of no use: only where a state is kept of just that place
// (state_slots.h) can anybody go on.
//
// An index only: the pool says who holds a block and when it goes (kv_blocks.h). Fixed storage, nothing is allocated.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ingot {

// A place in a chain. Ids are never used twice, so a block that was given away parents nobody by accident.
struct CacheKey {
  uint64_t hash = 0;
  uint64_t id = 0;
  bool operator==(const CacheKey&) const = default;
};

// The first block that the token at a position sees. It is always full, so that kernels may read it in place of those
// in front of it, which may be gone (BatchBuilder).
int first_block_seen(int position, int window, int block_size);

// Blocks that suffice for a sequence of any length where every layer has that window: those from the first one seen to
// its next token's, and one that it cannot give up yet, for the step that filled it is under way.
int most_blocks_needed(int window, int block_size);

// Where chains of a salt start. Only equal salts share blocks (SHA-256).
CacheKey root_key(const std::string& salt);

// What stands at a position: zero for a token, else which vector.
using RowDigest = std::array<uint64_t, 2>;

// A part of a sequence, as the cache compares it.
struct CacheTokens {
  std::span<const int32_t> tokens;
  std::span<const RowDigest> rows;  // of its first positions; behind them are tokens

  CacheTokens(std::span<const int32_t> all, std::span<const RowDigest> first) : tokens(all), rows(first) {}
  template <class Range>
  requires std::convertible_to<const Range&, std::span<const int32_t>> CacheTokens(const Range& range)
      : tokens(range) {}  // NOLINT: any range of tokens will do

  size_t size() const { return tokens.size(); }
  RowDigest row(size_t i) const { return i < rows.size() ? rows[i] : RowDigest{}; }
  CacheTokens subspan(size_t begin, size_t n = std::dynamic_extent) const {
    const auto behind = begin < rows.size() ? rows.subspan(begin) : std::span<const RowDigest>();
    return {tokens.subspan(begin, n), behind.first(n < behind.size() ? n : behind.size())};
  }
  CacheTokens first(size_t n) const { return subspan(0, n); }
};

struct CacheMatch {
  std::vector<int32_t>
      blocks;         // full ones; -1 where nothing is left but the tokens, in front of the window of what comes next
  int32_t tail = -1;  // a block whose first n_tail tokens follow; -1: none
  int n_tail = 0;
  int n_tokens = 0;    // in all
  CacheKey key;        // of the last full one, or the root
  int32_t state = -1;  // slot of the state there, in models that have such
  int n_known = 0;     // tokens of the longest chain of full blocks, whether there is a state or not
};

class PrefixCache {
 public:
  using Hash = std::function<uint64_t(const CacheKey& parent, std::span<const int32_t> tokens)>;
  // window: what a query sees, in every layer; 0: all. has_rows: some positions may be vectors.
  PrefixCache(int n_blocks, int block_size, int window = 0, Hash hash = {} /* tests: one with collisions */,
              bool has_rows = false);

  // The longest chain from root that is a prefix of tokens.
  void find(const CacheKey& root, const CacheTokens& tokens, CacheMatch& match) const;

  // Says that `block` holds these tokens after parent. For a full block, the key that continues the chain: of the block
  // that already says the same, if there is one, and then `block` is not indexed.
  CacheKey insert(const CacheKey& parent, const CacheTokens& tokens, int32_t block);
  void erase(int32_t block);  // whether it is indexed or not
  void lose(int32_t block);   // the same, and its tokens may stay behind
  // Nobody finds anything of the chain of these tokens any more.
  void forget(const CacheKey& root, const CacheTokens& tokens);
  bool holds(int32_t block) const { return nodes_[block].n_tokens > 0; }
  size_t longest_chain() const { return nodes_.size(); }  // in blocks, that find() can meet

  // From now on chains are found only as far as a state is kept, of which there are n. on_lost is told of each whose
  // block goes.
  void need_states(int n, std::function<void(int32_t state)> on_lost);
  // The state after the full block of that key, or after the last token of a block that is held. Not kept where nothing
  // is indexed, or one is there already.
  void keep_state(const CacheKey& key, int32_t state);
  void keep_state(int32_t block, int32_t state);
  void drop_state(int32_t state);
  bool holds_state(int32_t state) const { return node_of_state_[state] >= 0; }

 private:
  struct Node {
    CacheKey parent, key;
    int n_tokens = 0;       // 0: not indexed
    int32_t state = -1;     // after its last token
    int32_t next = -1;      // in its bucket
    int32_t previous = -1;  // -1: it is the first
  };

  void link(int32_t index, const Node& node, const CacheTokens& tokens);
  uint64_t hash_of(const CacheKey& parent, const CacheTokens& tokens) const;
  int32_t& bucket_of(const Node& node) {
    return (node.n_tokens == block_size_ ? full_ : tails_)[node.key.hash & mask_];
  }
  void keep_what_is_seen(CacheMatch& match) const;
  int32_t find_full(const CacheKey& parent, uint64_t hash, const CacheTokens& tokens) const;  // a node
  void find_tail(const CacheTokens& tokens, CacheMatch& match) const;
  CacheTokens tokens_of(int32_t node) const;

  const int n_blocks_, block_size_, window_;
  const Hash hash_;
  uint64_t seed_, mask_;
  uint64_t next_id_ = 1;
  std::vector<Node> nodes_;  // [n_blocks], then those without a block, each of which gives way to the newest in turn
  int32_t next_lost_ = 0;
  std::vector<int32_t> tokens_;         // [nodes, block_size]
  std::vector<RowDigest> rows_;         // [nodes, block_size]; empty: nothing but tokens
  std::vector<int32_t> full_, tails_;   // buckets: the first node of each, newest first
  std::vector<int32_t> node_of_state_;  // -1: of none; empty: there are no states
  std::function<void(int32_t)> on_lost_state_;
};

}  // namespace ingot

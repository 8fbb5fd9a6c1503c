// PrefixCache: finds the KV block that holds given tokens after a given prefix. The full blocks of a sequence form a
// chain: each block stores the key of its parent, and the first block stores the key of the salt. So equal chains mean
// equal histories under one salt. A hash only finds candidates; the parent and the tokens are then compared. The last,
// partly filled block of a finished sequence (its tail) is cached too; a sequence that continues the tail takes over
// the block.
//
// A model may have several KV caches, each with a pool of blocks (KvPool). A chain consists of blocks of the first
// pool. A block of another pool belongs to the block of the first pool with the same tokens. If the layers of a pool
// have a window, a chain is useful without the pool's blocks before the window.
//
// If every layer of the model has a window, the tokens of an evicted block stay in the index while there is space, so
// find() can still compare all tokens of the chain.
//
// If the input at a position is a vector instead of a token, for example of an image, the digest of that vector is
// compared too.
//
// For models with recurrent layers, blocks alone are not enough. A sequence can continue only from a place whose state
// is cached (state_slots.h).
//
// This class is only an index. The pool records the holders of blocks and decides when a block is evicted
// (kv_blocks.h). Nothing is allocated after construction, except for the list of announced roots.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache_listener.h"
#include "model/program/runner.h"

namespace ingot {

// A place in a chain. Ids are never reused, so an evicted block never becomes the parent of a new chain by accident.
struct CacheKey {
  uint64_t hash = 0;
  uint64_t id = 0;
  bool operator==(const CacheKey&) const = default;
};

// The first block that the token at `position` attends to, with a window of that many tokens (0: all). This block is
// always full, so kernels may read this block in place of earlier blocks, which may be released already (BatchBuilder).
int first_block_seen(int position, int window, int block_size);

// The number of blocks of a pool with this window that is enough for a sequence of any length. The blocks are those
// from the first block seen to the next token's block, and one more block that cannot be released yet, because the step
// that filled that block is in flight.
int most_blocks_needed(int window, int block_size);

// The start of all chains of a salt. Sequences share blocks only if their salts are equal (compared by SHA-256).
CacheKey root_key(const std::string& salt);

// Identifies the input at a position: zero for a token, otherwise a digest of the vector.
using RowDigest = std::array<uint64_t, 2>;

// Part of a sequence, in the form that the cache compares.
struct CacheTokens {
  std::span<const int32_t> tokens;
  std::span<const RowDigest> rows;  // for the first positions; all later positions are tokens

  CacheTokens(std::span<const int32_t> all, std::span<const RowDigest> first) : tokens(all), rows(first) {}
  template <class Range>
  requires std::convertible_to<const Range&, std::span<const int32_t>> CacheTokens(const Range& range)
      : tokens(range) {}  // NOLINT: accepts any range of tokens

  size_t size() const { return tokens.size(); }
  RowDigest row(size_t i) const { return i < rows.size() ? rows[i] : RowDigest{}; }
  CacheTokens subspan(size_t begin, size_t n = std::dynamic_extent) const {
    const auto behind = begin < rows.size() ? rows.subspan(begin) : std::span<const RowDigest>();
    return {tokens.subspan(begin, n), behind.first(n < behind.size() ? n : behind.size())};
  }
  CacheTokens first(size_t n) const { return subspan(0, n); }
};

struct CacheMatch {
  struct OfPool {
    std::vector<int32_t> blocks;  // full blocks; -1: evicted (the block is before the next token's window)
    int32_t tail = -1;            // a block whose first n_tail tokens match after the full blocks; -1: none
  };
  std::vector<OfPool> pools;
  int n_tail = 0;
  int n_tokens = 0;    // in the full blocks and the tail
  CacheKey key;        // of the last full block, or the root
  int32_t state = -1;  // slot of the state after the match, in models with states
  bool has_tail() const { return n_tail > 0; }
  int n_known = 0;     // tokens of the longest chain of full blocks, with or without a state
};

class PrefixCache {
 public:
  using Hash = std::function<uint64_t(const CacheKey& parent, std::span<const int32_t> tokens)>;
  // has_rows: some positions may be vectors. on_lost_block is called for each block of a further pool that leaves the
  // index because the block of the first pool did.
  PrefixCache(std::vector<KvPool> pools, int block_size, Hash hash = {} /* tests: one with collisions */,
              bool has_rows = false, std::function<void(int pool, int32_t block)> on_lost_block = {});

  // Finds the longest chain from root that is a prefix of tokens.
  void find(const CacheKey& root, const CacheTokens& tokens, CacheMatch& match) const;

  // Records that `blocks`, one of each pool (-1: none), hold these tokens after parent. For full blocks, returns the
  // key that continues the chain. If another block has the same parent and tokens, returns the key of that block, and
  // does not index a block where the index has one already.
  CacheKey insert(const CacheKey& parent, const CacheTokens& tokens, std::span<const int32_t> blocks);
  // With blocks of the first pool. erase and lose do nothing if the block is not indexed.
  CacheKey insert(const CacheKey& parent, const CacheTokens& tokens, int32_t block) {
    return insert(parent, tokens, std::span(&block, 1));
  }
  void erase(int32_t block);
  void lose(int32_t block, int pool = 0);  // like erase, but the tokens may stay in the index
  // Removes every cached block that starts with this prefix.
  void forget(const CacheKey& root, const CacheTokens& tokens);
  bool holds(int32_t block, int pool = 0) const {
    return pool == 0 ? nodes_[block].n_tokens > 0 : of_pool(pool).node_of[static_cast<size_t>(block)] >= 0;
  }
  // Call before the first insert(); null: no listener. The listener is notified only of chains with an announced root.
  void set_listener(CacheListener* listener) { listener_ = listener; }
  void announce(const CacheKey& root);
  size_t longest_chain() const { return nodes_.size(); }  // in blocks, the most that find() can return

  // Call once for a model with n states. From then on, find() returns chains only up to a cached state. on_lost is
  // called for each state whose block is erased.
  void need_states(int n, std::function<void(int32_t state)> on_lost);
  // Records the state after the full block with that key, or after the last token of `block`. Does nothing if that
  // block is not indexed or has a state already.
  void keep_state(const CacheKey& key, int32_t state);
  void keep_state(int32_t block, int32_t state);
  void drop_state(int32_t state);
  bool holds_state(int32_t state) const { return node_of_state_[state] >= 0; }

 private:
  struct Node {
    CacheKey parent, key;
    int n_tokens = 0;       // 0: the node is not indexed
    int32_t state = -1;     // the state after the last token
    int32_t next = -1;      // the next node in the bucket
    int32_t previous = -1;  // -1: the node is the first
    bool announced = false;  // the listener has been notified
  };

  void link(int32_t index, const Node& node, const CacheTokens& tokens);
  uint64_t hash_of(const CacheKey& parent, const CacheTokens& tokens) const;
  int32_t& bucket_of(const Node& node) {
    return (node.n_tokens == block_size_ ? full_ : tails_)[node.key.hash & mask_];
  }
  // Of a pool after the first.
  struct FurtherPool {
    std::vector<int32_t> blocks;   // [nodes]: the node's block, or -1
    std::vector<int32_t> node_of;  // [n_blocks]: the node of a block, or -1
  };
  const FurtherPool& of_pool(int pool) const { return further_[static_cast<size_t>(pool) - 1]; }
  int n_pools() const { return static_cast<int>(pools_.size()); }
  int32_t block_of(int pool, int32_t node) const;
  void attach(int32_t node, std::span<const int32_t> blocks);
  void keep_what_is_seen(std::vector<int32_t>& chain) const;
  int32_t find_full(const CacheKey& parent, uint64_t hash, const CacheTokens& tokens) const;  // returns a node
  int32_t find_key(const CacheKey& key) const;  // returns the node of a full block, or -1
  void tell(Node& node, const CacheTokens& tokens);
  int32_t find_tail(const CacheTokens& tokens, CacheMatch& match) const;  // returns a node, or -1
  CacheTokens tokens_of(int32_t node) const;

  const std::vector<KvPool> pools_;
  const int n_blocks_, block_size_, window_;  // n_blocks, window: of the first pool
  const Hash hash_;
  uint64_t seed_, mask_;
  uint64_t next_id_ = 1;
  std::vector<Node> nodes_;  // [n_blocks], then a ring of nodes without a block; the newest overwrites the oldest
  int32_t next_lost_ = 0;
  std::vector<int32_t> tokens_;         // [nodes, block_size]
  std::vector<RowDigest> rows_;         // [nodes, block_size]; empty: all positions are tokens
  std::vector<int32_t> full_, tails_;   // buckets: the first node of each, newest first
  std::vector<int32_t> node_of_state_;  // -1: the state has no node; empty: the model has no states
  std::function<void(int32_t)> on_lost_state_;
  std::vector<FurtherPool> further_;
  std::function<void(int, int32_t)> on_lost_block_;
  CacheListener* listener_ = nullptr;
  std::vector<CacheKey> announced_roots_;  // few
};

}  // namespace ingot

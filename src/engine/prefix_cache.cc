#include "engine/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/splitmix.h"
#include "io/digest.h"

namespace ingot {
namespace {

constexpr uint64_t kRootBit = uint64_t{1} << 63;  // set in the ids of roots, never in the ids of blocks
constexpr int kMaxTails = 32;                     // find_tail compares only this many of a parent's newest tails
constexpr int kLostPerBlock = 8;  // nodes without a block, per block, for models with windows; a few hundred bytes each

int n_nodes(int n_blocks, int window) { return window > 0 ? n_blocks * (1 + kLostPerBlock) : n_blocks; }

// The number of equal tokens at the beginning of both parts.
size_t n_common(const CacheTokens& a, const CacheTokens& b) {
  const size_t n = static_cast<size_t>(std::ranges::mismatch(a.tokens, b.tokens).in1 - a.tokens.begin());
  const size_t n_rows = std::min(n, std::max(a.rows.size(), b.rows.size()));
  for (size_t i = 0; i < n_rows; ++i)
    if (a.row(i) != b.row(i)) return i;
  return n;
}

uint64_t mix(uint64_t digest, uint64_t value) { return splitmix((digest ^ value) + kSplitMixStep); }

}  // namespace

int first_block_seen(int position, int window, int block_size) {
  if (window == 0) return 0;
  return std::max(0, (position + 1 - std::max(window, block_size + 1)) / block_size);
}

int most_blocks_needed(int window, int block_size) {
  const int n_seen =
      std::max(window, block_size + 1);  // tokens from the first seen to the next token; both may be inside blocks
  return (n_seen - 1 + block_size - 1) / block_size + 2;
}

CacheKey root_key(const std::string& salt) {
  Digest digest = Digest::sha256();
  digest.update({reinterpret_cast<const uint8_t*>(salt.data()), salt.size()});
  const std::string hex = digest.finish();
  return {std::stoull(hex.substr(0, 16), nullptr, 16), std::stoull(hex.substr(16, 16), nullptr, 16) | kRootBit};
}

PrefixCache::PrefixCache(std::vector<KvPool> pools, int block_size, Hash hash, bool has_rows,
                         std::function<void(int, int32_t)> on_lost_block)
    : pools_(std::move(pools)),
      n_blocks_(pools_.front().n_blocks),
      block_size_(block_size),
      window_(pools_.front().window),
      hash_(std::move(hash)),
      mask_(std::bit_ceil(static_cast<uint64_t>(n_nodes(n_blocks_, window_))) * 2 - 1),
      nodes_(n_nodes(n_blocks_, window_)),
      tokens_(nodes_.size() * block_size),
      rows_(has_rows ? tokens_.size() : 0),
      full_(mask_ + 1, -1),
      tails_(mask_ + 1, -1),
      on_lost_block_(std::move(on_lost_block)) {
  for (size_t pool = 1; pool < pools_.size(); ++pool)
    further_.push_back({.blocks = std::vector<int32_t>(nodes_.size(), -1),
                        .node_of = std::vector<int32_t>(static_cast<size_t>(pools_[pool].n_blocks), -1)});
  // A random seed, so that a client cannot choose prompts that all fall into one bucket.
  std::random_device random;
  seed_ = static_cast<uint64_t>(random()) << 32 | random();
}

void PrefixCache::find(const CacheKey& root, const CacheTokens& tokens, CacheMatch& match) const {
  match.pools.resize(pools_.size());
  std::vector<int32_t>& chain = match.pools[0].blocks;  // of nodes, until the chain is complete
  chain.clear();
  match.key = root;
  match.n_tokens = 0;
  while (tokens.size() >= static_cast<size_t>(match.n_tokens + block_size_)) {
    const CacheTokens part = tokens.subspan(match.n_tokens, block_size_);
    const int32_t node = find_full(match.key, hash_of(match.key, part), part);
    if (node < 0) break;
    chain.push_back(node);
    match.n_tokens += block_size_;
    match.key = nodes_[node].key;
  }
  match.n_known = match.n_tokens;
  int32_t tail = -1;
  for (;;) {
    keep_what_is_seen(chain);
    match.n_tokens = static_cast<int>(chain.size()) * block_size_;
    match.key = chain.empty() ? root : nodes_[chain.back()].key;
    tail = find_tail(tokens.subspan(match.n_tokens), match);
    if (node_of_state_.empty() || tail >= 0 || chain.empty()) break;
    match.state = nodes_[chain.back()].state;
    if (match.state >= 0) break;
    chain.pop_back();
  }
  for (int pool = n_pools() - 1; pool >= 0; --pool) {
    CacheMatch::OfPool& found = match.pools[static_cast<size_t>(pool)];
    found.tail = tail < 0 ? -1 : block_of(pool, tail);
    found.blocks.resize(chain.size());
    std::ranges::transform(chain, found.blocks.begin(), [&](int32_t node) { return block_of(pool, node); });
  }
}

int32_t PrefixCache::block_of(int pool, int32_t node) const {
  if (pool > 0) return of_pool(pool).blocks[static_cast<size_t>(node)];
  return node < n_blocks_ ? node : -1;
}

// Cuts the chain to a length at which all blocks that the next token sees are present. A shorter chain needs other
// blocks of each pool, so the pools are looked at again after a cut.
void PrefixCache::keep_what_is_seen(std::vector<int32_t>& chain) const {
  for (int pool = 0, n_complete = 0; n_complete < n_pools(); pool = (pool + 1) % n_pools()) {
    const int window = pools_[static_cast<size_t>(pool)].window;
    const size_t n = chain.size();
    for (int i = static_cast<int>(n) - 1; i >= 0 && (window > 0 || pool > 0); --i) {
      if (block_of(pool, chain[static_cast<size_t>(i)]) < 0) chain.resize(static_cast<size_t>(i));
      if (i <= first_block_seen(static_cast<int>(chain.size()) * block_size_, window, block_size_)) break;
    }
    n_complete = chain.size() == n ? n_complete + 1 : 1;
  }
}

int32_t PrefixCache::find_tail(const CacheTokens& tokens, CacheMatch& match) const {
  int32_t tail = -1;
  int n_seen = 0;
  match.n_tail = 0, match.state = -1;
  const auto is_whole = [&](int32_t node) {
    for (int pool = 1; pool < n_pools(); ++pool)
      if (block_of(pool, node) < 0) return false;
    return true;
  };
  for (int32_t block = tails_[hash_of(match.key, tokens.first(0)) & mask_]; block >= 0 && n_seen < kMaxTails;
       block = nodes_[block].next, ++n_seen) {
    if (nodes_[block].parent != match.key || !is_whole(block)) continue;
    const int n = static_cast<int>(n_common(tokens_of(block), tokens)), state = nodes_[block].state;
    if (!node_of_state_.empty() && (state < 0 || n < nodes_[block].n_tokens)) continue;  // a state cannot be cut back
    if (n > match.n_tail) tail = block, match.n_tail = n, match.state = state;
  }
  match.n_tokens += match.n_tail;
  return tail;
}

CacheKey PrefixCache::insert(const CacheKey& parent, const CacheTokens& tokens, std::span<const int32_t> blocks) {
  const int n_tokens = static_cast<int>(tokens.size());
  const int32_t block = blocks[0];
  CHECK(n_tokens > 0 && n_tokens <= block_size_ && blocks.size() == pools_.size() && !holds(block));
  const bool full = n_tokens == block_size_;
  const uint64_t hash = hash_of(parent, full ? tokens : tokens.first(0));
  const int32_t same = full ? find_full(parent, hash, tokens) : -1;
  if (same >= 0 && same < n_blocks_) {
    attach(same, blocks);
    return nodes_[same].key;
  }
  const CacheKey key = same >= 0 ? nodes_[same].key : CacheKey{hash, next_id_++};
  if (same >= 0) erase(same);  // the node has a block again
  link(block, {.parent = parent, .key = key, .n_tokens = n_tokens}, tokens);
  attach(block, blocks);
  if (full && listener_ != nullptr) tell(nodes_[block], tokens);
  return key;
}

// Gives the node blocks of the pools after the first, where it has none.
void PrefixCache::attach(int32_t node, std::span<const int32_t> blocks) {
  for (size_t i = 0; i < further_.size(); ++i) {
    int32_t& own = further_[i].blocks[static_cast<size_t>(node)];
    const int32_t block = blocks[i + 1];
    if (own >= 0 || block < 0) continue;
    int32_t& node_of = further_[i].node_of[static_cast<size_t>(block)];
    CHECK_LT(node_of, 0);
    own = block, node_of = node;
  }
}

void PrefixCache::announce(const CacheKey& root) {
  if (std::ranges::find(announced_roots_, root) == announced_roots_.end()) announced_roots_.push_back(root);
}

void PrefixCache::tell(Node& node, const CacheTokens& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens.row(i) != RowDigest{}) return;
  const bool begins = std::ranges::find(announced_roots_, node.parent) != announced_roots_.end();
  const int32_t parent = begins ? -1 : find_key(node.parent);
  if (!begins && (parent < 0 || !nodes_[parent].announced)) return;
  node.announced = true;
  listener_->cached(node.key.id, begins ? 0 : node.parent.id, tokens.tokens);
}

void PrefixCache::link(int32_t index, const Node& node, const CacheTokens& tokens) {
  nodes_[index] = node;
  std::ranges::copy(tokens.tokens, tokens_.begin() + int64_t{index} * block_size_);
  CHECK(!rows_.empty() || tokens.rows.empty());
  if (!rows_.empty())
    for (size_t i = 0; i < tokens.size(); ++i) rows_[static_cast<size_t>(index) * block_size_ + i] = tokens.row(i);
  int32_t& first = bucket_of(node);
  nodes_[index].next = first;
  if (first >= 0) nodes_[first].previous = index;
  first = index;
}

void PrefixCache::erase(int32_t index) {
  Node& node = nodes_[index];
  if (node.n_tokens == 0) return;
  if (node.next >= 0) nodes_[node.next].previous = node.previous;
  (node.previous >= 0 ? nodes_[node.previous].next : bucket_of(node)) = node.next;
  if (node.announced) listener_->evicted(node.key.id);
  for (size_t i = 0; i < further_.size(); ++i) {
    const int32_t block = std::exchange(further_[i].blocks[static_cast<size_t>(index)], -1);
    if (block < 0) continue;
    further_[i].node_of[static_cast<size_t>(block)] = -1;
    if (on_lost_block_) on_lost_block_(static_cast<int>(i) + 1, block);
  }
  const int32_t state = std::exchange(node, {}).state;
  if (state < 0) return;
  node_of_state_[state] = -1;
  on_lost_state_(state);
}

void PrefixCache::lose(int32_t block, int pool) {
  if (pool > 0) {
    FurtherPool& further = further_[static_cast<size_t>(pool) - 1];
    const int32_t node = std::exchange(further.node_of[static_cast<size_t>(block)], -1);
    if (node >= 0) further.blocks[static_cast<size_t>(node)] = -1;
    return;
  }
  const Node node = nodes_[block];
  const CacheTokens tokens = tokens_of(block);  // erase() does not change the stored tokens
  erase(block);
  if (window_ == 0 || node.n_tokens < block_size_) return;
  const int32_t index = n_blocks_ + next_lost_;
  next_lost_ = (next_lost_ + 1) % (n_blocks_ * kLostPerBlock);
  erase(index);
  link(index, {.parent = node.parent, .key = node.key, .n_tokens = node.n_tokens}, tokens);
}

// The second block stores the first block's id as its parent. Ids are never reused, so erasing the first block is
// enough.
void PrefixCache::forget(const CacheKey& root, const CacheTokens& tokens) {
  if (tokens.size() < static_cast<size_t>(block_size_)) return;
  const CacheTokens first = tokens.first(block_size_);
  const int32_t node = find_full(root, hash_of(root, first), first);
  if (node >= 0) erase(node);
}

void PrefixCache::need_states(int n, std::function<void(int32_t)> on_lost) {
  node_of_state_.assign(n, -1);
  on_lost_state_ = std::move(on_lost);
}

void PrefixCache::keep_state(const CacheKey& key, int32_t state) {
  const int32_t node = find_key(key);
  if (node >= 0 && node < n_blocks_) keep_state(node, state);
}

void PrefixCache::keep_state(int32_t block, int32_t state) {
  if (!holds(block) || nodes_[block].state >= 0 || holds_state(state)) return;
  nodes_[block].state = state;
  node_of_state_[state] = block;
}

void PrefixCache::drop_state(int32_t state) {
  const int32_t node = std::exchange(node_of_state_[state], -1);
  if (node >= 0) nodes_[node].state = -1;
}

int32_t PrefixCache::find_full(const CacheKey& parent, uint64_t hash, const CacheTokens& tokens) const {
  for (int32_t block = full_[hash & mask_]; block >= 0; block = nodes_[block].next) {
    const Node& node = nodes_[block];
    if (node.key.hash == hash && node.parent == parent && n_common(tokens_of(block), tokens) == tokens.size())
      return block;
  }
  return -1;
}

int32_t PrefixCache::find_key(const CacheKey& key) const {
  int32_t node = full_[key.hash & mask_];
  while (node >= 0 && nodes_[node].key != key) node = nodes_[node].next;
  return node;
}

uint64_t PrefixCache::hash_of(const CacheKey& parent, const CacheTokens& tokens) const {
  if (hash_) return hash_(parent, tokens.tokens);
  uint64_t digest = mix(mix(seed_, parent.hash), parent.id);
  for (const int32_t token : tokens.tokens) digest = mix(digest, static_cast<uint64_t>(token));
  for (const RowDigest& row : tokens.rows)
    if (row != RowDigest{}) digest = mix(mix(digest, row[0]), row[1]);
  return digest;
}

CacheTokens PrefixCache::tokens_of(int32_t node) const {
  const size_t begin = static_cast<size_t>(node) * block_size_, n = nodes_[node].n_tokens;
  return {std::span(tokens_).subspan(begin, n),
          rows_.empty() ? std::span<const RowDigest>() : std::span(rows_).subspan(begin, n)};
}

}  // namespace ingot

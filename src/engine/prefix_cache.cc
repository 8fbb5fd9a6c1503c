#include "engine/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include "base/check.h"
#include "io/digest.h"

namespace ingot {
namespace {

constexpr uint64_t kRootBit = uint64_t{1} << 63;  // set in the ids of roots, and never in those of blocks
constexpr int kMostTails = 32;                    // looked at after one parent: the newest ones

uint64_t mix(uint64_t digest, uint64_t value) {  // SplitMix64's finaliser
  digest = (digest ^ value) + 0x9E3779B97F4A7C15u;
  digest = (digest ^ (digest >> 30)) * 0xBF58476D1CE4E5B9u;
  digest = (digest ^ (digest >> 27)) * 0x94D049BB133111EBu;
  return digest ^ (digest >> 31);
}

}  // namespace

CacheKey root_key(const std::string& salt) {
  Digest digest = Digest::sha256();
  digest.update({reinterpret_cast<const uint8_t*>(salt.data()), salt.size()});
  const std::string hex = digest.finish();
  return {std::stoull(hex.substr(0, 16), nullptr, 16), std::stoull(hex.substr(16, 16), nullptr, 16) | kRootBit};
}

PrefixCache::PrefixCache(int n_blocks, int block_size, Hash hash)
    : block_size_(block_size),
      hash_(std::move(hash)),
      mask_(std::bit_ceil(static_cast<uint64_t>(n_blocks)) * 2 - 1),
      nodes_(n_blocks),
      tokens_(static_cast<size_t>(n_blocks) * block_size),
      full_(mask_ + 1, -1),
      tails_(mask_ + 1, -1) {
  // Random, so that nobody can send prompts that all fall into one bucket.
  std::random_device random;
  seed_ = static_cast<uint64_t>(random()) << 32 | random();
}

void PrefixCache::find(const CacheKey& root, std::span<const int32_t> tokens, CacheMatch& match) const {
  match.blocks.clear();
  match.key = root;
  match.tail = -1;
  match.n_tail = match.n_tokens = 0;
  while (tokens.size() >= static_cast<size_t>(match.n_tokens + block_size_)) {
    const auto part = tokens.subspan(match.n_tokens, block_size_);
    const int32_t block = find_full(match.key, hash_of(match.key, part), part);
    if (block < 0) break;
    match.blocks.push_back(block);
    match.n_tokens += block_size_;
    match.key = nodes_[block].key;
  }
  find_tail(tokens.subspan(match.n_tokens), match);
}

void PrefixCache::find_tail(std::span<const int32_t> tokens, CacheMatch& match) const {
  int n_seen = 0;
  for (int32_t block = tails_[hash_of(match.key, {}) & mask_]; block >= 0 && n_seen < kMostTails;
       block = nodes_[block].next, ++n_seen) {
    if (nodes_[block].parent != match.key) continue;
    const auto held = tokens_of(block);
    const auto end = std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end()).first;
    const int n = static_cast<int>(end - held.begin());
    if (n > match.n_tail) match.tail = block, match.n_tail = n;
  }
  match.n_tokens += match.n_tail;
}

CacheKey PrefixCache::insert(const CacheKey& parent, std::span<const int32_t> tokens, int32_t block) {
  const int n_tokens = static_cast<int>(tokens.size());
  CHECK(n_tokens > 0 && n_tokens <= block_size_ && !holds(block));
  const bool full = n_tokens == block_size_;
  Node& node = nodes_[block];
  const uint64_t hash = hash_of(parent, full ? tokens : tokens.first(0));
  if (full) {
    const int32_t same = find_full(parent, hash, tokens);
    if (same >= 0) return nodes_[same].key;
  }
  node = {.parent = parent, .key = {hash, next_id_++}, .n_tokens = n_tokens};
  std::ranges::copy(tokens, tokens_.begin() + int64_t{block} * block_size_);
  int32_t& first = bucket_of(node);
  node.next = first;
  if (first >= 0) nodes_[first].previous = block;
  first = block;
  return node.key;
}

void PrefixCache::erase(int32_t block) {
  Node& node = nodes_[block];
  if (node.n_tokens == 0) return;
  if (node.next >= 0) nodes_[node.next].previous = node.previous;
  (node.previous >= 0 ? nodes_[node.previous].next : bucket_of(node)) = node.next;
  node = {};
}

int32_t PrefixCache::find_full(const CacheKey& parent, uint64_t hash, std::span<const int32_t> tokens) const {
  for (int32_t block = full_[hash & mask_]; block >= 0; block = nodes_[block].next) {
    const Node& node = nodes_[block];
    if (node.key.hash == hash && node.parent == parent && std::ranges::equal(tokens_of(block), tokens)) return block;
  }
  return -1;
}

uint64_t PrefixCache::hash_of(const CacheKey& parent, std::span<const int32_t> tokens) const {
  if (hash_) return hash_(parent, tokens);
  uint64_t digest = mix(mix(seed_, parent.hash), parent.id);
  for (const int32_t token : tokens) digest = mix(digest, static_cast<uint64_t>(token));
  return digest;
}

std::span<const int32_t> PrefixCache::tokens_of(int32_t block) const {
  return std::span(tokens_).subspan(static_cast<size_t>(block) * block_size_, nodes_[block].n_tokens);
}

}  // namespace ingot

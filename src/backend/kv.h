// A KV cache: pages of `block_size` tokens for layers of one shape. Only the backend that made the cache knows the byte
// layout of a page. Layers of other head sizes or windows have caches of their own, with block tables of their own.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/tensor.h"

namespace ingot {

// The types of a cache's keys and of its values. One type stands for both.
struct KvTypes {
  DType keys = DType::kF16, values = DType::kF16;

  constexpr KvTypes() = default;
  constexpr KvTypes(DType both) : keys(both), values(both) {}  // NOLINT: most caches have one type
  constexpr KvTypes(DType of_keys, DType of_values) : keys(of_keys), values(of_values) {}
  constexpr bool operator==(const KvTypes&) const = default;
  constexpr bool differ() const { return keys != values; }
};

struct KvShape {
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int block_size = 16;  // tokens in a block
  int n_blocks = 0;
  KvTypes dtype;
  int table = 0;                 // which of a batch's block tables names the blocks of this cache
  bool of_source = false;        // keys of each sequence's source (Batch::sources), made once and then only read
  bool values_are_keys = false;  // attention over latents: a value is the key itself, and is stored once

  // Keys of q4_0 are rotated before they are cached, and so are the queries: each run of this many columns of a head is
  // multiplied by a Hadamard matrix (Backend::hadamard). Products of queries and keys stay the same, but a channel of
  // large keys no longer makes the steps of its group coarse (arXiv:2404.00456). 1: no rotation. Values that are keys
  // are not rotated, because the outputs of attention would be rotated, too.
  int key_rotation() const {
    constexpr int kLargestRotation = 512;
    return dtype.keys == DType::kQ4_0 && !values_are_keys ? std::min(head_dim & -head_dim, kLargestRotation) : 1;
  }
  int n_parts() const { return values_are_keys ? 1 : 2; }
  // Bytes of a head's key or value of this type: of its numbers, and of their scales.
  size_t number_bytes(DType type) const {
    const auto head = static_cast<size_t>(head_dim);
    return type == DType::kQ8_0 ? head : type == DType::kQ4_0 ? head / 2 : head * dtype_bytes(type);
  }
  size_t scale_bytes(DType type) const { return has_scales(type) ? (static_cast<size_t>(head_dim) + 31) / 32 * 2 : 0; }
  // Bytes of one token's keys and values in all layers.
  size_t token_bytes() const {
    const auto row_bytes = [&](DType type) { return number_bytes(type) + scale_bytes(type); };
    return static_cast<size_t>(n_layers) * n_kv_heads *
           (row_bytes(dtype.keys) + (values_are_keys ? 0 : row_bytes(dtype.values)));
  }
  size_t bytes() const { return token_bytes() * block_size * n_blocks; }
};

// "f16", "bf16", "f32", "q8_0", "q4_0", "q8_0/q4_0" (keys/values) or "fp8". Throws UsageError for any other name.
KvTypes parse_kv_type(const std::string& name);
std::string kv_type_name(KvTypes types);

class KvCache {
 public:
  explicit KvCache(const KvShape& kv_shape) : shape(kv_shape) {}
  virtual ~KvCache() = default;
  // Copies of one block, the keys and values of its tokens in all layers, in the cache's own byte layout. For files of
  // cached prefixes. A copy runs in order with the submitted steps.
  virtual size_t block_bytes() const = 0;
  virtual void read_block(int32_t block, std::span<uint8_t> to /* [block_bytes] */) const = 0;
  virtual void write_block(int32_t block, std::span<const uint8_t> from /* [block_bytes] */) = 0;
  // The same within the cache. The default body copies through the host.
  virtual void copy_block(int32_t from, int32_t to);
  const KvShape shape;
};

}  // namespace ingot

// The rest of qkv() for a single token, inside the product: rope, and the write to a KV cache of f16.
#pragma once
#include <cstdint>

namespace ingot::cuda {

struct QkvEnd {
  const float* angles = nullptr;  // [2, half_dim] cosines, then sines; null: none
  int half_dim = 0;               // pairs of a head that rope rotates
  bool split = false;             // rope rotates elements i and half_dim + i; false: neighbours
  int head_dim = 0;
  void* keys = nullptr;      // f16 [blocks, heads, block_size, head_dim] of the layer
  void* values = nullptr;    // the same; both have other data between two blocks
  int64_t block_stride = 0;  // elements from a block to the next
  int block_size = 0;
  const int32_t* position = nullptr;     // [1]
  const int32_t* block_table = nullptr;  // of the token's sequence
};

}  // namespace ingot::cuda

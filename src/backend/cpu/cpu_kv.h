// CpuKv: pages [group of blocks, layer, block of the group, kv_head], each for one head (KvLayout). The keys of a page are
// transposed, [dimension, key], so that one vector holds the scores of 16 keys. Groups come before layers, so that a
// cache takes memory from the system only as its blocks are used, also in large pages. Within a group, the blocks of a
// layer are neighbours, because attention reads them one after another.
#pragma once
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/kv.h"

namespace ingot::cpu {

class CpuKv : public KvCache {
 public:
  explicit CpuKv(const KvShape& s)
      : KvCache(s),
        layout(layout_of(s)),
        head_bytes(head_bytes_of(s)),
        page_stride(head_bytes * s.n_kv_heads),
        group(group_of(s)),
        memory(bytes_of(s)) {}

  static size_t bytes_of(const KvShape& s) {
    const int group = group_of(s);
    return static_cast<size_t>(head_bytes_of(s)) * s.n_kv_heads * ((s.n_blocks + group - 1) / group * group) *
           s.n_layers;
  }

  // The page of block 0 for one head of a layer; those of other blocks are offset_of() bytes further.
  uint8_t* pages(int layer, int kv_head) const {
    return memory.data() + layer * group * page_stride + kv_head * head_bytes;
  }
  BlockPlaces places() const { return {.stride = page_stride, .group = group, .group_stride = group_stride()}; }

  size_t block_bytes() const override { return static_cast<size_t>(page_stride) * shape.n_layers; }
  void read_block(int32_t block, std::span<uint8_t> to) const override {
    CHECK(block >= 0 && block < shape.n_blocks && to.size() == block_bytes());
    for (int layer = 0; layer < shape.n_layers; ++layer)
      std::memcpy(to.data() + layer * page_stride, pages(layer, 0) + offset_of(places(), block), page_stride);
  }
  void write_block(int32_t block, std::span<const uint8_t> from) override {
    CHECK(block >= 0 && block < shape.n_blocks && from.size() == block_bytes());
    for (int layer = 0; layer < shape.n_layers; ++layer)
      std::memcpy(pages(layer, 0) + offset_of(places(), block), from.data() + layer * page_stride, page_stride);
  }

  const KvLayout layout;
  const int64_t head_bytes;
  const int64_t page_stride;  // of a block in a layer
  const int group;            // blocks
  const Memory memory;

 private:
  // A short cache has no groups, because its last group would waste a part of it.
  static int group_of(const KvShape& s) { return s.n_blocks >= 256 ? 16 : 1; }
  int64_t group_stride() const { return int64_t{shape.n_layers} * group * page_stride; }
  static KvType type_of(DType dtype) {
    CHECK(dtype != DType::kI32);
    if (dtype == DType::kE4M3) return KvType::kE4M3;
    if (dtype == DType::kQ4_0) return KvType::kQ4_0;
    return dtype == DType::kF32    ? KvType::kF32
           : dtype == DType::kF16  ? KvType::kF16
           : dtype == DType::kBF16 ? KvType::kBF16
                                   : KvType::kQ8_0;
  }
  static int64_t head_bytes_of(const KvShape& s) {
    return (layout_of(s).value_scales_at + (s.values_are_keys ? 0 : scales_bytes(s)) + 63) / 64 * 64;
  }
  static int64_t n_chunks(const KvShape& s) { return (s.block_size + kKeyChunk - 1) / kKeyChunk; }
  static int64_t scales_bytes(const KvShape& s) {
    return has_scales(s.dtype.keys) ? n_chunks(s) * kv_groups(s.head_dim) * kKeyChunk * 2 : 0;
  }
  static KvLayout layout_of(const KvShape& s) {
    const DType dtype = s.dtype.keys;  // of values too: a plan may ask for the bytes of types that the CPU refuses
    KvLayout kv{.type = type_of(dtype), .value_stride = (s.head_dim + kPanelRows - 1) / kPanelRows * kPanelRows};
    const int64_t value_bytes = int64_t{s.block_size} * kv.value_stride * kv_bits(kv.type) / 8;
    kv.values_at = n_chunks(s) * kv_chunk_bytes(kv.type, s.head_dim);
    kv.key_scales_at = kv.values_at + (s.values_are_keys ? 0 : value_bytes);
    kv.value_scales_at = kv.key_scales_at + scales_bytes(s);
    kv.values_are_keys = s.values_are_keys;
    return kv;
  }
};

}  // namespace ingot::cpu

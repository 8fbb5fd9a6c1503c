// CpuKv: pages [layer, block, kv_head], each the keys of one head, [chunks of 16 tokens, head_dim, 16], and then its values,
// [block_size, head_dim rounded up to 32]. Keys lie dimension by dimension so that scores of 16 keys are one vector.
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/kv.h"

namespace ingot::cpu {

class CpuKv : public KvCache {
 public:
  explicit CpuKv(const KvShape& s)
      : KvCache(s), type(s.dtype == DType::kF32 ? KvType::kF32 : s.dtype == DType::kF16 ? KvType::kF16 : KvType::kBF16),
        value_stride((s.head_dim + kPanelRows - 1) / kPanelRows * kPanelRows),
        values_at(int64_t{(s.block_size + kKeyChunk - 1) / kKeyChunk} * kKeyChunk * s.head_dim * element_bytes()),
        head_bytes((values_at + int64_t{s.block_size} * value_stride * element_bytes() + 63) / 64 * 64),
        page_stride(head_bytes * s.n_kv_heads),
        memory(static_cast<size_t>(page_stride) * s.n_blocks * s.n_layers) {
    CHECK(s.dtype == DType::kF32 || s.dtype == DType::kF16 || s.dtype == DType::kBF16);
  }

  // The page of block 0 for a head of a layer; block b is b * page_stride further.
  uint8_t* pages(int layer, int kv_head) const {
    return memory.data() + int64_t{layer} * shape.n_blocks * page_stride + kv_head * head_bytes;
  }

  const KvType type;
  const int value_stride;
  const int64_t values_at;    // bytes
  const int64_t head_bytes;
  const int64_t page_stride;
  const Memory memory;

 private:
  int64_t element_bytes() const { return static_cast<int64_t>(dtype_bytes(shape.dtype)); }
};

}  // namespace ingot::cpu

// CudaKv: a KV cache in device memory. The last block is for the writes of sequences that pad a step.
#pragma once
#include <memory>

#include "backend/cuda/core.h"
#include "backend/kv.h"

namespace ingot::cuda {

struct CudaKv : KvCache {
  CudaKv(const KvShape& s, Memory m, const Device& d) : KvCache(s), memory(std::move(m)), device(d) {}
  DeviceKv view() const;
  size_t block_bytes() const override { return shape.token_bytes() * shape.block_size; }
  void read_block(int32_t block, std::span<uint8_t> to) const override;
  void write_block(int32_t block, std::span<const uint8_t> from) override;
  void copy_block(int32_t from, int32_t to) override;
  template <class F>
  void each_page(int32_t block, F&& f) const;
  Memory memory;
  const Device& device;
};

inline DeviceKv view_of(const KvCache& kv) { return static_cast<const CudaKv&>(kv).view(); }

size_t kv_cache_bytes(const KvShape& shape);  // includes the block to which padding writes
std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, Core& core);

}  // namespace ingot::cuda

#include "backend/cuda/attention/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ingot::cuda {

size_t kv_cache_bytes(const KvShape& shape) {
  KvShape padded = shape;
  ++padded.n_blocks;
  return std::max<size_t>(padded.bytes(), 16);
}

std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, Core& core) {
  CHECK(shape.dtype.keys != DType::kI32 && !(shape.values_are_keys && shape.dtype.differ()));
  if (has_scales(shape.dtype.keys) && shape.head_dim % 8 != 0)
    throw Error(
        "a KV cache of q8_0 or q4_0 on a GPU needs heads with a multiple of 8 columns, but these have {}: use f16",
        shape.head_dim);
  core.step.block_size = shape.block_size;
  Memory memory = core.memory.allocate(kv_cache_bytes(shape));
  check(cudaMemsetAsync(memory.data(), 0, memory.size(), core.device.stream()), "cudaMemsetAsync");
  return std::make_unique<CudaKv>(shape, std::move(memory), core.device);
}

// The memory has the numbers of both arrays, then their scales. So all addresses suit loads of several numbers.
DeviceKv CudaKv::view() const {
  DeviceKv kv{.dtype = shape.dtype.keys,
              .n_layers = shape.n_layers,
              .n_blocks = shape.n_blocks + 1,
              .n_kv_heads = shape.n_kv_heads,
              .block_size = shape.block_size,
              .head_dim = shape.head_dim,
              .key_rotation = shape.key_rotation(),
              .n_parts = shape.dtype.differ() ? 1 : shape.n_parts(),
              .values_are_keys = shape.values_are_keys,
              .values = {.dtype = shape.dtype.values}};
  auto* next = static_cast<char*>(memory.data());
  const auto take = [&](size_t row_bytes) -> void* {
    return row_bytes == 0 ? nullptr : std::exchange(next, next + kv.n_rows() * static_cast<int64_t>(row_bytes));
  };
  kv.data = take(shape.number_bytes(kv.dtype));
  if (shape.dtype.differ()) kv.values.data = take(shape.number_bytes(kv.values.dtype));
  kv.scales = take(shape.scale_bytes(kv.dtype));
  if (shape.dtype.differ()) kv.values.scales = take(shape.scale_bytes(kv.values.dtype));
  return kv;
}

// Calls f(device address, offset in the block's bytes, bytes) for each page of a block. In each layer, a block has a
// page of numbers in each array, [n_layers, n_blocks + 1, page], and a page of scales if the array's type has them.
template <class F>
void CudaKv::each_page(int32_t block, F&& f) const {
  CHECK(block >= 0 && block < shape.n_blocks);
  const DeviceKv kv = view();
  const size_t n_rows = static_cast<size_t>(kv.n_parts) * kv.n_kv_heads * kv.block_size;  // of a page
  size_t at = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    const auto page = [&](void* data, size_t row_bytes) {
      const size_t bytes = n_rows * row_bytes, index = static_cast<size_t>(layer) * kv.n_blocks + block;
      if (bytes > 0) f(static_cast<uint8_t*>(data) + index * bytes, at, bytes);
      at += bytes;
    };
    const auto pages = [&](void* data, void* scales, DType dtype) {
      page(data, shape.number_bytes(dtype)), page(scales, shape.scale_bytes(dtype));
    };
    pages(kv.data, kv.scales, kv.dtype);
    if (kv.has_two_types()) pages(kv.values.data, kv.values.scales, kv.values.dtype);
  }
}

void CudaKv::read_block(int32_t block, std::span<uint8_t> to) const {
  CHECK_EQ(to.size(), block_bytes());
  device.make_current();
  each_page(block, [&](const uint8_t* from, size_t at, size_t bytes) {
    check(cudaMemcpyAsync(to.data() + at, from, bytes, cudaMemcpyDeviceToHost, device.stream()), "cudaMemcpyAsync");
  });
  check(cudaStreamSynchronize(device.stream()), "cudaStreamSynchronize");
}

void CudaKv::write_block(int32_t block, std::span<const uint8_t> from) {
  CHECK_EQ(from.size(), block_bytes());
  device.make_current();
  each_page(block, [&](uint8_t* to, size_t at, size_t bytes) {
    check(cudaMemcpyAsync(to, from.data() + at, bytes, cudaMemcpyHostToDevice, device.stream()), "cudaMemcpyAsync");
  });
  check(cudaStreamSynchronize(device.stream()), "cudaStreamSynchronize");
}

void CudaKv::copy_block(int32_t from, int32_t to) {
  CHECK(from >= 0 && from < shape.n_blocks);
  device.make_current();
  each_page(to, [&](uint8_t* page, size_t, size_t bytes) {
    const uint8_t* source = page + (int64_t{from} - to) * static_cast<int64_t>(bytes);
    check(cudaMemcpyAsync(page, source, bytes, cudaMemcpyDeviceToDevice, device.stream()), "cudaMemcpyAsync");
  });
}

}  // namespace ingot::cuda

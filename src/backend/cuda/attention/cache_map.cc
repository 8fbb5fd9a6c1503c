#include "backend/cuda/attention/cache_map.h"

#include "backend/cuda/memory.h"
#include "base/check.h"

namespace ingot::cuda {
namespace {

auto encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPoint");
  CHECK(function != nullptr);
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

CUtensorMap cache_map(void* data, int64_t n_rows, int row_bytes, int panel_bytes, int panels_at_once,
                      bool is_swizzled) {
  static const auto encode = encode_function();
  const auto bytes = [](int n) { return static_cast<cuuint64_t>(n); };
  const auto count = [](int n) { return static_cast<cuuint32_t>(n); };
  const cuuint64_t sizes[] = {bytes(panel_bytes), 8, bytes(row_bytes / panel_bytes),
                              static_cast<cuuint64_t>(n_rows / 8)};
  const cuuint64_t strides[] = {bytes(row_bytes), bytes(panel_bytes), bytes(8 * row_bytes)};
  const cuuint32_t box[] = {count(panel_bytes), 8, count(panels_at_once), kMapRows / 8}, steps[] = {1, 1, 1, 1};
  const auto swizzle = !is_swizzled         ? CU_TENSOR_MAP_SWIZZLE_NONE
                       : panel_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                                            : CU_TENSOR_MAP_SWIZZLE_64B;
  CUtensorMap map;
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK_EQ(static_cast<int>(status), 0);
  return map;
}

}  // namespace ingot::cuda

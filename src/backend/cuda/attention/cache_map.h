// Describes the KV cache for copies by TMA (CUDA driver API, "cuTensorMapEncodeTiled").
#pragma once
#include <cuda.h>

#include <cstdint>

namespace ingot::cuda {

inline constexpr int kMapRows = 16;  // of a copy

// data: an array of n_rows rows of row_bytes each. A row consists of panels of up to 128 bytes. A copy fetches
// panels_at_once panels of kMapRows rows to shared memory, as [2, panels_at_once, 8, panel_bytes]: the first 8 rows,
// then the other 8. A swizzled copy permutes the 16-byte pieces of a panel's row: by XOR with row % 8 in panels of 128
// bytes, by XOR with row / 2 % 4 in panels of 64. Its place in shared memory must be a multiple of 1,024 bytes.
CUtensorMap cache_map(void* data, int64_t n_rows, int row_bytes, int panel_bytes, int panels_at_once,
                      bool is_swizzled = true);

}  // namespace ingot::cuda

// Weights of 8-bit floats (Layout::kFloat8): packing, and products.
//
// One to eight rows of activations: matvec() multiplies in f16 (float8_rows.cu), at the speed of memory. More rows:
// quantize_rows() converts the activations to 8-bit floats, and cuBLASLt multiplies them (DenseMatmul::run_float8).
#pragma once
#include "backend/cuda/kernels.h"

namespace ingot::cuda {

// Bytes of a weight's numbers and of its scales.
inline size_t float8_bytes(int64_t n_out, int64_t n_in) {
  return static_cast<size_t>(n_out * n_in + 4 * float8_scales(n_out, n_in));
}
inline bool can_be_float8(int64_t n_in) { return n_in % kScaleCols == 0; }

// Fills w.data and w.scales from blocks of F8_E4M3. Sets the bits below in *not_shared (on the device, zero before).
enum : uint32_t { kRowsDiffer = 1, kBlocksDiffer = 2 };
void pack_float8(const void* blocks, const PackedWeight& w, uint32_t* not_shared, Device& device);
ScaleGrid grid_of(uint32_t not_shared);

// The most rows of activations that matvec() can multiply at once; 0: none.
int most_float8_rows(const DeviceLimits& device, int64_t n_in);
void float8_rows(const Matvec& m, Device& device);

// Activations as 8-bit floats. Scales: with whole_rows [n], one for each row; otherwise [n_in / 128, n], one for each
// 128 columns.
struct Float8Rows {
  const void* data = nullptr;  // [n, n_in]
  const float* scales = nullptr;
  int64_t n = 0, n_in = 0;
  bool whole_rows = false;  // each row has one scale
};
inline size_t float8_rows_bytes(int64_t n, int64_t n_in) {
  return static_cast<size_t>(n * n_in + (n_in + kScaleCols - 1) / kScaleCols * n * 4);
}
// x: [n, n_in] f16, n_in a multiple of 128, rows aligned to 8 bytes. `to` has float8_rows_bytes() bytes.
Float8Rows quantize_rows(void* to, const Tensor& x, bool whole_rows, Device& device);

// y = norm(x), and the first n rows of y also as 8-bit floats: one kernel instead of two. y: [rows, n_in] f16. The
// numbers are those of norm_rows and quantize_rows.
bool can_norm_quantize(const Tensor& y, const Tensor& x, const NormArgs& norm);
Float8Rows norm_quantize(void* to, const Tensor& y, const Tensor& x, const NormArgs& norm, int64_t n, bool whole_rows,
                         Device& device);

// Whether a product of n rows uses one scale for each row of activations. cuBLASLt's kernels for such scales are
// fastest for many rows, and slow for few (docs/notes).
inline bool takes_whole_rows(const PackedWeight& w, int64_t n) { return w.grid == ScaleGrid::kRows && n > 128; }
// With a scale for each 128 columns, cuBLASLt's kernels need a multiple of this number of rows.
inline constexpr int64_t kFloat8Group = 8;

}  // namespace ingot::cuda

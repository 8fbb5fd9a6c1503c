// Tensor and Weight: the operands of backend ops. Both are views; the backend that made them owns the memory.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "quant/format.h"

namespace ingot {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kQ8_0,  // only for KV caches: bytes, with a scale for each 32 elements of a head
  kQ4_0,  // only for KV caches: 4 bits, with the same scales
  kE4M3,  // only for KV caches: float8 without a scale, up to 448 (quant/f8_e4m3.h)
};

// Whether 32 elements of a head share a scale. KvShape::token_bytes counts the bytes of these types.
inline bool has_scales(DType dtype) { return dtype == DType::kQ8_0 || dtype == DType::kQ4_0; }

// Bytes of one element, of types without scales.
inline size_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : dtype == DType::kE4M3 ? 1 : 2;
}

// A non-owning view of dense rows: [rows, cols], `stride` elements from one row to the next. Empty if data is null.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  explicit operator bool() const { return data != nullptr; }
  bool contiguous() const { return stride == cols; }

  // Rows [begin, begin + n).
  Tensor slice_rows(int64_t begin, int64_t n) const {
    CHECK_LE(begin + n, rows);
    return {static_cast<char*>(data) + begin * stride * static_cast<int64_t>(dtype_bytes(dtype)), dtype, n, cols,
            stride};
  }
  // Columns [begin, begin + n).
  Tensor slice_cols(int64_t begin, int64_t n) const {
    CHECK_LE(begin + n, cols);
    return {static_cast<char*>(data) + begin * static_cast<int64_t>(dtype_bytes(dtype)), dtype, rows, n, stride};
  }
  // The same elements as [n_rows, n_cols]; the rows must be contiguous.
  Tensor reshape(int64_t n_rows, int64_t n_cols) const {
    CHECK(contiguous());
    CHECK_EQ(n_rows * n_cols, rows * cols);
    return {data, dtype, n_rows, n_cols, n_cols};
  }
  // The first elements of a contiguous buffer, viewed as [n_rows, n_cols].
  Tensor view(int64_t n_rows, int64_t n_cols) const {
    CHECK(contiguous());
    CHECK_LE(n_rows * n_cols, rows * cols);
    return {data, dtype, n_rows, n_cols, n_cols};
  }
  int32_t* i32(int64_t row = 0) const {
    CHECK(dtype == DType::kI32);
    return static_cast<int32_t*>(data) + row * stride;
  }
  float* f32(int64_t row = 0) const {
    CHECK(dtype == DType::kF32);
    return static_cast<float*>(data) + row * stride;
  }
};

// A matrix [n_out, n_in] in one quant format: `codes` holds whole rows of blocks, with the scales inside the blocks.
// (For checkpoints with scales in separate tensors, io/huggingface/quantized_tensors.h gathers them into blocks on
// reading.) Backend::prepare fills `packed` with the layout that its kernels use.
struct Weight {
  Format format = Format::F32;
  int64_t n_out = 0;
  int64_t n_in = 0;
  const void* codes = nullptr;
  const void* packed = nullptr;
  int64_t n_experts = 1;  // number of matrices, one after another

  explicit operator bool() const { return n_out != 0; }
  const uint8_t* row(int64_t i) const { return static_cast<const uint8_t*>(codes) + i * row_bytes(format, n_in); }
  size_t bytes() const { return static_cast<size_t>(n_experts * n_out) * row_bytes(format, n_in); }
};

// The uses of a weight; a tied embedding table has two. kForHostTable: rows are looked up, and the table stays in host
// memory, because a step reads little of it.
enum WeightUse : unsigned { kForMatmul = 1, kForEmbedding = 2, kForHostTable = 4 };

}  // namespace ingot

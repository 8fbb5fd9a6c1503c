// Encodes f32 to the formats that define `pack` or `encode` (info().can_encode). F32, F16, BF16 and Q8_0 are rounded
// bit for bit as ggml rounds them. For the other formats a search finds codes with a low squared error, weighted by
// importance if the caller passes it. Used by the quantizer, converters and tests, not during inference.
#pragma once
#include <string>

#include "quant/format.h"

namespace ingot {

// x: [n_elements], whole blocks, finite. importance: [n_elements], the weight of each element's squared error, at least
// 0; null: all weights are 1. Writes row_bytes(format, n_elements) bytes. Throws Error if info(format).can_encode is
// false.
void encode_row(Format format, const float* x, void* row, int64_t n_elements, const float* importance = nullptr);

// Encodes to F8_E4M3 with one scale for the whole row: the largest magnitude becomes 448. Writes
// row_bytes(Format::F8_E4M3, n_elements) bytes.
void encode_float8_row(const float* x, void* row, int64_t n_elements);

// "F32, F16, BF16, Q4_0, ...": for messages.
std::string encodable_formats();

}  // namespace ingot

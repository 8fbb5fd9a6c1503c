// f32 to the formats that can be written: all that have `pack` or `encode` (info().can_encode). F32, F16, BF16 and Q8_0
// are rounded as ggml rounds them, to the bit; the others are searched for the least squared error, weighted by
// importance where it is given. For the quantizer and converters, and tests that need weights of known origin; no step
// of inference calls it.
#pragma once
#include <string>

#include "quant/format.h"

namespace ingot {

// x: [n_elements], whole blocks, finite. importance: [n_elements], the weight of each element's squared error, none
// below 0; null: all alike. Writes row_bytes(format, n_elements). Throws Error where info(format).can_encode is false.
void encode_row(Format format, const float* x, void* row, int64_t n_elements, const float* importance = nullptr);

// "F32, F16, BF16, Q4_0, ...": for messages.
std::string encodable_formats();

}  // namespace ingot

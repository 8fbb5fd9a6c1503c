// f32 to the formats that need no search: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, rounded as ggml's reference
// quantizers do, to the bit. For tools, and tests that need weights of known origin; no step of inference calls it.
#pragma once
#include "quant/format.h"

namespace ingot {

// x: [n_elements], whole blocks, finite. Writes row_bytes(format, n_elements). Throws where info(format).can_encode is
// false.
void encode_row(Format format, const float* x, void* row, int64_t n_elements);

}  // namespace ingot

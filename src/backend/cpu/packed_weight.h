// PackedWeight: a weight as the matmul kernels want it, in panels (kernels.h). Made at load from any quant format
// through its FormatInfo alone. Codes and scales are kept exactly, but for two: an f32 scale or minimum becomes an f16
// times the tensor's power of two, which holds any bf16 and any f16 (a zero point times a scale may have more bits:
// those are rounded away, 2^-12 of the minimum at most); and F8_E4M3, which has no codes, is rounded to int8 with a
// scale for each 32, as Q8_0 is made (0.5 % of a deviation, where the 3 bits of its own mantissa cost 2.6 %). A format
// that fits no kind of kernel is kept as f32.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/tensor.h"
#include "base/threads.h"

namespace ingot::cpu {

struct PackedWeight {
  int64_t n_out = 0;
  int64_t n_in = 0;
  int64_t n_panels = 0;  // of each expert
  int64_t panel_bytes = 0;
  const TileFn* tiles = nullptr;
  int max_tile = 0;       // tokens
  float factor = 1;       // of all its scales, a power of two
  ActLayout activations;  // what x has to be packed into
  uint8_t codebook[16] = {};
  Memory memory;

  const uint8_t* panels() const { return memory.data(); }
};

// The numbers that a matmul with weights of this format multiplies: "int8", "bf16" or "f32".
const char* multiplies_as(Format format, const Kernels& kernels);

// What pack_weight takes of memory for a weight of this shape.
size_t packed_bytes(const Weight& shape);

PackedWeight pack_weight(const Weight& host, const Kernels& kernels, ThreadPool& pool);

}  // namespace ingot::cpu

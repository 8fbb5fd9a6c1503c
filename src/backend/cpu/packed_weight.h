// PackedWeight: a weight in panels (kernels.h), the layout of the matmul kernels. It is made at load time from any
// quant format, using only the format's FormatInfo. Codes and scales are stored exactly, with two exceptions. First, an
// f32 scale or minimum becomes an f16 times the tensor's power of two, which represents any bf16 and any f16 exactly.
// (A zero point times a scale may have more bits: those are rounded away, 2^-12 of the minimum at most.) Second,
// F8_E4M3 has no codes, so it is rounded to int8 with a scale for each 32 elements, as Q8_0 is made. (That costs 0.5 %
// of a standard deviation; the 3 mantissa bits of E4M3 cost 2.6 %.) F16 weights that are all bf16 numbers are stored as
// BF16 if the core multiplies bf16. A format without a matching kernel is stored as f32.
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
  int64_t n_panels = 0;  // in each expert
  int64_t panel_bytes = 0;
  const TileFn* tiles = nullptr;
  int max_tile = 0;       // tokens
  bool widens = false;    // 16-bit numbers that are multiplied in f32
  Dense dense = Dense::kF32;
  float factor = 1;       // common factor of all scales, a power of two
  ActLayout activations;  // the layout of packed activations
  uint8_t codebook[16] = {};
  Memory memory;

  const uint8_t* panels() const { return memory.data(); }
};

// The number type in which a matmul with weights of this format multiplies: "int8", "bf16" or "f32".
const char* multiplies_as(Format format, const Kernels& kernels);

// The bytes that pack_weight allocates for a weight of this shape.
size_t packed_bytes(const Weight& shape);

PackedWeight pack_weight(const Weight& host, const Kernels& kernels, ThreadPool& pool);

}  // namespace ingot::cpu

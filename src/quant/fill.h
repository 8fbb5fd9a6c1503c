// Valid random weights of any format, made fast: for models of a known shape with no file (`ingot bench --shape`) and
// for tests of operators.
#pragma once
#include "quant/format.h"

namespace ingot {

// Writes n_blocks blocks whose weights have mean 0 and deviation sigma, roughly: every bit pattern of the codes and
// inner scales occurs. The same seed gives the same bytes on every machine. Threads that share a tensor take a seed
// each.
void fill_random(Format format, uint64_t seed, uint8_t* blocks, int64_t n_blocks, float sigma);

}  // namespace ingot

// Generates valid random weights of any format quickly, for models without a file (`ingot bench --shape`) and for tests
// of ops.
#pragma once
#include "quant/format.h"

namespace ingot {

// Writes n_blocks blocks whose weights have a mean of about 0 and a deviation of about sigma; every bit pattern of the
// codes and inner scales occurs. The same seed gives the same bytes on every machine. Threads that share a tensor use
// different seeds.
void fill_random(Format format, uint64_t seed, uint8_t* blocks, int64_t n_blocks, float sigma);

}  // namespace ingot

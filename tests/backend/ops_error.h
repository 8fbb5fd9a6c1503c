// How far a backend's results may lie from ref's, relative to their own root mean square, and why no less is allowed.
#pragma once
#include "quant/format.h"

namespace ingot {

// f32 arithmetic in another order than ref's, which sums in double.
inline constexpr double kFloatError = 1e-5;
// Keys and values in f16, computed in another order first: f32 sums differ by some 1e-7 of a deviation, f16 has steps of 2^-10 of
// a value, so about one value in a thousand is rounded to the other neighbour. Root mean square: sqrt(1e-3) * 2^-11 or so, 2e-5,
// and ten times that allowed, since one output shares its values with few others.
inline constexpr double kHalfError = 2e-4;
// But the element that is hit errs by up to the whole step, however rare it is: the first token of a sequence sees nothing but its
// own value. Values deviate by 1, or with a bias by sqrt(2), so all are under 8 (5.6 deviations), where a step is 2^-8. A key that
// is hit moves a score by q * step / sqrt(head_dim): an eighth of that and less.
inline constexpr double kF16Flip = 1.125 / 256;

// Error of a product with weights of a format, for any activations. Quantized formats take them in int8 with a scale for each 32: of
// normal values the largest of 32 is about 2.1 deviations, so a step is 2.1 / 127 and its rounding error 0.0048 deviations, which
// random weights carry to the output unchanged: 0.0048 expected. How much of it one token's output gets is up to chance, the more
// so where a group's weights share a minimum; over some hundred groups of 32 it averages out, and twice is allowed. bf16 weights may
// take bf16 activations: 2^-9 / sqrt(3) relative, 0.0011 expected. Dense f32 and f16 are multiplied in f32.
//
// Most cases have activations that need no rounding (OpRig::activations) and allow only kFloatError; but where the weights
// themselves become int8 there is their own rounding: of random bytes taken for F8_E4M3 the largest of 32 is some 4 deviations, its
// step 4 / 127, the error 0.0094 of a deviation, and three times as much is allowed: in a group one weight may outweigh all others, and
// chance gives it a small activation, or the product of two results a large factor.
// Scales that no f16 holds, of which there are those of NVFP4 with another for the whole tensor, are rounded to one: 2^-11 at most, and
// four times that allowed, since a row's few groups may nearly cancel.
inline double weight_error(Format format) {
  if (format == Format::NVFP4_SCALED) return 0x1p-9;
  return format == Format::F8_E4M3 ? 0.028 : kFloatError;
}
inline double format_error(Format format) {
  if (format == Format::F8_E4M3) return 0.018;
  if (info(format).unpack != nullptr) return 0.010;
  return format == Format::BF16 ? 0.004 : kFloatError;
}

}  // namespace ingot

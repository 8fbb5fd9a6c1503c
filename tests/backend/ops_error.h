// How much a backend's results may differ from ref's, relative to their own root mean square, and the reasons for these
// limits.
#pragma once
#include <cmath>
#include <vector>

#include "quant/format.h"

namespace ingot {

// f32 arithmetic in another order than ref's, which sums in double.
inline constexpr double kFloatError = 1e-5;
// Keys and values are stored in f16 after f32 sums in another order. The f32 sums differ by about 1e-7 of a deviation,
// and f16 has steps of 2^-10 of a value. So about one value in a thousand is rounded to the other neighbour. The root
// mean square is about sqrt(1e-3) * 2^-11 = 2e-5. Ten times that is allowed, because an output shares its values with
// few others.
inline constexpr double kHalfError = 2e-4;
// The affected element still errs by up to a whole step, because the first token of a sequence sees only its own value.
// Values have deviation 1, or sqrt(2) with a bias, so all are below 8 (5.6 deviations), where a step is 2^-8. An
// affected key changes a score by q * step / sqrt(head_dim), at most an eighth of a step.
inline constexpr double kF16Flip = 1.125 / 256;

// Error of dense f16 and bf16 weights. They may become integers up to 8191, and their activations integers up to 8128,
// with a scale for each 32: 2.1 / 8191 / sqrt(12) each, 0.000105 expected together. Twice is allowed.
inline constexpr double kInt16Error = 2.1e-4;
inline bool is_half(Format format) { return format == Format::F16 || format == Format::BF16; }
// Error of numbers that become bf16: 2^-9 / sqrt(3) of each, 0.0011 expected; 0.0016 if weights and activations do.
// Twice is allowed.
inline constexpr double kBf16Error = 0.0033;
// Error of a product whose activations need no rounding (OpRig::activations), as in most cases: usually kFloatError.
// Weights that become int8 have their own rounding error. For random bytes read as F8_E4M3, the largest of 32 is about
// 4 deviations, the step 4 / 127, and the error 0.0094 of a deviation. Three times as much is allowed, because one
// weight of a group may outweigh all others, and by chance that weight may get a small activation, or the product of
// two results a large factor. Scales that f16 cannot hold exactly (NVFP4 with another scale for the whole tensor) are
// rounded to f16: 2^-11 at most. Four times that is allowed, because the few groups of a row may nearly cancel.
inline double weight_error(Format format) {
  if (format == Format::NVFP4_SCALED) return 0x1p-9;
  if (is_half(format)) return kInt16Error;
  return is_float8(info(format)) ? 0.028 : kFloatError;
}
// Error of a product with any activations. For quantized formats, activations become int8 with a scale for each 32. The
// largest of 32 normal values is about 2.1 deviations, so a step is 2.1 / 127 and its rounding error 0.0048 deviations.
// Random weights pass that error on to the output unchanged: 0.0048 expected. The error of one token's output varies by
// chance, more so if a group's weights share a minimum. It averages out over some hundred groups of 32, and twice is
// allowed. bf16 weights may have bf16 activations. Dense f32 is multiplied in f32.
inline double format_error(Format format) {
  if (is_float8(info(format))) return 0.018;
  if (info(format).unpack != nullptr) return 0.010;
  return format == Format::BF16 ? kBf16Error : weight_error(format);
}

// Root mean square of the error relative to that of `want`. Infinite if an element is not finite.
inline double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double squares = 0, error_squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = double{got[i]} - want[i];
    if (!std::isfinite(error)) return INFINITY;
    squares += double{want[i]} * want[i], error_squares += error * error;
  }
  return std::sqrt(error_squares / squares);
}

}  // namespace ingot

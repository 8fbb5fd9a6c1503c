// The discrete Fourier transform of several sequences of 400 complex numbers side by side, in double precision
// (Stockham's algorithm with radices 4, 4, 5 and 5, so the result is in order).
#pragma once

namespace ingot {

inline constexpr int kFourierLength = 400;
inline constexpr int kFourierLanes = 4;  // sequences side by side

struct FourierRows {
  alignas(64) double re[kFourierLength * kFourierLanes];  // [kFourierLength, kFourierLanes]
  alignas(64) double im[kFourierLength * kFourierLanes];
};

// Transforms x in place. scratch: overwritten.
void fourier_400(FourierRows& x, FourierRows& scratch);

}  // namespace ingot

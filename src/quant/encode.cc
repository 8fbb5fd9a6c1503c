// One rounding rule for each kind of format, chosen by its constants; where the codes go in the block is the format's
// own `pack`.
#include "quant/encode.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

// NaN gives 0.
uint8_t truncate_to_code(float value, float max_code) {
  return static_cast<uint8_t>(value > 0.0f ? std::min(value, max_code) : 0.0f);
}

float reciprocal(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

// The smallest value is code 0 and the largest is the last code.
template <class T>
void encode_with_min(const float* x, uint8_t* block) {
  constexpr float max_code = T::levels - 1;
  const auto [min, max] = std::minmax_element(x, x + T::block_size);
  const float d = (*max - *min) / max_code, inverse = reciprocal(d);
  uint8_t codes[T::block_size];
  for (int i = 0; i < T::block_size; ++i) codes[i] = truncate_to_code((x[i] - *min) * inverse + 0.5f, max_code);
  T::pack(codes, d, *min, block);
}

// The value of largest magnitude, with its sign, is code 0: the side that has one level more.
template <class T>
void encode_signed_max(const float* x, uint8_t* block) {
  float max = 0;
  for (int i = 0; i < T::block_size; ++i) {
    if (std::fabs(x[i]) > std::fabs(max)) max = x[i];
  }
  const float d = max / -T::zero, inverse = reciprocal(d);
  uint8_t codes[T::block_size];
  for (int i = 0; i < T::block_size; ++i) {
    const float shifted = x[i] * inverse + (T::zero + 0.5f);
    codes[i] = truncate_to_code(shifted, T::levels - 1);
  }
  T::pack(codes, d, 0, block);
}

// Eight bits have levels to spare: the largest magnitude is 127 on either side.
template <class T>
void encode_absmax(const float* x, uint8_t* block) {
  float max = 0;
  for (int i = 0; i < T::block_size; ++i) max = std::max(max, std::fabs(x[i]));
  const float d = max / 127, inverse = reciprocal(d);
  uint8_t codes[T::block_size];
  for (int i = 0; i < T::block_size; ++i) {
    codes[i] = truncate_to_code(std::round(x[i] * inverse) + T::zero, T::levels - 1);
  }
  T::pack(codes, d, 0, block);
}

template <class T>
void encode_block(const float* x, uint8_t* block) {
  if constexpr (requires { &T::encode; }) {
    T::encode(x, block);
  } else if constexpr (T::has_min) {
    encode_with_min<T>(x, block);
  } else if constexpr (T::zero == 128) {
    encode_absmax<T>(x, block);
  } else {
    encode_signed_max<T>(x, block);
  }
}

}  // namespace

void encode_row(Format format, const float* x, void* row, int64_t n_elements) {
  const FormatInfo& f = info(format);
  CHECK_EQ(n_elements % f.block_size, 0);
  visit(format, [&](auto type) {
    using T = decltype(type);
    if constexpr (
        requires { &T::encode; } || requires { &T::pack; }) {
      uint8_t* block = static_cast<uint8_t*>(row);
      for (int64_t i = 0; i < n_elements; i += T::block_size, block += T::block_bytes) encode_block<T>(x + i, block);
    } else {
      throw Error("ingot reads {} but cannot write it; choose F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1", T::name);
    }
  });
}

}  // namespace ingot

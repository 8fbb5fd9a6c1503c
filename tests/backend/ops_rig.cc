#include "ops_rig.h"

namespace ingot {

// The sum of four uniform numbers from one draw.
float OpRig::normal() {
  const uint64_t bits = random_();
  const auto sum = static_cast<int>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
  return static_cast<float>(sum - 2 * 0xFFFF) * (1.7320508f / 65536.0f);
}

Tensor OpRig::uploaded(int64_t rows, int64_t cols, const std::vector<float>& host) {
  const Tensor t = backend_.alloc(DType::kF32, rows, cols);
  backend_.upload(t, host.data());
  return t;
}

Tensor OpRig::values(int64_t rows, int64_t cols, float deviation, float mean) {
  std::vector<float> host(rows * cols);
  for (float& v : host) v = mean + deviation * normal();
  return uploaded(rows, cols, host);
}

Tensor OpRig::activations(int64_t rows, int64_t cols) {
  std::vector<float> host(rows * cols);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < cols; begin += 32) {
      const int64_t n = std::min<int64_t>(32, cols - begin);
      float* group = host.data() + row * cols + begin;
      for (int64_t i = 0; i < n; ++i) group[i] = std::clamp(std::nearbyint(45.0f * normal()), -127.0f, 127.0f);
      group[random_() % n] = random_() % 2 == 0 ? 127.0f : -127.0f;
      const float unit = std::ldexp(1.0f, -7 + static_cast<int>(random_() % 3));
      for (int64_t i = 0; i < n; ++i) group[i] *= unit;
    }
  }
  return uploaded(rows, cols, host);
}

Tensor OpRig::output(int64_t rows, int64_t cols) {
  return uploaded(rows, cols, std::vector<float>(rows * cols, std::numeric_limits<float>::quiet_NaN()));
}

}  // namespace ingot

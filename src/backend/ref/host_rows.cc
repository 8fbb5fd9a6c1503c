#include "backend/ref/host_rows.h"

#include <exception>

#include "base/half.h"

namespace ingot {
namespace {

// widen converts elements of a 16-bit type to f32; round_to converts f32 back.
void widen(float* to, const uint16_t* from, size_t n, DType dtype) {
  for (size_t i = 0; i < n; ++i) to[i] = dtype == DType::kF16 ? float_from_f16(from[i]) : float_from_bf16(from[i]);
}
void round_to(uint16_t* to, const float* from, size_t n, DType dtype) {
  for (size_t i = 0; i < n; ++i) to[i] = dtype == DType::kF16 ? f16_from_float(from[i]) : bf16_from_float(from[i]);
}

}  // namespace

Tensor HostRows::copy_of(const Tensor& t, bool is_read, bool is_written) {
  if (!t || backend_.is_host()) return t;
  const auto n = static_cast<size_t>(t.rows * t.cols);
  const bool is_half = t.dtype == DType::kF16 || t.dtype == DType::kBF16;
  Copy& copy = copies_.emplace_back(Copy{t, std::vector<char>(n * 4), is_written});
  if (is_read && is_half) {
    std::vector<uint16_t> halves(n);
    backend_.download(halves.data(), t);
    widen(reinterpret_cast<float*>(copy.bytes.data()), halves.data(), n, t.dtype);
  } else if (is_read) {
    backend_.download(copy.bytes.data(), t);
  }
  return {copy.bytes.data(), is_half ? DType::kF32 : t.dtype, t.rows, t.cols, t.cols};
}

Tensor HostRows::in(const Tensor& t) { return copy_of(t, true, false); }
Tensor HostRows::out(const Tensor& t) { return copy_of(t, false, true); }
Tensor HostRows::inout(const Tensor& t) { return copy_of(t, true, true); }

HostRows::~HostRows() noexcept(false) {
  if (std::uncaught_exceptions() > 0) return;
  for (Copy& copy : copies_) {
    if (!copy.is_written) continue;
    const Tensor& t = copy.device;
    if (dtype_bytes(t.dtype) == 4) {
      backend_.upload(t, copy.bytes.data());
      continue;
    }
    std::vector<uint16_t> halves(static_cast<size_t>(t.rows * t.cols));
    round_to(halves.data(), reinterpret_cast<const float*>(copy.bytes.data()), halves.size(), t.dtype);
    backend_.upload(t, halves.data());
  }
}

}  // namespace ingot

#include <algorithm>
#include <cmath>

#include "backend/cuda/cuda_backend.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;
using cuda::Memory;

// The best of several runs of two tests: reading a gigabyte, and a product of matrices with 8192 (f16) or 4096 (f32)
// rows.
Peak CudaBackend::measure_peak(Format) {
  core_.device.make_current();
  constexpr size_t kBytes = size_t{1} << 30;
  const int64_t n = core_.act == DType::kF16 ? 8192 : 4096;
  const size_t matrix = static_cast<size_t>(n * n) * dtype_bytes(core_.act);
  const Memory sum(sizeof(float)), data(std::max(kBytes, 3 * matrix));
  const auto n_elements = static_cast<int64_t>(data.size() / dtype_bytes(core_.act));
  cuda::fill_noise({data.data(), core_.act, 1, n_elements, n_elements}, core_.device);
  check_launch("fill_noise");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  const auto best_seconds = [&](auto&& work) {
    float best = INFINITY;
    for (int i = 0; i < 8; ++i) {
      check(cudaEventRecord(begin, core_.device.stream()), "cudaEventRecord");
      work();
      check(cudaEventRecord(end, core_.device.stream()), "cudaEventRecord");
      check(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      best = std::min(best, ms * 1e-3f);
    }
    return static_cast<double>(best);
  };
  Peak peak{.matmul_kind = core_.act == DType::kF16 ? "f16" : "f32"};
  peak.read_gb_s = kBytes * 1e-9 / best_seconds([&] {
                     cuda::read_all(data.data(), kBytes, static_cast<float*>(sum.data()), core_.device);
                   });
  auto* base = static_cast<char*>(data.data());
  const Tensor x{base, core_.act, n, n, n}, y{base + 2 * matrix, core_.act, n, n, n};
  const double seconds = best_seconds([&] { products_.dense().run(y, x, base + matrix, 1.0f, false, core_.device); });
  peak.matmul_gflop_s = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) * 1e-9 / seconds;
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return peak;
}

}  // namespace ingot

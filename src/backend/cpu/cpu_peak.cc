// Measures the most that this machine can do with the backend's own threads and instructions: the 100 per cent of
// benchmark tables. Reading walks through far more memory than the caches hold. Multiplying runs, on registers, the
// instruction that the matmul kernels use for the format.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/system.h"

namespace ingot {
namespace {

// The best rate of several tries: the total of work(task) over n_tasks, in 10^9 a second. Other processes may use the
// machine at the same time, so the best try is the one with the least disturbance.
template <class Work>
double best_rate(ThreadPool& pool, int64_t n_tasks, Work&& work) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  std::vector<double> done(n_tasks);
  const auto deadline = Clock::now() + std::chrono::milliseconds(250);
  for (int i = 0; i < 5 || Clock::now() < deadline; ++i) {
    const auto start = Clock::now();
    pool.parallel_for(n_tasks, [&](int64_t task, int) { done[task] = work(task); });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    double total = 0;
    for (const double d : done) total += d;
    best = std::max(best, total / seconds * 1e-9);
  }
  return best;
}

// 512 MiB is many times the size of any cache. A small machine reads a fourth of its free memory, at least 64 MiB.
int64_t bytes_to_read() {
  constexpr int64_t kWanted = int64_t{512} << 20, kLeast = int64_t{64} << 20;
  return std::clamp(static_cast<int64_t>(std::min<size_t>(available_memory_bytes() / 4, kWanted)), kLeast, kWanted);
}

}  // namespace

Peak CpuBackend::measure_peak(Format weights) {
  constexpr int64_t kPiece = 4 << 20;
  constexpr int64_t kIterations = 20000;  // about 50 microseconds
  Peak peak;
  {
    const int64_t n_pieces = bytes_to_read() / kPiece;
    const cpu::Memory memory(static_cast<size_t>(kPiece * n_pieces));
    pool_.parallel_for(n_pieces, [&](int64_t i, int) { std::memset(memory.data() + i * kPiece, 1, kPiece); });
    peak.read_gb_s =
        best_rate(pool_, n_pieces, [&](int64_t i) { return kernels_.peak_read(memory.data() + i * kPiece, kPiece); });
  }
  peak.matmul_kind = cpu::multiplies_as(weights, kernels_);
  const auto multiply = peak.matmul_kind == "int8"    ? kernels_.peak_int8
                        : peak.matmul_kind == "int16" ? kernels_.peak_int16
                        : peak.matmul_kind == "bf16"  ? kernels_.peak_bf16
                                                      : kernels_.peak_f32;
  peak.matmul_gflop_s = best_rate(pool_, int64_t{16} * pool_.size(), [&](int64_t) { return multiply(kIterations); });
  return peak;
}

}  // namespace ingot

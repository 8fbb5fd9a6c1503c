#include "backend/peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/memory.h"
#include "base/threads.h"

namespace ingot {
namespace {

// The best rate of several tries: total of work(task) over n_tasks, in 10^9 a second. Others may be using the machine, and a
// try without them is what is asked for.
template <class Work>
double best_rate(ThreadPool& pool, int64_t n_tasks, Work&& work) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  std::vector<double> done(n_tasks);
  const auto deadline = Clock::now() + std::chrono::milliseconds(120);
  for (int i = 0; i < 3 || Clock::now() < deadline; ++i) {
    const auto start = Clock::now();
    pool.parallel_for(n_tasks, [&](int64_t task, int) { done[task] = work(task); });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    double total = 0;
    for (const double d : done) total += d;
    best = std::max(best, total / seconds * 1e-9);
  }
  return best;
}

}  // namespace

MachinePeak measure_peak(int n_threads, const std::string& isa) {
  const cpu::Kernels& kernels = cpu::choose_kernels(isa);
  ThreadPool pool(n_threads);
  constexpr int64_t kPiece = 4 << 20, kPieces = 64;
  constexpr int64_t kIterations = 20000;  // about 50 microseconds
  const cpu::Memory memory(kPiece * kPieces);
  pool.parallel_for(kPieces, [&](int64_t i, int) { std::memset(memory.data() + i * kPiece, 1, kPiece); });
  MachinePeak peak;
  peak.read_gb_s = best_rate(pool, kPieces, [&](int64_t i) { return kernels.peak_read(memory.data() + i * kPiece, kPiece); });
  peak.f32_gflop_s = best_rate(pool, 16 * pool.size(), [&](int64_t) { return kernels.peak_f32(kIterations); });
  peak.int8_gop_s = best_rate(pool, 16 * pool.size(), [&](int64_t) { return kernels.peak_int8(kIterations); });
  return peak;
}

}  // namespace ingot

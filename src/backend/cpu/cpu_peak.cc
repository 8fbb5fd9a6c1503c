// Measures the most that this machine can do with the backend's own threads and instructions: the 100 per cent of
// benchmark tables. Reading walks through far more memory than the caches hold. Multiplying runs, on registers, the
// instruction that the matmul kernels use for the format.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rates.h"
#include "base/system.h"

namespace ingot {
namespace {

// 512 MiB is many times the size of any cache. A small machine reads a fourth of its free memory, at least 64 MiB.
int64_t bytes_to_read() {
  constexpr int64_t kWanted = int64_t{512} << 20, kLeast = int64_t{64} << 20;
  return std::clamp(static_cast<int64_t>(std::min<size_t>(available_memory_bytes() / 4, kWanted)), kLeast, kWanted);
}

}  // namespace

Peak CpuBackend::measure_peak(Format weights) {
  constexpr int64_t kPiece = 4 << 20;
  constexpr int64_t kIterations = 20000;  // about 50 microseconds
  constexpr std::chrono::milliseconds kLeast{250};
  Peak peak;
  {
    const int64_t n_pieces = bytes_to_read() / kPiece;
    const cpu::Memory memory(static_cast<size_t>(kPiece * n_pieces));
    pool_.parallel_for(n_pieces, [&](int64_t i, int) { std::memset(memory.data() + i * kPiece, 1, kPiece); });
    const auto read = [&](int64_t i) { return kernels_.peak_read(memory.data() + i * kPiece, kPiece); };
    peak.read_gb_s = cpu::rate_of(pool_, n_pieces, kLeast, read).best;
  }
  peak.matmul_kind = cpu::multiplies_as(weights, kernels_);
  const auto multiply = peak.matmul_kind == "int8"    ? kernels_.peak_int8
                        : peak.matmul_kind == "int16" ? kernels_.peak_int16
                        : peak.matmul_kind == "bf16"  ? kernels_.peak_bf16
                                                      : kernels_.peak_f32;
  const auto product = [&](int64_t) { return multiply(kIterations); };
  peak.matmul_gflop_s = cpu::rate_of(pool_, int64_t{16} * pool_.size(), kLeast, product).best;
  return peak;
}

}  // namespace ingot

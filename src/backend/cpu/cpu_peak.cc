// Measures the most that this machine can do with the backend's own threads and instructions: the 100 per cent of
// benchmark tables. Reading walks through the weights, as a step does, because caches of hundreds of megabytes hold a
// good part of a small model. Multiplying runs, on registers, the instruction that the matmul kernels use for the
// format.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rates.h"
#include "base/system.h"

namespace ingot {
namespace {

constexpr int64_t kPeakPiece = 4 << 20, kMostPeakPieces = 512;  // 2 GiB
constexpr size_t kFewWeights = size_t{64} << 20;

using Piece = std::span<const uint8_t>;

void add_pieces(std::vector<Piece>& pieces, Piece all) {
  for (size_t at = 0; at < all.size(); at += kPeakPiece)
    pieces.push_back(all.subspan(at, std::min<size_t>(kPeakPiece, all.size() - at)));
}

}  // namespace

// For models whose weights hardly leave the caches: 512 MiB, or a fourth of the free memory, at least 64 MiB.
cpu::Memory CpuBackend::memory_to_read() {
  constexpr size_t kWanted = size_t{512} << 20;
  cpu::Memory memory(std::clamp(available_memory_bytes() / 4, kFewWeights, kWanted));
  const auto n_pieces = static_cast<int64_t>(memory.size()) / kPeakPiece;
  pool_.parallel_for(n_pieces, [&](int64_t i, int) { std::memset(memory.data() + i * kPeakPiece, 1, kPeakPiece); });
  return memory;
}

Peak CpuBackend::measure_peak(Format weights) {
  constexpr int64_t kIterations = 20000;  // about 50 microseconds
  constexpr std::chrono::milliseconds kLeast{250};
  pool_.use(pool_.size());
  Peak peak;
  {
    const cpu::Memory instead = packed_weight_bytes() < kFewWeights ? memory_to_read() : cpu::Memory();
    std::vector<Piece> pieces;
    add_pieces(pieces, {instead.data(), instead.size()});
    for (const cpu::PackedWeight& w : weights_)
      if (instead.size() == 0 && std::ssize(pieces) < kMostPeakPieces)
        add_pieces(pieces, {w.panels(), w.memory.size()});
    const auto read = [&](int64_t i) { return kernels_.peak_read(pieces[i].data(), std::ssize(pieces[i])); };
    peak.read_gb_s = cpu::rate_of(pool_, std::ssize(pieces), kLeast, read).best;
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

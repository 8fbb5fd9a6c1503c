#include "backend/cuda/matmul/matmul_kernels.h"

#include <algorithm>

#include "backend/cuda/matmul/float8.h"

namespace ingot::cuda {
namespace {

bool dense(const PackedWeight& w) { return w.layout == Layout::kDense; }
bool float8(const PackedWeight& w) { return w.layout == Layout::kFloat8; }
bool codes(const PackedWeight& w) { return !dense(w) && !float8(w); }
bool always(const DeviceLimits&, const PackedWeight&, int64_t) { return true; }
bool never(const DeviceLimits&, const PackedWeight&, int64_t) { return false; }

bool can_stream(const DeviceLimits& device, const PackedWeight& w, int64_t rows) {
  return can_matvec(w) && rows <= (dense(w) ? 1 : float8(w) ? most_float8_rows(device, w.n_in) : kMatvecRows);
}

// From 5 rows on, the tiles kernel is faster, if clusters of blocks can share columns. Without clusters, its blocks
// fill the device only if there are many outputs, and it gains from 9 rows on, where the stream kernel needs a second
// operand of activations.
bool stream_wins(const DeviceLimits& device, const PackedWeight& w, int64_t rows) {
  if (!codes(w) || w.n_in < 2048) return true;
  return device.chip().has_clusters ? rows <= 4 || w.n_out < 512 : rows <= 8 || w.n_out < 8192;
}

bool can_group(const DeviceLimits& device, const PackedWeight& w, int64_t rows) {
  constexpr int64_t kMaxRows = 8192;  // all rows are multiplied at the same time, by blocks with up to 128 of them
  return rows <= kMaxRows && can_warpgroup_matmul(device, w);
}
// With so few rows, our kernels are better than cuBLASLt with a copy of the weight, even if they take somewhat longer,
// because they also compute SiLU and sums, and several products in one launch. Codes of 8 bits gain less, because they
// are half as long as the copy.
int64_t few_rows_of_halves(const PackedWeight& w) { return has_bytes(w.layout) ? 96 : kFewRowsOfHalves; }

// Blocks of this kernel are long, and begin and end slowly. So the kernel needs matrices that fill the device, and
// neither few rows nor thousands.
bool group_wins(const DeviceLimits&, const PackedWeight& w, int64_t rows) {
  const int64_t size = w.n_in * w.n_out;
  const bool wide = w.n_out >= 8192, large = size >= 32 << 20;
  if (size < 8 << 20 || (w.n_out < 4096 && rows <= 128)) return false;
  const int64_t max_rows = w.halves != nullptr ? few_rows_of_halves(w) : wide ? 1024 : large ? 640 : 512;
  return rows > (wide ? 32 : large ? 16 : 64) && rows <= max_rows;
}

bool can_tile(const DeviceLimits&, const PackedWeight& w, int64_t) { return can_tile_matmul(w); }
bool can_tile_codes(const DeviceLimits&, const PackedWeight& w, int64_t) { return codes(w) && can_tile_matmul(w); }
bool tile_wins(const DeviceLimits& device, const PackedWeight& w, int64_t rows) {
  if (!codes(w)) return false;
  // Clusters of blocks share the columns of narrow matrices.
  const bool is_narrow = device.chip().has_clusters && w.n_out <= 4096;
  if (rows <= 32 || (is_narrow && rows <= 64)) return w.n_in >= 2048 && w.n_out >= 512;
  return rows <= (can_warpgroup_matmul(device, w) ? 64 : 128) && w.n_in >= 4096 && w.n_out >= 1024;
}

bool can_float8(const DeviceLimits& device, const PackedWeight& w, int64_t) {
  return float8(w) && device.multiplies_float8;
}
bool has_halves(const DeviceLimits&, const PackedWeight& w, int64_t) { return w.halves != nullptr; }
bool can_decode(const DeviceLimits&, const PackedWeight& w, int64_t) { return !dense(w); }
bool is_dense(const DeviceLimits&, const PackedWeight& w, int64_t) { return dense(w); }

constexpr MatmulKernel kKernels[] = {
    {"stream", can_stream, stream_wins, matvec},              // matvec.cu, dot_rows.cu, dot_codes.cu, float8_rows.cu
    {"warpgroups", can_group, group_wins, warpgroup_matmul},  // warpgroup_matmul.cu
    {"tiles", can_tile, tile_wins, tile_matmul},              // tile_matmul.cu
    {.name = "float8, cuBLASLt", .can = can_float8, .wins = always, .float8 = true},  // float8.cu, dense_matmul.cc
    {.name = "halves, cuBLASLt", .can = has_halves, .wins = always, .halves = true},  // unpack.cu, dense_matmul.cc
    {"decode, cuBLASLt", can_decode, always, nullptr, true},                          // unpack.cu, dense_matmul.cc
    {"cuBLASLt", is_dense, always, nullptr},  // dense_matmul.cc; if cuBLASLt refuses: plain_matmul.cu
    {.name = "stream for this size", .can = can_stream, .wins = never, .run = matvec, .specialised = true},
    {.name = "tiles for this size", .can = can_tile_codes, .wins = never, .run = tile_matmul, .specialised = true},
    {.name = "warpgroups for this size", .can = can_group, .wins = never, .run = warpgroup_matmul, .specialised = true},
};

}  // namespace

std::span<const MatmulKernel> matmul_kernels() { return kKernels; }

const MatmulKernel& matmul_kernel_for(const DeviceLimits& device, const PackedWeight& w, int64_t rows,
                                      bool batch_invariant) {
  for (const MatmulKernel& kernel : kKernels) {
    if (batch_invariant && (kernel.float8 || kernel.halves || (kernel.run != tile_matmul && kernel.run != nullptr)))
      continue;
    if (kernel.can(device, w, rows) && (batch_invariant || kernel.wins(device, w, rows))) return kernel;
  }
  CHECK(false && "every weight is codes or dense");
}

bool TimedChoice::knows(const PackedWeight& w) const {
  return std::ranges::find(choices_, kind_of(w), &Choice::kind) != choices_.end();
}

void TimedChoice::add(const DeviceLimits& device, const PackedWeight& w, int64_t most_rows, const Time& time) {
  constexpr double kMargin = 0.95, kHopeless = 2, kMoreLaunches = 4.0 / 3;
  constexpr int64_t kMany = 128;  // from this number on, more rows only help cuBLASLt
  Choice choice{.kind = kind_of(w)};
  std::vector<const MatmulKernel*> hopeless;
  for (size_t i = 0; i < std::size(kRows) && kRows[i] <= most_rows; ++i) {
    const MatmulKernel& listed = matmul_kernel_for(device, w, kRows[i], false);
    const double to_beat = time(listed, kRows[i]) * kMargin;
    double best = to_beat;
    for (const MatmulKernel& kernel : kKernels) {
      if (&kernel == &listed || kernel.specialised || !kernel.can(device, w, kRows[i]) ||
          std::ranges::find(hopeless, &kernel) != hopeless.end())
        continue;
      const bool needs_launches = kernel.halves && listed.run != nullptr && kRows[i] <= few_rows_of_halves(w);
      const double us = time(kernel, kRows[i]) * (needs_launches ? kMoreLaunches : 1);
      if (us < best) best = us, choice.faster[i] = &kernel;
      if (kRows[i] >= kMany && us > kHopeless * to_beat && kernel.run != nullptr) hopeless.push_back(&kernel);
    }
  }
  choices_.push_back(choice);
}

const MatmulKernel& TimedChoice::kernel_for(const DeviceLimits& device, const PackedWeight& w, int64_t rows) const {
  const auto choice = std::ranges::find(choices_, kind_of(w), &Choice::kind);
  const auto place = std::ranges::lower_bound(kRows, rows) - std::begin(kRows);
  const MatmulKernel* faster =
      choice == choices_.end() || place == std::ssize(kRows) || rows < 5 ? nullptr : choice->faster[place];
  return faster != nullptr && faster->can(device, w, rows) ? *faster : matmul_kernel_for(device, w, rows, false);
}

}  // namespace ingot::cuda

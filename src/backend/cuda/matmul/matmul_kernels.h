// Which kernel a product goes to: a list in order, of which the first that can take it and wins there does, unless what
// was timed when the model was loaded says otherwise. `ingot inspect --kernels` shows the choice for a model's
// matrices, and times it against the others.
#pragma once
#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {

struct MatmulKernel {
  const char* name;
  bool (*can)(const DeviceLimits& device, const PackedWeight& w, int64_t rows);
  bool (*wins)(const DeviceLimits& device, const PackedWeight& w,
               int64_t rows);  // where it can, on an H200 (docs/performance.md)
  // Several jobs, a gate, sums: all that a Matvec may ask. Null: plain products only, which are CudaBackend::product's.
  void (*run)(const Matvec& m, Device& device);
  bool decodes = false;      // without `run`: whether it takes rows of halves of what are codes
  bool specialised = false;  // compiled for the product, by what the list has for all (specialised.h)
};

std::span<const MatmulKernel> matmul_kernels();

// Rows of a slice of decoded weights, which stays in the L2 cache until the product reads it.
inline constexpr int64_t kDecodedBytes = 48 << 20;
inline int64_t decoded_rows(int64_t n_out, int64_t row_bytes) {
  return std::min(n_out, std::max<int64_t>(256, kDecodedBytes / row_bytes / 256 * 256));
}

// By the list alone. `alone`: the same for any number of rows, a row's numbers not depending on it.
const MatmulKernel& matmul_kernel_for(const DeviceLimits& device, const PackedWeight& w, int64_t rows, bool alone);

// The choice by time. A weight of each kind is timed by some counts of rows, each for all up to it from the one before.
// Another kernel than the list's must be faster by a twentieth, so that a machine nearly always chooses alike.
class TimedChoice {
 public:
  // Microseconds of a product of so many rows by that kernel.
  using Time = std::function<double(const MatmulKernel& kernel, int64_t rows)>;

  // Of weights of w's kind; rows from 5 (fewer are the stream's anywhere) up to most_rows.
  void add(const DeviceLimits& device, const PackedWeight& w, int64_t most_rows, const Time& time);
  bool knows(const PackedWeight& w) const;
  const MatmulKernel& kernel_for(const DeviceLimits& device, const PackedWeight& w, int64_t rows) const;

 private:
  static constexpr int64_t kRows[] = {8, 16, 32, 64, 128, 256, 512, 1024, 2048};

  struct Kind {
    Layout layout;
    bool has_min, group16;
    int64_t n_out, n_in;
    bool operator==(const Kind&) const = default;
  };
  struct Choice {
    Kind kind;
    const MatmulKernel* faster[std::size(kRows)] = {};  // than the list's; null: none is
  };
  static Kind kind_of(const PackedWeight& w) { return {w.layout, w.has_min, w.group16, w.n_out, w.n_in}; }

  std::vector<Choice> choices_;
};

}  // namespace ingot::cuda

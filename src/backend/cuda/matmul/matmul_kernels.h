// Chooses the kernel of a product. From an ordered list, the first kernel is used that supports the product and wins
// for its size, unless timings made at model load favour another kernel. `ingot inspect --kernels` shows the choice for
// a model's matrices, and times it against the other kernels.
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
               int64_t rows);  // where it wins, on an H200 (docs/notes)
  // Supports all options of a Matvec: several jobs, a gate, sums. Null: plain products only, which Products::run
  // computes.
  void (*run)(const Matvec& m, Device& device) = nullptr;
  bool decodes = false;      // if `run` is null: the kernel needs the weight decoded to rows of halves
  bool float8 = false;       // if `run` is null: the kernel needs the activations as 8-bit floats
  bool halves = false;       // if `run` is null: the kernel reads PackedWeight::halves
  bool specialised = false;  // compiled for the product from one of the list's general kernels (specialised.h)
};

std::span<const MatmulKernel> matmul_kernels();

// Up to so many rows, the list prefers our kernels to cuBLASLt with a copy in f16, where they support the product.
inline constexpr int64_t kFewRowsOfHalves = 128;

// Bytes of a slice of decoded weights. The slice stays in the L2 cache until the product reads it.
inline constexpr int64_t kDecodedBytes = 48 << 20;
inline int64_t decoded_rows(int64_t n_out, int64_t row_bytes) {
  return std::min(n_out, std::max<int64_t>(256, kDecodedBytes / row_bytes / 256 * 256));
}

// The choice by the list alone. With `batch_invariant`, the choice is the same for any number of rows, and the
// results of a row do not depend on the other rows.
const MatmulKernel& matmul_kernel_for(const DeviceLimits& device, const PackedWeight& w, int64_t rows,
                                      bool batch_invariant);

// The choice by time. One weight of each kind is timed with several numbers of rows. Each result also applies to all
// smaller numbers, down to the previous timed number. Another kernel must be a twentieth faster than the list's kernel,
// so that a machine nearly always makes the same choice.
class TimedChoice {
 public:
  // Microseconds of a product with `rows` rows by this kernel.
  using Time = std::function<double(const MatmulKernel& kernel, int64_t rows)>;

  // Times weights of w's kind, from 5 rows (below that, the stream kernel always wins) up to most_rows.
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
    const MatmulKernel* faster[std::size(kRows)] = {};  // than the list's kernel; null: no kernel is faster
  };
  static Kind kind_of(const PackedWeight& w) { return {w.layout, w.has_min, w.group16, w.n_out, w.n_in}; }

  std::vector<Choice> choices_;
};

}  // namespace ingot::cuda

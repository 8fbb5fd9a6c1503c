// Times the kernels of products when a model is loaded.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "backend/cuda/matmul/products.h"
#include "base/log.h"

namespace ingot::cuda {

namespace {

struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

// Matrices whose products take much of a step's time. For other matrices, the list decides.
bool is_worth_timing(const PackedWeight& w) {
  return w.layout != Layout::kDense && w.layout != Layout::kFloat8 && w.n_in * w.n_out >= 1 << 20;
}

}  // namespace

// Microseconds of a product, in the better of two rounds. Each product uses another weight of the same kind, so that
// the weight is not cached.
double Products::time_kernel(const MatmulKernel& kernel, const std::vector<const Weight*>& weights, int64_t rows) {
  static constexpr size_t kProducts = 3;
  const Weight& first = *weights[0];
  const Tensor x{core_.memory.scratch(Scratch::kActCopy).data(), core_.act, rows, first.n_in, first.n_in},
      y{core_.memory.scratch(Scratch::kUp).data(), core_.act, rows, first.n_out, first.n_out};
  const Event begin, end;
  size_t next = 0;
  double best = INFINITY;
  choice_.force(&kernel);
  Input input{x};
  run(y, input, first, {}, false);  // allocates scratch, and loads the kernel to the device
  for (int round = 0; round < 2; ++round) {
    check(cudaEventRecord(begin.event, device_.stream()), "cudaEventRecord");
    for (size_t i = 0; i < kProducts; ++i) run(y, input, *weights[++next % weights.size()], {}, false);
    check(cudaEventRecord(end.event, device_.stream()), "cudaEventRecord");
    check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
    best = std::min(best, 1e3 * double{ms} / kProducts);
  }
  choice_.force(nullptr);
  return best;
}

// Uses the scratch that reserve() allocated.
void Products::time_kernels(int64_t most_rows) {
  const auto is_to_time = [&](const Weight& w) {
    return is_worth_timing(packed(w)) && !choice_.timed().knows(packed(w));
  };
  if (std::ranges::none_of(weights_.of_products(), is_to_time)) return;
  const auto start = std::chrono::steady_clock::now();
  const auto element = static_cast<int64_t>(dtype_bytes(core_.act)),
             n_noise = static_cast<int64_t>(core_.memory.scratch(Scratch::kActCopy).size()) / element;
  fill_noise({core_.memory.scratch(Scratch::kActCopy).data(), core_.act, 1, n_noise, n_noise}, device_);
  for (const Weight& w : weights_.of_products()) {
    if (!is_to_time(w)) continue;
    std::vector<const Weight*> alike;
    for (const Weight& other : weights_.of_products())
      if (other.format == w.format && other.n_in == w.n_in && other.n_out == w.n_out) alike.push_back(&other);
    const int64_t fit =
        std::min(n_noise / w.n_in, static_cast<int64_t>(core_.memory.scratch(Scratch::kUp).size()) / element / w.n_out);
    choice_.timed().add(device_.limits(), packed(w), std::min(most_rows, fit),
                        [&](const MatmulKernel& kernel, int64_t rows) { return time_kernel(kernel, alike, rows); });
  }
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  log_info("kernels of products were timed in {:.2f} s", took.count());
}

}  // namespace ingot::cuda

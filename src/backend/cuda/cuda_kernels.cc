// Chooses the kernels for the products of a CudaBackend. The choice uses the list of matmul_kernels.cc, timings from
// model loading, and kernels compiled for the model's sizes as they become ready.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "base/log.h"

namespace ingot {

using cuda::check;
using cuda::MatmulKernel;
using cuda::PackedWeight;

void CudaBackend::begin_tuning(const BackendOptions& options) {
  if (!options.kernels.empty() && options.kernels != "tuned" && options.kernels != "fixed")
    throw UsageError("unknown kernels '{}': use tuned or fixed", printable(options.kernels));
  tunes_ = options.kernels != "fixed" && !deterministic_ && act_ == DType::kF16;
  keeps_halves_ = tunes_ && options.copies != "never";
  if (!tunes_) return;
  if (cuda::Nvrtc::get() == nullptr)
    return log_info("NVRTC (libnvrtc.so) was not found: no kernels are compiled for the model's sizes");
  const std::string cache = cache_home();
  specialised_ = std::make_unique<cuda::SpecialisedKernels>(device_.limits(), cache.empty() ? "" : cache + "/kernels");
}

const MatmulKernel& CudaBackend::kernel_for(const Weight& w, int64_t rows) const {
  if (forced_ != nullptr) return *forced_;
  return deterministic_ ? cuda::matmul_kernel_for(device_.limits(), packed(w), rows, true)
                        : timed_.kernel_for(device_.limits(), packed(w), rows);
}

// The specialised kernels, if a product of w may use one of them.
cuda::SpecialisedKernels* CudaBackend::specialised_for(const PackedWeight& w) const {
  return (forced_ != nullptr ? forced_->specialised : is_worth_compiling(w)) ? specialised_.get() : nullptr;
}

std::vector<std::string> CudaBackend::matmul_kernels(const Weight& w, int64_t rows) const {
  const MatmulKernel& chosen = deterministic_ ? cuda::matmul_kernel_for(device_.limits(), packed(w), rows, true)
                                              : timed_.kernel_for(device_.limits(), packed(w), rows);
  std::vector<std::string> names{chosen.name};
  for (const MatmulKernel& kernel : cuda::matmul_kernels()) {
    if (&kernel == &chosen || !kernel.can(device_.limits(), packed(w), rows) || (kernel.specialised && !specialised_))
      continue;
    const bool is_taken =
        kernel.specialised && kernel.run == chosen.run && is_worth_compiling(packed(w));  // as soon as it is compiled
    names.insert(is_taken ? names.begin() : names.end(), kernel.name);
  }
  return names;
}

void CudaBackend::use_matmul_kernel(const std::string& name) {
  device_.make_current();
  drop_graphs();
  const auto kernels = cuda::matmul_kernels();
  const auto found = std::ranges::find(kernels, name, &MatmulKernel::name);
  CHECK(name.empty() || found != kernels.end());
  forced_ = name.empty() ? nullptr : &*found;
}

void CudaBackend::load_ready_kernels() {
  if (specialised_ && specialised_->load_ready()) mark_graphs_stale();
}

void CudaBackend::await_kernels() {
  if (!specialised_) return;
  synchronize();
  specialised_->wait();
  load_ready_kernels();
  if (forced_ != nullptr && specialised_->n_failed() > 0)
    throw Error("{} kernels for the model's sizes could not be compiled", specialised_->n_failed());
}

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
  return w.layout != cuda::Layout::kDense && w.layout != cuda::Layout::kFloat8 && w.n_in * w.n_out >= 1 << 20;
}

}  // namespace

// Microseconds of a product, in the better of two rounds. Each product uses another weight of the same kind, so that
// the weight is not cached.
double CudaBackend::time_kernel(const MatmulKernel& kernel, const std::vector<const Weight*>& weights, int64_t rows) {
  static constexpr size_t kProducts = 3;
  const Weight& first = *weights[0];
  const Tensor x{act_copy_.data(), act_, rows, first.n_in, first.n_in},
      y{up_.data(), act_, rows, first.n_out, first.n_out};
  const Event begin, end;
  size_t next = 0;
  double best = INFINITY;
  forced_ = &kernel;
  Input input{x};
  product(y, input, first, {}, false);  // allocates scratch, and loads the kernel to the device
  for (int round = 0; round < 2; ++round) {
    check(cudaEventRecord(begin.event, device_.stream()), "cudaEventRecord");
    for (size_t i = 0; i < kProducts; ++i) product(y, input, *weights[++next % weights.size()], {}, false);
    check(cudaEventRecord(end.event, device_.stream()), "cudaEventRecord");
    check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
    best = std::min(best, 1e3 * double{ms} / kProducts);
  }
  forced_ = nullptr;
  return best;
}

// Uses the scratch that reserve() allocated.
void CudaBackend::time_kernels(int64_t most_rows) {
  const auto is_to_time = [&](const Weight& w) { return is_worth_timing(packed(w)) && !timed_.knows(packed(w)); };
  if (std::ranges::none_of(factors_, is_to_time)) return;
  const auto start = std::chrono::steady_clock::now();
  const auto element = static_cast<int64_t>(dtype_bytes(act_)),
             n_noise = static_cast<int64_t>(act_copy_.size()) / element;
  cuda::fill_noise({act_copy_.data(), act_, 1, n_noise, n_noise}, device_);
  for (const Weight& w : factors_) {
    if (!is_to_time(w)) continue;
    std::vector<const Weight*> alike;
    for (const Weight& other : factors_)
      if (other.format == w.format && other.n_in == w.n_in && other.n_out == w.n_out) alike.push_back(&other);
    const int64_t fit = std::min(n_noise / w.n_in, static_cast<int64_t>(up_.size()) / element / w.n_out);
    timed_.add(device_.limits(), packed(w), std::min(most_rows, fit),
               [&](const MatmulKernel& kernel, int64_t rows) { return time_kernel(kernel, alike, rows); });
  }
  synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  log_info("kernels of products were timed in {:.2f} s", took.count());
}

}  // namespace ingot

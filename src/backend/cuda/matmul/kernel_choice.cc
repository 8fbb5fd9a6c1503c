#include "backend/cuda/matmul/kernel_choice.h"

#include <algorithm>

#include "backend/cuda/device_weights.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "base/log.h"

namespace ingot::cuda {

namespace {

// For smaller weights, compiling a kernel costs more time than the kernel saves.
bool is_worth_compiling(const PackedWeight& w) { return w.n_in * w.n_out >= 1 << 18; }

bool tunes_by(const BackendOptions& options, const Core& core) {
  if (!options.kernels.empty() && options.kernels != "tuned" && options.kernels != "fixed")
    throw UsageError("unknown kernels '{}': use tuned or fixed", printable(options.kernels));
  return options.kernels != "fixed" && !core.deterministic && core.act == DType::kF16;
}

}  // namespace

KernelChoice::KernelChoice(const Core& core, const BackendOptions& options)
    : core_(core), tunes_(tunes_by(options, core)) {
  if (!tunes_) return;
  if (Nvrtc::get() != nullptr) {
    const std::string cache = cache_home();
    specialised_ = std::make_unique<SpecialisedKernels>(core.device.limits(), cache.empty() ? "" : cache + "/kernels");
  } else {
    log_info("NVRTC (libnvrtc.so) was not found: no kernels are compiled for the model's sizes");
  }
}

const MatmulKernel& KernelChoice::chosen(const Weight& w, int64_t rows) const {
  return core_.deterministic ? matmul_kernel_for(core_.device.limits(), packed(w), rows, true)
                             : timed_.kernel_for(core_.device.limits(), packed(w), rows);
}

const MatmulKernel& KernelChoice::kernel_for(const Weight& w, int64_t rows) const {
  return forced_ != nullptr ? *forced_ : chosen(w, rows);
}

SpecialisedKernels* KernelChoice::specialised_for(const PackedWeight& w) const {
  return (forced_ != nullptr ? forced_->specialised : is_worth_compiling(w)) ? specialised_.get() : nullptr;
}

std::vector<std::string> KernelChoice::names(const Weight& w, int64_t rows) const {
  const MatmulKernel& first = chosen(w, rows);
  std::vector<std::string> names{first.name};
  for (const MatmulKernel& kernel : matmul_kernels()) {
    if (&kernel == &first || !kernel.can(core_.device.limits(), packed(w), rows) ||
        (kernel.specialised && !specialised_))
      continue;
    const bool is_taken =
        kernel.specialised && kernel.run == first.run && is_worth_compiling(packed(w));  // as soon as it is compiled
    names.insert(is_taken ? names.begin() : names.end(), kernel.name);
  }
  return names;
}

void KernelChoice::force(const std::string& name) {
  const auto kernels = matmul_kernels();
  const auto found = std::ranges::find(kernels, name, &MatmulKernel::name);
  CHECK(name.empty() || found != kernels.end());
  forced_ = name.empty() ? nullptr : &*found;
}

bool KernelChoice::load_ready() { return specialised_ && specialised_->load_ready(); }

void KernelChoice::check_compiled() const {
  if (forced_ != nullptr && specialised_->n_failed() > 0)
    throw Error("{} kernels for the model's sizes could not be compiled", specialised_->n_failed());
}

}  // namespace ingot::cuda

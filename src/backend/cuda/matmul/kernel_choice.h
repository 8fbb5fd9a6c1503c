// KernelChoice: the kernel of each product. The choice uses the list of matmul_kernels.h, timings from model loading,
// and kernels compiled for the model's sizes as they become ready.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/cuda/matmul/matmul_kernels.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

class KernelChoice {
 public:
  KernelChoice(const Core& core, const BackendOptions& options);

  bool tunes() const { return tunes_; }  // chooses kernels for this device and the model's sizes
  const MatmulKernel& kernel_for(const Weight& w, int64_t rows) const;
  SpecialisedKernels* specialised() const { return specialised_.get(); }  // null: no kernels are compiled
  SpecialisedKernels* specialised_for(const PackedWeight& w) const;       // if a product of w may use one of them
  std::vector<std::string> names(const Weight& w, int64_t rows) const;    // the default first
  void force(const MatmulKernel* kernel) { forced_ = kernel; }            // for all products; null: none
  void force(const std::string& name);                                    // "": none
  bool load_ready();                                                      // true: there are new kernels
  void check_compiled() const;  // throws Error if a compilation failed and a kernel is forced
  TimedChoice& timed() { return timed_; }

 private:
  const MatmulKernel& chosen(const Weight& w, int64_t rows) const;

  const Core& core_;
  const bool tunes_;
  const MatmulKernel* forced_ = nullptr;
  std::unique_ptr<SpecialisedKernels> specialised_;
  TimedChoice timed_;
};

}  // namespace ingot::cuda

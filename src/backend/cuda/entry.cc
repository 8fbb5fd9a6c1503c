#include "backend/cuda/entry.h"

namespace {

void log_to(ingot::LogSink sink) {
  ingot::set_log_level(ingot::LogLevel::kDebug);
  ingot::set_log_sink(std::move(sink));
}

}  // namespace

const ingot::CudaEntry* ingot_cuda_entry() {
  namespace library = ingot::cuda::library;
  static const ingot::CudaEntry entry{.build = ingot::kCudaBuild,
                                      .create = library::create,
                                      .why_none = library::why_none,
                                      .log_to = log_to,
                                      .fail_allocation = library::fail_allocation,
                                      .allocations_left = library::allocations_left,
                                      .fail_recordings = library::fail_recordings,
                                      .failing_recordings = library::failing_recordings,
                                      .pretend_card = library::pretend_card};
  return &entry;
}

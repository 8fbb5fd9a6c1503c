// A library with libingot-cuda.so's entry whose backend is `ref`, for cuda_library_test.cc.
#include "backend/blocks/plain_layers.h"
#include "backend/cuda/entry.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"

#ifdef FAKE_NVIDIA  // this variant needs a library that the system does not find
extern "C" int fake_nvidia();
#endif

#ifndef FAKE_WITHOUT_ENTRY
namespace {

int n_allocations = -1;

std::unique_ptr<ingot::Backend> create(const ingot::BackendOptions& options) {
  ingot::log_debug("a debug line of the library");
  ingot::log_info("the library creates {}", options.device);
  if (options.device == "cuda:7") throw ingot::UsageError("the library has no GPU 7");
  return ingot::create_ref_backend();
}

std::string why_none() {
#ifdef FAKE_NVIDIA
  if (fake_nvidia() != 42) return "the wrong library";
#endif
  return "";
}

void log_to(ingot::LogSink sink) {
  ingot::set_log_level(ingot::LogLevel::kDebug);
  ingot::set_log_sink(std::move(sink));
}

}  // namespace

extern "C" bool ingot_fake_sees_plain_layers(const ingot::Block& block) { return block.is<ingot::PlainLayersBlock>(); }

const ingot::CudaEntry* ingot_cuda_entry() {
#ifdef FAKE_BUILD
  const char* const build = FAKE_BUILD;
#else
  const char* const build = ingot::kCudaBuild;
#endif
  static const ingot::CudaEntry entry{.build = build,
                                      .create = create,
                                      .why_none = why_none,
                                      .log_to = log_to,
                                      .fail_allocation = [](int n) { n_allocations = n; },
                                      .allocations_left = [] { return n_allocations; },
                                      .fail_recordings = [](int) {},
                                      .failing_recordings = [] { return 0; },
                                      .pretend_card = [](int, int, size_t) {}};
  return &entry;
}
#endif

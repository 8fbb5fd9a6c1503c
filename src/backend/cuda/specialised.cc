#include "backend/cuda/specialised.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/nvrtc.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_start.h"
#include "base/threads.h"

namespace ingot::cuda {
namespace {

constexpr size_t kMaxKernels = 1024;  // kernels of one model; no model needs more

std::string braces_of(const int (&v)[3]) { return fmt::format("{{{}, {}, {}}}", v[0], v[1], v[2]); }

std::string braces_of(const ProductShape& s) {
  return fmt::format(
      "ProductShape{{.n_in = {}, .n_steps = {}, .n_jobs = {}, .n_tiles = {}, .first_tile = {}, .n_out = {}, .zero = "
      "{}, .act = {}, .split = {}, .n_warps = {}, .weight_tiles = {}, .n_stages = {}, .n_tokens = {}, .n_terms = {}, "
      ".n_sums = {}, .n_inputs = {}, .has_norm = {}, .has_bias = {}, .y_f32 = {}, .accumulate = {}, .ends_qkv = {}, "
      ".partial = {}, "
      ".staged = {}, .warms_instruction_cache = {}}}",
      s.n_in, s.n_steps, s.n_jobs, s.n_tiles, braces_of(s.first_tile), braces_of(s.n_out), s.zero, s.act, s.split,
      s.n_warps, s.weight_tiles, s.n_stages, s.n_tokens, s.n_terms, s.n_sums, s.n_inputs, s.has_norm, s.has_bias,
      s.y_f32, s.accumulate, s.ends_qkv, s.partial, s.staged, s.warms_instruction_cache);
}

std::string kind_of(const SpecialisedKernel& k) {
  return fmt::format("matvec_step::Kind<{}, {}, {}>", name_of(k.layout), k.has_min, k.group16);
}

// Source of a kernel that calls `body` with `shape` as its last template argument. `bounds` are the launch bounds.
std::string source(const char* file, const char* params, const std::string& bounds, const std::string& body,
                   const ProductShape& shape) {
  return fmt::format(
      "#include \"backend/cuda/{}.cuh\"\nusing namespace ingot::cuda;\n"
      "extern \"C\" __global__ void __launch_bounds__({}) specialised(const __grid_constant__ {}::Params p) {{\n  {}, "
      "{}>(p);\n}}\n",
      file, bounds, params, body, braces_of(shape));
}

std::string arch_of(const DeviceLimits& device) {
  return fmt::format("sm_{}{}{}", device.major, device.minor, device.chip().code_suffix);
}

}  // namespace

const char* name_of(Layout layout) {
  static constexpr const char* kNames[] = {
      "Layout::kDense",  "Layout::kCodes4",    "Layout::kCodebook4", "Layout::kCodes8",
      "Layout::kFloat8", "Layout::kCodesE2M1", "Layout::kCodesE4M3",
  };
  return kNames[static_cast<size_t>(layout)];
}

std::string source_of(const SpecialisedKernel& k) {
  const ProductShape& s = k.shape;
  const bool gated = s.act >= 0;
  // Bounds for the threads of the launch, and for as many blocks as fit with `max_threads` threads per multiprocessor.
  const auto bounds = [&](int max_threads) {
    return fmt::format("{}, {}", 32 * s.n_warps, max_threads / (32 * s.n_warps));
  };
  switch (k.which) {
    case SpecialisedKernel::kDotCodes:
      return source("matmul/dot_codes", "matvec_tiles", bounds(512),
                    fmt::format("dot_codes_kernel::run<dot_codes_kernel::Kind<{}, {}, {}, {}>",
                                k.layout == Layout::kCodes8, k.has_min, k.group16, k.n),
                    s);
    case SpecialisedKernel::kDotRows:
      return source("matmul/dot_rows", "dot_rows_kernel", "32 * dot_rows_kernel::kWarps, 2",
                    fmt::format("dot_rows_kernel::run<{}, {}", k.n, gated), s);
    case SpecialisedKernel::kMatvec:
      return source("matmul/matvec", "matvec_tiles", bounds(512),
                    fmt::format("matvec_kernel::run<{}, {}, {}", kind_of(k), k.n, gated ? 2 : 1), s);
    case SpecialisedKernel::kTiles:
      return source("matmul/tile_matmul", "matvec_tiles",
                    fmt::format("32 * tile_kernel::kWarps, {}", blocks_at_once(k.n, s.weight_tiles)),
                    fmt::format("tile_kernel::run<{}, {}, {}, {}", kind_of(k), k.n, s.weight_tiles,
                                k.n == 1 && !k.has_min && !k.group16),
                    s);
    case SpecialisedKernel::kWarpgroups:
      return source("matmul/warpgroup_matmul", "warpgroup_kernel", "warpgroup_kernel::kThreads, 1",
                    fmt::format("warpgroup_kernel::run<{}, {}", kind_of(k), k.n), s);
    case SpecialisedKernel::kExpertCodes:
      return source("experts/codes", "expert_codes_kernel", bounds(1024),
                    fmt::format("expert_codes_kernel::run<{}, {}", kind_of(k), k.n), s);
    case SpecialisedKernel::kGrid: return k.source;
  }
  CHECK(false && "every kernel has a source");
}

SpecialisedKernels::SpecialisedKernels(const DeviceLimits& device, std::string folder)
    : most_shared_(device.most_shared), arch_(arch_of(device)), folder_(std::move(folder)) {}

SpecialisedKernels::~SpecialisedKernels() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  asked_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const Entry& entry : entries_)
    if (entry.library != nullptr) cudaLibraryUnload(entry.library);
}

// If no thread can be started, the general kernels stay in use.
void SpecialisedKernels::add_thread() {
  try {
    threads_.push_back(start_thread("a compiler of kernels", [this] { return std::thread([this] { work(); }); }));
  } catch (const Error& error) {
    if (threads_.empty()) log_warn("no kernels are compiled for the model's sizes: {}", error.what());
  }
}

const void* SpecialisedKernels::find(const SpecialisedKernel& kernel) {
  const auto known = std::ranges::find(entries_, kernel, &Entry::kernel);
  if (known != entries_.end()) return known->function;
  if (entries_.size() == kMaxKernels) return nullptr;
  if (made_with_.empty()) made_with_ = Nvrtc::get()->made_with(arch_);
  {
    const std::lock_guard lock(mutex_);
    if (n_taken_ == entries_.size()) first_asked_ = std::chrono::steady_clock::now(), n_kept_ = 0;
    entries_.push_back({.kernel = kernel});
    if (threads_.size() < static_cast<size_t>(std::clamp(available_cpus() - 1, 1, 16))) add_thread();
  }
  asked_.notify_one();
  return nullptr;
}

void SpecialisedKernels::work() {
  [[maybe_unused]] const int nicer = nice(10);  // on Linux, lowers the priority of this thread only
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [&] { return stops_ || n_begun_ < entries_.size(); });
    if (stops_) return;
    Entry& entry = entries_[n_begun_++];
    lock.unlock();
    std::vector<char> code = make(entry.kernel);
    lock.lock();
    entry.code = std::move(code);
    ++n_made_;
    made_.notify_all();
  }
}

// Returns no code if the kernel cannot be compiled.
std::vector<char> SpecialisedKernels::make(const SpecialisedKernel& kernel) {
  const auto complain = [&](const char* what) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_complained_, true)) log_info("kernels for the model's sizes: {}", what);
  };
  try {
    const std::string source = source_of(kernel), made_of = made_with_ + "\n" + source;
    if (std::optional<std::vector<char>> kept = folder_.find(made_of)) {
      const std::lock_guard lock(mutex_);
      ++n_kept_;
      return *std::move(kept);
    }
    std::vector<char> code = Nvrtc::get()->compile(source, arch_);
    try {
      folder_.store(made_of, code);
    } catch (const Error& error) {
      complain(error.what());
    }
    return code;
  } catch (const std::exception& error) {
    complain(error.what());
    return {};
  }
}

void SpecialisedKernels::load(Entry& entry) {
  std::vector<char> code = std::move(entry.code);
  cudaKernel_t kernel = nullptr;
  cudaFuncAttributes attributes{};
  if (!code.empty() &&
      cudaLibraryLoadData(&entry.library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0) == cudaSuccess &&
      cudaLibraryGetKernel(&kernel, entry.library, "specialised") == cudaSuccess &&
      cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&  // this also loads the kernel to the device
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(most_shared_ - attributes.sharedSizeBytes)) == cudaSuccess) {
    entry.function = kernel;
  } else {
    cudaGetLastError();
    ++n_failed_;
  }
}

bool SpecialisedKernels::load_ready() {
  if (n_taken_ == entries_.size()) return false;
  const std::lock_guard lock(mutex_);
  if (n_made_ < entries_.size()) return false;
  const size_t n_new = entries_.size() - n_taken_;
  for (; n_taken_ < entries_.size(); ++n_taken_) load(entries_[n_taken_]);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - first_asked_;
  log_info("{} kernels for the model's sizes after {:.2f} s: {} were kept from before, {} failed", n_new, took.count(),
           n_kept_, n_failed_);
  return true;
}

void SpecialisedKernels::wait() {
  std::unique_lock lock(mutex_);
  made_.wait(lock, [&] { return threads_.empty() || n_made_ == entries_.size(); });
}

}  // namespace ingot::cuda

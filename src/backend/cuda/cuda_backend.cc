// Construction of CudaBackend, its memory, and the choice of its kernels.
#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <numeric>

#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/attention/part_bytes.h"
#include "backend/cuda/entry.h"
#include "base/error.h"

namespace ingot {

using cuda::check;
using cuda::Memory;

std::unique_ptr<Backend> cuda::library::create(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

namespace {

// Logits, or the rows that a draft head gathers.
int most_logit_rows(const StepLimits& limits) { return std::max({limits.max_logits, limits.max_tokens, 1}); }

int max_blocks(const StepLimits& limits, int block_size) { return (limits.max_kv_len + block_size - 1) / block_size; }

}  // namespace

CudaBackend::CudaBackend(const BackendOptions& options)
    : core_(options), choice_(core_, options), weights_(core_, choice_.tunes() && options.copies != "never") {
  core_.memory.on_drop([this] { recorder_.drop(); });
  description_ = fmt::format("{}: {}, {:.0f} GiB, {} multiprocessors, {} activations", printable(options.device),
                             core_.device.name(), static_cast<double>(core_.device.memory_bytes()) / (1 << 30),
                             core_.device.n_multiprocessors(), core_.act == DType::kF16 ? "f16" : "f32");
}

CudaBackend::~CudaBackend() {
  cuda::select_device(core_.device.index());
  cudaStreamSynchronize(core_.device.stream());
  recorder_.drop();
  core_.clock.reset();
}

Tensor CudaBackend::alloc(DType dtype, int64_t rows, int64_t cols) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(rows * cols, 1)) * dtype_bytes(dtype);
  void* const data = core_.memory.take(bytes);
  recorder_.add_activations({data, bytes});
  return {data, dtype, rows, cols, cols};
}

int CudaBackend::fast_head_dim(int head_dim) const {
  return core_.act == DType::kF16 ? cuda::fast_head_dim(head_dim) : head_dim;
}

size_t CudaBackend::kv_bytes(const KvShape& shape) const { return cuda::kv_cache_bytes(shape); }

std::unique_ptr<KvCache> CudaBackend::make_kv(const KvShape& shape) { return cuda::make_kv_cache(shape, core_); }

std::unique_ptr<StateCache> CudaBackend::make_states(const StateShape& shape) {
  auto states = recurrence_.make_states(shape);
  recorder_.set_states(recurrence_.written());
  return states;
}

cuda::BatchSizes CudaBackend::batch_sizes(const StepLimits& limits) const {
  return {.tokens = limits.max_tokens,
          .seqs = std::max(limits.max_seqs, 1),
          .logits = most_logit_rows(limits),
          .tables = limits.n_tables,
          .blocks = max_blocks(limits, core_.step.block_size),
          .axes = limits.n_rope_axes,
          .source_rows = limits.max_source_rows};
}

void CudaBackend::reserve(const StepLimits& limits) {
  core_.device.make_current();
  sizes_.set_limits(limits);
  weights_.end_upload();
  const size_t before = core_.step.batch.bytes();
  core_.step.batch.reserve(batch_sizes(limits), core_.device);
  core_.memory.recount(before, core_.step.batch.bytes());
  core_.memory.reserve(scratch_for(limits));
  if (choice_.tunes()) products_.time_kernels(limits.max_tokens);
}

cuda::ScratchSizes CudaBackend::scratch_for(const StepLimits& limits) const {
  using cuda::Scratch;
  const size_t element = dtype_bytes(core_.act), row = static_cast<size_t>(std::max(limits.max_width, 1)) * element;
  const size_t rows = static_cast<size_t>(limits.max_tokens) * row;
  const int64_t hidden = limits.max_expert_floats / std::max(limits.max_tokens, 1);  // of all experts of a token
  const Tensor few{nullptr, core_.act, cuda::kMatvecRows, limits.max_width, limits.max_width};
  cuda::ScratchSizes sizes{};
  const auto set = [&](Scratch which, size_t bytes) { sizes[static_cast<size_t>(which)] = bytes; };
  set(Scratch::kUp, rows);
  set(Scratch::kActCopy, std::max(rows, static_cast<size_t>(limits.max_expert_floats) * element));
  set(Scratch::kArranged, cuda::matvec_scratch(few));
  if (weights_.may_have_codes())
    set(Scratch::kDecoded, std::max({static_cast<size_t>(cuda::kDecodedBytes), 256 * row,
                                     cuda::float8_rows_bytes(limits.max_tokens, limits.max_width)}));
  set(Scratch::kPartials, cuda::most_part_bytes(limits.head_dim, core_.device.n_multiprocessors()));
  if (limits.max_expert_rows > 0)
    set(Scratch::kOrder, cuda::expert_order_bytes(limits.max_expert_rows, cuda::kMaxExperts));
  if (core_.act == DType::kF16 && !core_.deterministic)
    set(Scratch::kGrid,
        cuda::grid_scratch_bytes(std::max<int64_t>(limits.max_width, hidden), limits.head_dim, core_.device.limits()));
  if (core_.device.chip().has_clusters) set(Scratch::kTurns, sizeof(cuda::ClusterTurns));
  return sizes;
}

size_t CudaBackend::scratch_bytes(const StepLimits& limits) const {
  const cuda::ScratchSizes sizes = scratch_for(limits);
  return cuda::BatchUpload::bytes_for(batch_sizes(limits)) + core_.device.workspace_bytes() +
         std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

void CudaBackend::upload(const Tensor& to, const void* from) {
  core_.device.make_current();
  const size_t row = static_cast<size_t>(to.cols) * dtype_bytes(to.dtype), rows = static_cast<size_t>(to.rows);
  if (rows * row == 0 || weights_.upload(to, from, rows * row)) return;
  check(cudaMemcpy2DAsync(to.data, static_cast<size_t>(to.stride) * dtype_bytes(to.dtype), from, row, row, rows,
                          cudaMemcpyHostToDevice, core_.device.stream()),
        "cudaMemcpy2DAsync");
  rank_ops_.await_stream();
}

std::shared_ptr<float[]> CudaBackend::host_floats(size_t n) {
  core_.device.make_current();
  const auto memory = std::make_shared<Memory>(n * sizeof(float), cuda::Place::kPinned);
  return {memory, static_cast<float*>(memory->data())};
}

void CudaBackend::download(void* to, const Tensor& from) {
  core_.device.make_current();
  finish_copy();
  const size_t row = static_cast<size_t>(from.cols) * dtype_bytes(from.dtype), rows = static_cast<size_t>(from.rows);
  if (rows * row == 0) return;
  check(cudaMemcpy2DAsync(to, row, from.data, static_cast<size_t>(from.stride) * dtype_bytes(from.dtype), row, rows,
                          cudaMemcpyDeviceToHost, core_.device.stream()),
        "cudaMemcpy2DAsync");
  rank_ops_.await_stream();
}

std::vector<std::string> CudaBackend::matmul_kernels(const Weight& w, int64_t rows) const {
  return choice_.names(w, rows);
}

void CudaBackend::use_matmul_kernel(const std::string& name) {
  core_.device.make_current();
  recorder_.drop();
  choice_.force(name);
}

void CudaBackend::load_ready_kernels() {
  if (choice_.load_ready()) recorder_.mark_stale();
}

void CudaBackend::await_kernels() {
  if (choice_.specialised() == nullptr) return;
  synchronize();
  choice_.specialised()->wait();
  load_ready_kernels();
  choice_.check_compiled();
}

}  // namespace ingot

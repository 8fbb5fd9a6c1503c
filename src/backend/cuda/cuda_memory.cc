// Construction of CudaBackend, its memory, and the device's peak rates.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "backend/cuda/attention/part_bytes.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/entry.h"
#include "backend/device_name.h"
#include "base/error.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;
using cuda::Memory;
using cuda::PackedWeight;

std::unique_ptr<Backend> cuda::library::create(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

std::string cuda::library::why_none() {
  int n_devices = 0, driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
    return "no CUDA device: this machine has no NVIDIA driver";
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status == cudaSuccess && n_devices > 0) return "";
  cudaGetLastError();
  return fmt::format("no CUDA device: {}",
                     status == cudaSuccess ? "the driver finds none" : cudaGetErrorString(status));
}

namespace {

// Logits, or the rows that a draft head gathers.
int most_logit_rows(const StepLimits& limits) { return std::max({limits.max_logits, limits.max_tokens, 1}); }

// The index of the GPU that the options name, after all options have been checked.
int checked_index(const BackendOptions& options) {
  if (!options.activations.empty() && options.activations != "f16" && options.activations != "f32")
    throw UsageError("unknown type of activations '{}': use f16 or f32", printable(options.activations));
  if (options.deterministic && options.activations == "f32")
    throw UsageError("deterministic steps need activations of f16 on cuda");
  const int index = cuda_index(options.device);
  if (const std::string why = cuda::library::why_none(); !why.empty()) throw UsageError("{}; use the device cpu", why);
  int n_devices = 0;
  check(cudaGetDeviceCount(&n_devices), "cudaGetDeviceCount");
  check_cuda_index(index, n_devices);
  return index;
}

}  // namespace

CudaBackend::CudaBackend(const BackendOptions& options) : device_(checked_index(options)) {
  if (options.activations == "f32") act_ = DType::kF32;
  if (!options.activations.empty()) device_.forbid_float8();
  deterministic_ = options.deterministic;
  if (10 * device_.limits().major < cuda::kChips[0].from)
    throw UsageError("{} has compute capability {}.{}: 8.0 (Ampere) or newer is needed; use the device cpu",
                     printable(device_.name()), device_.limits().major, device_.limits().minor);
  if (!cuda::has_code())
    throw UsageError(
        "this ingot was built without code for {} (compute capability {}.{}): build it with "
        "-DCMAKE_CUDA_ARCHITECTURES={}{}, or use the device cpu",
        printable(device_.name()), device_.limits().major, device_.limits().minor, device_.limits().major,
        device_.limits().minor);
  begin_tuning(options);
  description_ = fmt::format("{}: {}, {:.0f} GiB, {} multiprocessors, {} activations", printable(options.device),
                             device_.name(), static_cast<double>(device_.memory_bytes()) / (1 << 30),
                             device_.n_multiprocessors(), act_ == DType::kF16 ? "f16" : "f32");
  dense_ = std::make_unique<cuda::DenseMatmul>(device_);
  allocated_ += device_.workspace_bytes();
}

CudaBackend::~CudaBackend() {
  cuda::select_device(device_.index());
  cudaStreamSynchronize(device_.stream());
  drop_graphs();
  clock_.reset();
  if (drawn_event_ != nullptr) cudaEventDestroy(drawn_event_);
  if (copied_event_ != nullptr) cudaEventDestroy(copied_event_);
  if (finished_event_ != nullptr) cudaEventDestroy(finished_event_);
}

size_t CudaBackend::available_bytes() const {
  device_.make_current();
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return available;
}

size_t CudaBackend::device_bytes() const {
  device_.make_current();
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return total;
}

void* CudaBackend::take(size_t bytes) {
  device_.make_current();
  drop_graphs();
  buffers_.emplace_back(bytes);
  allocated_ += bytes;
  return buffers_.back().data();
}

void CudaBackend::release(const void* taken) {
  const auto buffer = std::ranges::find(buffers_, taken, &Memory::data);
  CHECK(buffer != buffers_.end());
  allocated_ -= buffer->size();
  buffers_.erase(buffer);
}

// Never grows `memory` during a recording, because a step of the same size has run before and has allocated its
// scratch.
void* CudaBackend::scratch_at_least(Memory& memory, size_t bytes, cuda::Place place) {
  if (memory.size() >= bytes) return memory.data();
  CHECK(!capturing_);
  device_.make_current();
  drop_graphs();
  return grown(memory, bytes, place);
}

void* CudaBackend::grown(Memory& memory, size_t bytes, cuda::Place place) {
  if (memory.size() >= bytes && memory.data() != nullptr) return memory.data();
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  if (bytes < 1 << 20) bytes = std::bit_ceil(std::max<size_t>(bytes, 256));  // slow growth rarely reallocates
  const size_t before = memory.data() != nullptr ? memory.size() : 0;
  memory = Memory();
  if (place == cuda::Place::kDevice) allocated_ -= before;
  memory = Memory(bytes, place);
  if (place == cuda::Place::kDevice) allocated_ += bytes;
  return memory.data();
}

Tensor CudaBackend::alloc(DType dtype, int64_t rows, int64_t cols) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(rows * cols, 1)) * dtype_bytes(dtype);
  activations_.push_back({take(bytes), bytes});
  return {activations_.back().data, dtype, rows, cols, cols};
}

// Includes the block to which padding writes.
size_t CudaBackend::kv_bytes(const KvShape& shape) const {
  KvShape padded = shape;
  ++padded.n_blocks;
  return std::max<size_t>(padded.bytes(), 16);
}

std::unique_ptr<KvCache> CudaBackend::make_kv(const KvShape& shape) {
  CHECK(shape.dtype.keys != DType::kI32 && !(shape.values_are_keys && shape.dtype.differ()));
  if (has_scales(shape.dtype.keys) && shape.head_dim % 8 != 0)
    throw Error(
        "a KV cache of q8_0 or q4_0 on a GPU needs heads with a multiple of 8 columns, but these have {}: use f16",
        shape.head_dim);
  device_.make_current();
  drop_graphs();
  block_size_ = shape.block_size;
  Memory memory(kv_bytes(shape));
  allocated_ += memory.size();
  check(cudaMemsetAsync(memory.data(), 0, memory.size(), device_.stream()), "cudaMemsetAsync");
  return std::make_unique<CudaKv>(shape, std::move(memory), device_);
}

// The memory has the numbers of both arrays, then their scales. So all addresses suit loads of several numbers.
cuda::DeviceKv CudaKv::view() const {
  cuda::DeviceKv kv{.dtype = shape.dtype.keys,
                    .n_layers = shape.n_layers,
                    .n_blocks = shape.n_blocks + 1,
                    .n_kv_heads = shape.n_kv_heads,
                    .block_size = shape.block_size,
                    .head_dim = shape.head_dim,
                    .n_parts = shape.dtype.differ() ? 1 : shape.n_parts(),
                    .values_are_keys = shape.values_are_keys,
                    .values = {.dtype = shape.dtype.values}};
  auto* next = static_cast<char*>(memory.data());
  const auto take = [&](size_t row_bytes) -> void* {
    return row_bytes == 0 ? nullptr : std::exchange(next, next + kv.n_rows() * static_cast<int64_t>(row_bytes));
  };
  kv.data = take(shape.number_bytes(kv.dtype));
  if (shape.dtype.differ()) kv.values.data = take(shape.number_bytes(kv.values.dtype));
  kv.scales = take(shape.scale_bytes(kv.dtype));
  if (shape.dtype.differ()) kv.values.scales = take(shape.scale_bytes(kv.values.dtype));
  return kv;
}

// Calls f(device address, offset in the block's bytes, bytes) for each page of a block. In each layer, a block has a
// page of numbers in each array, [n_layers, n_blocks + 1, page], and a page of scales if the array's type has them.
template <class F>
void CudaKv::each_page(int32_t block, F&& f) const {
  CHECK(block >= 0 && block < shape.n_blocks);
  const cuda::DeviceKv kv = view();
  const size_t n_rows = static_cast<size_t>(kv.n_parts) * kv.n_kv_heads * kv.block_size;  // of a page
  size_t at = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    const auto page = [&](void* data, size_t row_bytes) {
      const size_t bytes = n_rows * row_bytes, index = static_cast<size_t>(layer) * kv.n_blocks + block;
      if (bytes > 0) f(static_cast<uint8_t*>(data) + index * bytes, at, bytes);
      at += bytes;
    };
    const auto pages = [&](void* data, void* scales, DType dtype) {
      page(data, shape.number_bytes(dtype)), page(scales, shape.scale_bytes(dtype));
    };
    pages(kv.data, kv.scales, kv.dtype);
    if (kv.has_two_types()) pages(kv.values.data, kv.values.scales, kv.values.dtype);
  }
}

void CudaKv::read_block(int32_t block, std::span<uint8_t> to) const {
  CHECK_EQ(to.size(), block_bytes());
  device.make_current();
  each_page(block, [&](const uint8_t* from, size_t at, size_t bytes) {
    check(cudaMemcpyAsync(to.data() + at, from, bytes, cudaMemcpyDeviceToHost, device.stream()), "cudaMemcpyAsync");
  });
  check(cudaStreamSynchronize(device.stream()), "cudaStreamSynchronize");
}

void CudaKv::write_block(int32_t block, std::span<const uint8_t> from) {
  CHECK_EQ(from.size(), block_bytes());
  device.make_current();
  each_page(block, [&](uint8_t* to, size_t at, size_t bytes) {
    check(cudaMemcpyAsync(to, from.data() + at, bytes, cudaMemcpyHostToDevice, device.stream()), "cudaMemcpyAsync");
  });
  check(cudaStreamSynchronize(device.stream()), "cudaStreamSynchronize");
}

cuda::BatchSizes CudaBackend::batch_sizes(const StepLimits& limits) const {
  return {.tokens = limits.max_tokens,
          .seqs = std::max(limits.max_seqs, 1),
          .logits = most_logit_rows(limits),
          .tables = limits.n_tables,
          .blocks = (limits.max_kv_len + block_size_ - 1) / block_size_};
}

void CudaBackend::reserve(const StepLimits& limits) {
  device_.make_current();
  limits_ = limits;
  finish_weights();
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  upload_.reset();
  allocated_ -= raw_.size();
  raw_ = Memory();
  allocated_ -= device_batch_.bytes();
  device_batch_.reserve(batch_sizes(limits), device_);
  allocated_ += device_batch_.bytes();
  const ScratchSizes sizes = scratch_for(limits);
  for (const auto& [memory, bytes] : {std::pair{&up_, sizes.up},
                                      {&act_copy_, sizes.act_copy},
                                      {&arranged_, sizes.arranged},
                                      {&decoded_, sizes.decoded},
                                      {&partials_, sizes.partials},
                                      {&order_, sizes.order}})
    if (bytes > 0) scratch_at_least(*memory, bytes);
  for (const auto& [memory, bytes] : {std::pair{&grid_, sizes.grid}, {&turns_, sizes.turns}}) {
    if (bytes <= memory->size()) continue;
    scratch_at_least(*memory, bytes);
    check(cudaMemsetAsync(memory->data(), 0, memory->size(), device_.stream()), "cudaMemsetAsync");
  }
  if (tunes_) time_kernels(limits.max_tokens);
}

CudaBackend::ScratchSizes CudaBackend::scratch_for(const StepLimits& limits) const {
  const size_t element = dtype_bytes(act_), row = static_cast<size_t>(std::max(limits.max_width, 1)) * element;
  const size_t rows = static_cast<size_t>(limits.max_tokens) * row;
  // Before any weight is loaded, assumes that weights have codes.
  const bool codes = weights_.empty() || std::ranges::any_of(weights_, [](const PackedWeight& w) {
                       return w.layout != cuda::Layout::kDense;
                     });
  const int64_t hidden = limits.max_expert_floats / std::max(limits.max_tokens, 1);  // of all experts of a token
  const Tensor few{nullptr, act_, cuda::kMatvecRows, limits.max_width, limits.max_width};
  return {
      .up = rows,
      .act_copy = std::max(rows, static_cast<size_t>(limits.max_expert_floats) * element),
      .arranged = cuda::matvec_scratch(few),
      .decoded = codes ? std::max({static_cast<size_t>(cuda::kDecodedBytes), 256 * row,
                                   cuda::float8_rows_bytes(limits.max_tokens, limits.max_width)})
                       : 0,
      .partials = cuda::most_part_bytes(limits.head_dim, device_.n_multiprocessors()),
      .order = limits.max_expert_rows > 0 ? cuda::expert_order_bytes(limits.max_expert_rows, cuda::kMaxExperts) : 0,
      .grid = act_ == DType::kF16 && !deterministic_
                  ? cuda::grid_scratch_bytes(std::max<int64_t>(limits.max_width, hidden), limits.head_dim,
                                             device_.limits())
                  : 0,
      .turns = device_.chip().has_clusters ? sizeof(cuda::ClusterTurns) : 0};
}

size_t CudaBackend::scratch_bytes(const StepLimits& limits) const {
  const ScratchSizes s = scratch_for(limits);
  return cuda::BatchUpload::bytes_for(batch_sizes(limits)) + device_.workspace_bytes() + s.up + s.act_copy + s.arranged + s.decoded + s.partials + s.order + s.grid +
         s.turns;
}

void CudaBackend::upload(const Tensor& to, const void* from) {
  device_.make_current();
  const size_t row = static_cast<size_t>(to.cols) * dtype_bytes(to.dtype), rows = static_cast<size_t>(to.rows);
  if (rows * row == 0) return;
  if (upload_ && to.contiguous()) return upload_->copy(to.data, from, rows * row, device_);  // one of the weights
  check(cudaMemcpy2DAsync(to.data, static_cast<size_t>(to.stride) * dtype_bytes(to.dtype), from, row, row, rows,
                          cudaMemcpyHostToDevice, device_.stream()),
        "cudaMemcpy2DAsync");
  await_stream();
}

std::shared_ptr<float[]> CudaBackend::host_floats(size_t n) {
  device_.make_current();
  const auto memory = std::make_shared<Memory>(n * sizeof(float), cuda::Place::kPinned);
  return {memory, static_cast<float*>(memory->data())};
}

void CudaBackend::download(void* to, const Tensor& from) {
  device_.make_current();
  finish_copy();
  const size_t row = static_cast<size_t>(from.cols) * dtype_bytes(from.dtype), rows = static_cast<size_t>(from.rows);
  if (rows * row == 0) return;
  check(cudaMemcpy2DAsync(to, row, from.data, static_cast<size_t>(from.stride) * dtype_bytes(from.dtype), row, rows,
                          cudaMemcpyDeviceToHost, device_.stream()),
        "cudaMemcpy2DAsync");
  await_stream();
}

// The best of several runs of two tests: reading a gigabyte, and a product of matrices with 8192 (f16) or 4096 (f32)
// rows.
Peak CudaBackend::measure_peak(Format) {
  device_.make_current();
  constexpr size_t kBytes = size_t{1} << 30;
  const int64_t n = act_ == DType::kF16 ? 8192 : 4096;
  const size_t matrix = static_cast<size_t>(n * n) * dtype_bytes(act_);
  const Memory data(std::max(kBytes, 3 * matrix));
  const auto n_elements = static_cast<int64_t>(data.size() / dtype_bytes(act_));
  cuda::fill_noise({data.data(), act_, 1, n_elements, n_elements}, device_);
  check_launch("fill_noise");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  const auto best_seconds = [&](auto&& work) {
    float best = INFINITY;
    for (int i = 0; i < 8; ++i) {
      check(cudaEventRecord(begin, device_.stream()), "cudaEventRecord");
      work();
      check(cudaEventRecord(end, device_.stream()), "cudaEventRecord");
      check(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      best = std::min(best, ms * 1e-3f);
    }
    return static_cast<double>(best);
  };
  Peak peak{.matmul_kind = act_ == DType::kF16 ? "f16" : "f32"};
  peak.read_gb_s = kBytes * 1e-9 / best_seconds([&] {
                     cuda::read_all(data.data(), kBytes, static_cast<float*>(scratch_at_least(best_, 8)), device_);
                   });
  auto* base = static_cast<char*>(data.data());
  const Tensor x{base, act_, n, n, n}, y{base + 2 * matrix, act_, n, n, n};
  const double seconds = best_seconds([&] { dense_->run(y, x, base + matrix, 1.0f, false, device_); });
  peak.matmul_gflop_s = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) * 1e-9 / seconds;
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return peak;
}

}  // namespace ingot

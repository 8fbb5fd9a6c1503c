// Making a CudaBackend; its memory; what the device reaches.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cuda/cuda_backend.h"
#include "base/error.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;
using cuda::Memory;
using cuda::PackedWeight;

std::unique_ptr<Backend> create_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

CudaBackend::CudaBackend(const BackendOptions& options) {
  if (!options.activations.empty() && options.activations != "f16" && options.activations != "f32")
    throw UsageError("unknown type of activations '{}': use f16 or f32", printable(options.activations));
  if (options.activations == "f32") act_ = DType::kF32;
  deterministic_ = options.deterministic;
  if (deterministic_ && act_ == DType::kF32) throw UsageError("--deterministic needs activations of f16 on cuda");
  int n_devices = 0, driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
    throw UsageError("no CUDA device: this machine has no NVIDIA driver; use --device cpu");
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status != cudaSuccess || n_devices == 0) {
    cudaGetLastError();
    throw UsageError("no CUDA device: {}; use --device cpu",
                     status == cudaSuccess ? "the driver finds none" : cudaGetErrorString(status));
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  if (device.major < 8)
    throw UsageError("{} has compute capability {}.{}: 8.0 (Ampere) or newer is needed; use --device cpu",
                     printable(device.name), device.major, device.minor);
  n_multiprocessors_ = device.multiProcessorCount;
  description_ = fmt::format("cuda: {}, {:.0f} GiB, {} multiprocessors, {} activations", device.name,
                             static_cast<double>(device.totalGlobalMem) / (1 << 30), n_multiprocessors_,
                             act_ == DType::kF16 ? "f16" : "f32");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  dense_ = std::make_unique<cuda::DenseMatmul>();
  allocated_ += dense_->workspace_bytes();
}

CudaBackend::~CudaBackend() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  forget_graphs();
  if (drawn_event_ != nullptr) cudaEventDestroy(drawn_event_);
  cudaStreamDestroy(stream_);
}

size_t CudaBackend::available_bytes() const {
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return available;
}

size_t CudaBackend::device_bytes() const {
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return total;
}

void* CudaBackend::take(size_t bytes) {
  forget_graphs();
  buffers_.emplace_back(bytes);
  allocated_ += bytes;
  return buffers_.back().data();
}

// Grows outside of recording only: a step has run once, and taken what it needs, before it is recorded.
void* CudaBackend::scratch_at_least(Memory& memory, size_t bytes, cuda::Place place) {
  if (memory.size() >= bytes) return memory.data();
  CHECK(!capturing_);
  forget_graphs();
  return grown(memory, bytes, place);
}

void* CudaBackend::grown(Memory& memory, size_t bytes, cuda::Place place) {
  if (memory.size() >= bytes && memory.data() != nullptr) return memory.data();
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  if (bytes < 1 << 20) bytes = std::bit_ceil(std::max<size_t>(bytes, 256));  // so that what grows slowly does so seldom
  if (place == cuda::Place::kDevice) allocated_ += bytes - memory.size();
  memory = Memory();
  memory = Memory(bytes, place);
  return memory.data();
}

Tensor CudaBackend::alloc(DType dtype, int64_t rows, int64_t cols) {
  return {take(static_cast<size_t>(std::max<int64_t>(rows * cols, 1)) * dtype_bytes(dtype)), dtype, rows, cols, cols};
}

PackedWeight CudaBackend::pack(const Weight& host) {
  const FormatInfo& format = info(host.format);
  if (host.n_experts > cuda::kMostExperts)
    throw Error("{} experts are more than cuda runs ({}): use --device cpu", host.n_experts, cuda::kMostExperts);
  PackedWeight w{.f32 = act_ == DType::kF32, .n_out = host.n_out, .n_in = host.n_in, .n_experts = host.n_experts};
  void* raw = scratch_at_least(raw_, host.bytes());
  check(cudaMemcpyAsync(raw, host.codes, host.bytes(), cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  const size_t element = w.f32 ? 4 : 2;
  if (format.unpack == nullptr) {
    w.expert_bytes = w.n_out * w.n_in * static_cast<int64_t>(element);
    w.data = take(static_cast<size_t>(w.n_experts * w.expert_bytes));
    cuda::pack_dense(host.format, raw, w, stream_);
    check_launch("pack_dense");
    return w;
  }
  CHECK_EQ(host.n_in % cuda::kUnit, 0);
  w.layout = format.codebook         ? cuda::Layout::kCodebook4
             : format.code_bits == 4 ? cuda::Layout::kCodes4
                                     : cuda::Layout::kCodes8;
  CHECK(!format.codebook || format.code_bits == 4);
  w.has_min = format.has_min;
  w.group16 = format.group == 16;
  w.zero = format.zero;
  if (format.codebook) {
    w.codebook_low = quant::codebook_word(format.codebook);
    w.codebook_high = quant::codebook_word(format.codebook + 8);
  }
  w.k_tiles = (w.n_in + cuda::kTileCols - 1) / cuda::kTileCols;
  if (!w.f32) {
    float largest = 0;
    void* bits = scratch_at_least(best_, 8);
    check(cudaMemsetAsync(bits, 0, 4, stream_), "cudaMemsetAsync");
    cuda::largest_scale(host.format, raw, host.n_experts * host.n_out * (host.n_in / format.block_size),
                        static_cast<uint32_t*>(bits), stream_);
    check_launch("largest_scale");
    check(cudaMemcpyAsync(&largest, bits, 4, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    int exponent = 7;
    if (largest > 0) std::frexp(largest, &exponent);
    w.factor = std::ldexp(1.0f, std::max(exponent - 7, -120));  // so that scales end below 128, and weights below 2^15
  }
  const int64_t n_units = (w.n_out + cuda::kTileRows - 1) / cuda::kTileRows * w.k_tiles * cuda::kTileUnits;  // of an expert
  w.expert_bytes = n_units * (format.code_bits == 4 ? 16 : 32);
  w.expert_scale_bytes = n_units * (w.group16 ? 2 : 1) * (w.has_min ? 2 : 1) * static_cast<int64_t>(element);
  const auto code_bytes = static_cast<size_t>(w.n_experts * w.expert_bytes);
  const auto scale_bytes = static_cast<size_t>(w.n_experts * w.expert_scale_bytes);
  void *codes = take(code_bytes), *scales = take(scale_bytes);
  check(cudaMemsetAsync(codes, 0, code_bytes, stream_), "cudaMemsetAsync");
  check(cudaMemsetAsync(scales, 0, scale_bytes, stream_), "cudaMemsetAsync");
  w.data = codes;
  w.scales = scales;
  cuda::pack_blocks(host.format, raw, w, stream_);
  check_launch("pack_blocks");
  return w;
}

Weight CudaBackend::prepare(const Weight& host, unsigned) {
  if (host.packed != nullptr) return host;  // an embedding that serves as the output matrix too
  weights_.push_back(pack(host));
  Weight weight = host;
  weight.packed = &weights_.back();
  weight.codes = nullptr;
  return weight;
}

std::unique_ptr<KvCache> CudaBackend::make_kv(const KvShape& shape) {
  CHECK(shape.dtype != DType::kI32);
  forget_graphs();
  block_size_ = shape.block_size;
  Memory memory(std::max<size_t>(shape.bytes(), 16));
  allocated_ += memory.size();
  check(cudaMemsetAsync(memory.data(), 0, memory.size(), stream_), "cudaMemsetAsync");
  return std::make_unique<CudaKv>(shape, std::move(memory));
}

void CudaBackend::reserve(const StepLimits& limits) {
  Backend::reserve(limits);
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  allocated_ -= raw_.size();
  raw_ = Memory();
  allocated_ -= batch_.bytes();
  const int64_t blocks = (int64_t{limits.max_kv_len} + block_size_ - 1) / block_size_;
  batch_.reserve(limits.max_tokens, std::max(limits.max_seqs, 1), std::max(limits.max_logits, 1),
                 blocks * std::max(limits.max_seqs, 1));
  allocated_ += batch_.bytes();
  const ScratchSizes sizes = scratch_for(limits);
  for (const auto& [memory, bytes] : {std::pair{&up_, sizes.up}, {&narrow_, sizes.narrow}, {&arranged_, sizes.arranged},
                                      {&decoded_, sizes.decoded}, {&partials_, sizes.partials}, {&order_, sizes.order}})
    if (bytes > 0) scratch_at_least(*memory, bytes);
}

CudaBackend::ScratchSizes CudaBackend::scratch_for(const StepLimits& limits) const {
  const size_t element = dtype_bytes(act_), row = static_cast<size_t>(std::max(limits.max_width, 1)) * element;
  const size_t rows = static_cast<size_t>(limits.max_tokens) * row;
  const bool codes = std::ranges::any_of(weights_, [](const PackedWeight& w) { return w.layout != cuda::Layout::kDense; });
  const Tensor few{nullptr, act_, cuda::kMatvecRows, limits.max_width, limits.max_width};
  return {.fused = rows,  // Backend's own
          .up = rows,
          .narrow = std::max(rows, static_cast<size_t>(limits.max_expert_floats) * element),
          .arranged = cuda::matvec_scratch(few),
          .decoded = codes ? std::max(static_cast<size_t>(cuda::kDecodedBytes), 256 * row) : 0,
          .partials = size_t{4} * static_cast<size_t>(n_multiprocessors_) * 16 * static_cast<size_t>(limits.head_dim + 2) * sizeof(float),
          .order = limits.max_expert_rows > 0 ? cuda::expert_order_bytes(limits.max_expert_rows, cuda::kMostExperts) : 0};
}

size_t CudaBackend::scratch_bytes(const StepLimits& limits) const {
  constexpr size_t kOfTheDriver = size_t{384} << 20;  // for kernels when they first run, and for recorded steps
  const ScratchSizes s = scratch_for(limits);
  return kOfTheDriver + s.fused + s.up + s.narrow + s.arranged + s.decoded + s.partials + s.order;
}

void CudaBackend::upload(const Tensor& to, const void* from) {
  settle();
  CHECK(to.contiguous());
  check(cudaMemcpyAsync(to.data, from, static_cast<size_t>(to.rows * to.cols) * dtype_bytes(to.dtype),
                        cudaMemcpyHostToDevice, stream_),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void CudaBackend::download(void* to, const Tensor& from) {
  settle();
  CHECK(from.contiguous());
  check(cudaMemcpyAsync(to, from.data, static_cast<size_t>(from.rows * from.cols) * dtype_bytes(from.dtype),
                        cudaMemcpyDeviceToHost, stream_),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

// The best of some runs: of reading a gigabyte, and of a product of matrices of 8192 (f16) or 4096 (f32).
Peak CudaBackend::measure_peak(Format) {
  constexpr size_t kBytes = size_t{1} << 30;
  const int64_t n = act_ == DType::kF16 ? 8192 : 4096;
  const size_t matrix = static_cast<size_t>(n * n) * dtype_bytes(act_);
  const Memory data(std::max(kBytes, 3 * matrix));
  const auto n_elements = static_cast<int64_t>(data.size() / dtype_bytes(act_));
  cuda::fill_noise({data.data(), act_, 1, n_elements, n_elements}, stream_);
  check_launch("fill_noise");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  const auto best_seconds = [&](auto&& work) {
    float best = INFINITY;
    for (int i = 0; i < 8; ++i) {
      check(cudaEventRecord(begin, stream_), "cudaEventRecord");
      work();
      check(cudaEventRecord(end, stream_), "cudaEventRecord");
      check(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      best = std::min(best, ms * 1e-3f);
    }
    return static_cast<double>(best);
  };
  Peak peak{.matmul_kind = act_ == DType::kF16 ? "f16" : "f32"};
  peak.read_gb_s = kBytes * 1e-9 / best_seconds([&] {
                     cuda::read_all(data.data(), kBytes, static_cast<float*>(scratch_at_least(best_, 8)), stream_);
                   });
  auto* base = static_cast<char*>(data.data());
  const Tensor x{base, act_, n, n, n}, y{base + 2 * matrix, act_, n, n, n};
  const double seconds = best_seconds([&] { dense_->run(y, x, base + matrix, 1.0f, false, stream_); });
  peak.matmul_gflop_s = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) * 1e-9 / seconds;
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return peak;
}

}  // namespace ingot

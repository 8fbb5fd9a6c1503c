// Weights of CudaBackend: copied to the device piece by piece, and repacked there. Loading does not wait for the
// device. The device finds the largest scale of a weight, which determines the weight's factor (packed_weight.h). The
// host reads it when an op first needs a factor.
#include <algorithm>
#include <cmath>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/matmul/pack.h"
#include "base/error.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;
using cuda::PackedWeight;

namespace {

constexpr size_t kMaxWithoutFactor = 1024;

int64_t code_bytes(const FormatInfo& format) { return format.code_bits == 4 ? 16 : 32; }  // of one unit
// The units of one expert, in whole tiles.
int64_t units_of(int64_t n_out, int64_t n_in) {
  const int64_t k_tiles = (n_in + cuda::kTileCols - 1) / cuda::kTileCols;
  return (n_out + cuda::kTileRows - 1) / cuda::kTileRows * k_tiles * cuda::kTileUnits;
}
int64_t scale_bytes(const FormatInfo& format, bool f32) {
  return (format.group == 16 ? 2 : 1) * (format.has_min ? 2 : 1) * (f32 ? 4 : 2);
}

}  // namespace

Weight CudaBackend::prepare(const Weight& host, unsigned use) {
  device_.make_current();
  if (host.n_experts > cuda::kMaxExperts)
    throw Error("{} experts are more than cuda runs ({}): use the device cpu", host.n_experts, cuda::kMaxExperts);
  Weight weight = host;
  if (host.packed == nullptr) {  // otherwise the weight is an embedding that is also the output matrix
    PackedWeight& w = weights_.emplace_back();
    w.f32 = act_ == DType::kF32, w.n_out = host.n_out, w.n_in = host.n_in, w.n_experts = host.n_experts;
    info(host.format).unpack == nullptr ? pack_dense(w, host) : pack_codes(w, host);
    weight.packed = &w;
    weight.codes = nullptr;
  }
  if ((use & kForMatmul) != 0 && weight.n_experts == 1) factors_.push_back(weight);
  return weight;
}

size_t CudaBackend::packed_bytes(const Weight& shape, unsigned /*use*/) const {
  const FormatInfo& f = info(shape.format);
  const bool f32 = act_ == DType::kF32;
  if (f.unpack == nullptr) return static_cast<size_t>(shape.n_experts * shape.n_out * shape.n_in) * (f32 ? 4 : 2);
  const int64_t n_units = shape.n_experts * units_of(shape.n_out, shape.n_in);
  return static_cast<size_t>(n_units * (code_bytes(f) + scale_bytes(f, f32)));
}

cuda::WeightUpload& CudaBackend::weight_upload() {
  if (!upload_) upload_ = std::make_unique<cuda::WeightUpload>();
  return *upload_;
}

void CudaBackend::pack_dense(PackedWeight& w, const Weight& host) {
  const size_t element = w.f32 ? 4 : 2;
  w.expert_bytes = w.n_out * w.n_in * static_cast<int64_t>(element);
  auto* to = static_cast<char*>(take(static_cast<size_t>(w.n_experts * w.expert_bytes)));
  w.data = to;
  if (host.format == (w.f32 ? Format::F32 : Format::F16))
    return weight_upload().copy(to, host.codes, host.bytes(), device_);
  const FormatInfo& format = info(host.format);
  const size_t piece = cuda::WeightUpload::kPiece / format.block_bytes * format.block_bytes;
  for (size_t done = 0; done < host.bytes(); done += piece) {
    const size_t n = std::min(piece, host.bytes() - done);
    void* raw = scratch_at_least(raw_, n);
    weight_upload().copy(raw, static_cast<const uint8_t*>(host.codes) + done, n, device_);
    const size_t first = done / format.block_bytes * format.block_size;
    cuda::pack_dense(host.format, raw, static_cast<int64_t>(n / format.block_bytes), w.f32, to + first * element,
                     device_);
    check_launch("pack_dense");
  }
}

void CudaBackend::pack_codes(PackedWeight& w, const Weight& host) {
  const FormatInfo& format = info(host.format);
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
  const int64_t n_units = units_of(w.n_out, w.n_in);
  w.expert_bytes = n_units * code_bytes(format);
  w.expert_scale_bytes = n_units * scale_bytes(format, w.f32);
  const auto all_codes = static_cast<size_t>(w.n_experts * w.expert_bytes);
  const auto all_scales = static_cast<size_t>(w.n_experts * w.expert_scale_bytes);
  void *codes = take(all_codes), *scales = take(all_scales), *raw = scratch_at_least(raw_, host.bytes());
  weight_upload().copy(raw, host.codes, host.bytes(), device_);
  uint32_t* largest = nullptr;
  if (!w.f32) {
    if (without_factor_.size() == kMaxWithoutFactor) finish_weights();
    largest = static_cast<uint32_t*>(scratch_at_least(largest_, kMaxWithoutFactor * sizeof(uint32_t))) +
              without_factor_.size();
    check(cudaMemsetAsync(largest, 0, sizeof(uint32_t), device_.stream()), "cudaMemsetAsync");
    cuda::largest_scale(host.format, raw, host.n_experts * host.n_out * (host.n_in / format.block_size), largest,
                        device_);
    check_launch("largest_scale");
    without_factor_.push_back(&w);
  }
  check(cudaMemsetAsync(codes, 0, all_codes, device_.stream()), "cudaMemsetAsync");
  check(cudaMemsetAsync(scales, 0, all_scales, device_.stream()), "cudaMemsetAsync");
  w.data = codes;
  w.scales = scales;
  cuda::pack_blocks(host.format, raw, w, largest, device_);
  check_launch("pack_blocks");
}

void CudaBackend::finish_weights() {
  if (without_factor_.empty()) return;
  std::vector<float> largest(without_factor_.size());
  check(cudaMemcpyAsync(largest.data(), largest_.data(), largest.size() * sizeof(float), cudaMemcpyDeviceToHost,
                        device_.stream()),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  for (size_t i = 0; i < largest.size(); ++i)
    without_factor_[i]->factor = std::ldexp(1.0f, cuda::factor_exponent(largest[i]));
  without_factor_.clear();
}

}  // namespace ingot

#include "backend/cuda/device_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/blocks/plain_layers.h"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/matmul/float8.h"
#include "backend/cuda/matmul/pack.h"
#include "backend/gpu_sizes.h"
#include "base/error.h"

namespace ingot::cuda {
namespace {

constexpr size_t kMaxWithoutFacts = 1024;
constexpr size_t kAlignment = 256;                // of a weight
constexpr size_t kSpareBytes = size_t{64} << 20;  // stay free while weights are moved

static_assert(kGpuTileRows == kTileRows && kGpuTileCols == kTileCols && kGpuUnit == kUnit);

}  // namespace

Weight DeviceWeights::prepare(const Weight& host, unsigned use) {
  device_.make_current();
  if (host.n_experts > kMaxExperts)
    throw Error("{} experts are more than cuda supports ({}): use the device cpu", host.n_experts, kMaxExperts);
  Weight weight = host;
  if (host.packed == nullptr) {  // otherwise the weight is an embedding that is also the output matrix
    PackedWeight& w = weights_.emplace_back();
    in_host_memory_ = (use & kForHostTable) != 0;
    w.f32 = core_.act == DType::kF32, w.n_out = host.n_out, w.n_in = host.n_in, w.n_experts = host.n_experts;
    is_float8(host)                              ? pack_float8(w, host)
    : gpu_stores_codes(info(host.format), w.f32) ? pack_codes(w, host)
                                                 : pack_dense(w, host);
    weight.packed = &w;
    weight.codes = nullptr;
  }
  if (const size_t bytes = copy_bytes(host, use); bytes > 0) add_copy(*own(weight), host.format, bytes);
  if ((use & kForMatmul) != 0 && weight.n_experts == 1) of_products_.push_back(weight);
  return weight;
}

// Tables in host memory are read over the bus: a step reads few of their rows.
void* DeviceWeights::take(size_t bytes) {
  if (!in_host_memory_) return core_.memory.take(bytes);
  return in_host_.emplace_back(bytes, Place::kPinned).data();
}

// Null: the weight belongs to another backend.
PackedWeight* DeviceWeights::own(const Weight& weight) {
  const auto found = std::ranges::find(weights_, weight.packed, [](const PackedWeight& w) { return &w; });
  return found == weights_.end() ? nullptr : &*found;
}

size_t DeviceWeights::copy_bytes(const Weight& shape, unsigned use) const {
  return keeps_copies_ ? gpu_halves_bytes(shape, use) : 0;
}

size_t DeviceWeights::packed_bytes(const Weight& shape, unsigned use) const {
  if ((use & kForHostTable) != 0) return 0;
  return copy_bytes(shape, use) +
         (is_float8(shape) ? float8_bytes(shape.n_out, shape.n_in) : gpu_packed_bytes(shape, core_.act == DType::kF32));
}

// Products of many rows run at the GPU's limit of power. They take 2 % less time if the last bits of weights are zero.
// So copies are rounded, which changes weights less than quantization has changed them. Formats with few levels stay
// exact: their blocks have few different numbers.
void DeviceWeights::add_copy(PackedWeight& w, Format format, size_t bytes) {
  constexpr int kFewLevels = 8;
  copies_.push_back({.n_out = w.n_out, .n_in = w.n_in, .data = core_.memory.take(bytes)});
  empty_copies_.push_back({&w, &copies_.back(), info(format).levels > kFewLevels});
}

// Called when the weights' factors are known.
void DeviceWeights::fill_copies() {
  for (const auto& [w, halves, rounds] : std::exchange(empty_copies_, {})) {
    void* const rows = const_cast<void*>(halves->data);
    unpack_rows(rows, *w, 0, w->n_out, device_);
    check_launch("unpack_rows");
    if (rounds) {
      round_halves(rows, w->n_out * w->n_in, device_);
      check_launch("round_halves");
    }
    halves->factor = w->factor;
    w->halves = halves;
  }
}

WeightUpload& DeviceWeights::weight_upload() {
  if (!upload_) upload_ = std::make_unique<WeightUpload>();
  return *upload_;
}

void DeviceWeights::pack_dense(PackedWeight& w, const Weight& host) {
  const size_t element = w.f32 ? 4 : 2;
  w.expert_bytes = w.n_out * w.n_in * static_cast<int64_t>(element);
  auto* to = static_cast<char*>(take(static_cast<size_t>(w.n_experts * w.expert_bytes)));
  w.data = to;
  if (host.format == (w.f32 ? Format::F32 : Format::F16))
    return weight_upload().copy(to, host.codes, host.bytes(), device_);
  const FormatInfo& format = info(host.format);
  const size_t piece = WeightUpload::kPiece / format.block_bytes * format.block_bytes;
  for (size_t done = 0; done < host.bytes(); done += piece) {
    const size_t n = std::min(piece, host.bytes() - done);
    void* raw = core_.memory.at_least(raw_, n);
    weight_upload().copy(raw, static_cast<const uint8_t*>(host.codes) + done, n, device_);
    const size_t first = done / format.block_bytes * format.block_size;
    cuda::pack_dense(host.format, raw, static_cast<int64_t>(n / format.block_bytes), w.f32, to + first * element,
                     device_);
    check_launch("pack_dense");
  }
}

// Experts of 8-bit floats are codes, which the kernels of experts can multiply.
bool DeviceWeights::is_float8(const Weight& host) const {
  return host.format == Format::F8_E4M3 && host.n_experts == 1 && core_.act == DType::kF16 && can_be_float8(host.n_in);
}

void DeviceWeights::pack_float8(PackedWeight& w, const Weight& host) {
  w.layout = Layout::kFloat8;
  char* to = static_cast<char*>(take(float8_bytes(w.n_out, w.n_in)));
  w.data = to;
  w.scales = to + w.n_out * w.n_in;
  const size_t tables = static_cast<size_t>(float8_scales(w.n_out, w.n_in)) * sizeof(float);
  check(cudaMemsetAsync(to + w.n_out * w.n_in, 0, tables, device_.stream()), "cudaMemsetAsync");
  void* raw = core_.memory.at_least(raw_, host.bytes());
  weight_upload().copy(raw, host.codes, host.bytes(), device_);
  cuda::pack_float8(raw, w, fact_of(w), device_);
  check_launch("pack_float8");
}

// Returns a zeroed word on the device, where a kernel stores its fact about the weight. read_facts() reads all
// words.
uint32_t* DeviceWeights::fact_of(PackedWeight& w) {
  if (without_facts_.size() == kMaxWithoutFacts) read_facts();
  auto* fact = static_cast<uint32_t*>(core_.memory.at_least(facts_, kMaxWithoutFacts * sizeof(uint32_t))) +
               without_facts_.size();
  check(cudaMemsetAsync(fact, 0, sizeof(uint32_t), device_.stream()), "cudaMemsetAsync");
  without_facts_.push_back(&w);
  return fact;
}

void DeviceWeights::pack_codes(PackedWeight& w, const Weight& host) {
  const FormatInfo& format = info(host.format);
  CHECK_EQ(host.n_in % kUnit, 0);
  w.layout = format.unpack == nullptr          ? Layout::kCodesE4M3
             : quant::is_e2m1(format.codebook) ? Layout::kCodesE2M1
             : format.codebook                 ? Layout::kCodebook4
             : format.code_bits == 4           ? Layout::kCodes4
                                               : Layout::kCodes8;
  CHECK(!format.codebook || format.code_bits == 4);
  w.factor = factor_of(0, w.layout);
  w.has_min = format.has_min;
  w.group16 = format.group == 16;
  w.zero = format.zero;
  if (format.codebook) {
    w.codebook_low = quant::codebook_word(format.codebook);
    w.codebook_high = quant::codebook_word(format.codebook + 8);
  }
  w.k_tiles = (w.n_in + kTileCols - 1) / kTileCols;
  const int64_t n_units = gpu_units(w.n_out, w.n_in);
  w.expert_bytes = n_units * gpu_code_bytes(format);
  w.expert_scale_bytes = n_units * gpu_scale_bytes(format, w.f32);
  const auto all_codes = static_cast<size_t>(w.n_experts * w.expert_bytes);
  const auto all_scales = static_cast<size_t>(w.n_experts * w.expert_scale_bytes);
  void *codes = take(all_codes), *scales = take(all_scales),
       *raw = core_.memory.at_least(raw_, host.bytes());
  weight_upload().copy(raw, host.codes, host.bytes(), device_);
  uint32_t* largest = nullptr;
  if (!w.f32) {
    largest = fact_of(w);
    largest_scale(host.format, raw, host.n_experts * host.n_out * (host.n_in / format.block_size), largest, device_);
    check_launch("largest_scale");
  }
  check(cudaMemsetAsync(codes, 0, all_codes, device_.stream()), "cudaMemsetAsync");
  check(cudaMemsetAsync(scales, 0, all_scales, device_.stream()), "cudaMemsetAsync");
  w.data = codes;
  w.scales = scales;
  pack_blocks(host.format, raw, w, largest, device_);
  check_launch("pack_blocks");
}

// Joins the weights that multiply one input, so that cuBLASLt computes one product instead of several small ones.
void DeviceWeights::join(const Program& program) {
  if (core_.act != DType::kF16 || core_.deterministic) return;
  const auto join_in = [&](const Block& block) {
    const auto* attention = block.as<AttentionBlock>();
    if (attention != nullptr && !attention->only_queries) join({&attention->wq, &attention->wk, &attention->wv});
    if (const auto* b = block.as<FeedForwardBlock>()) join({&b->w_gate, &b->w_up});
  };
  for (const Block& block : program.blocks) {
    join_in(block);
    if (const auto* b = block.as<PlainLayersBlock>()) std::ranges::for_each(b->blocks, join_in);
  }
}

// Moves dense weights, or copies of quantized weights, next to each other. For a moment, both places take memory.
// Without it, the weights stay apart.
void DeviceWeights::join(std::initializer_list<const Weight*> weights) {
  const auto bytes_of = [](const PackedWeight& w) { return static_cast<size_t>(w.n_out * w.n_in) * sizeof(uint16_t); };
  std::vector<PackedWeight*> parts;
  PackedWeight whole;
  bool copies = false;
  for (const Weight* weight : weights) {
    PackedWeight* part = own(*weight);
    const bool is_copy = part != nullptr && part->halves != nullptr;
    if (!parts.empty() && is_copy != copies) return;  // products ignore the factor of a weight that is stored dense
    copies = is_copy;
    if (is_copy) part = part->halves;
    if (part == nullptr || part->layout != Layout::kDense || part->n_experts != 1 || part->whole) return;
    if (bytes_of(*part) % kAlignment != 0 || (!parts.empty() && part->n_in != parts[0]->n_in)) return;
    parts.push_back(part);
    whole.n_out += part->n_out, whole.n_in = part->n_in;
    whole.factor = parts.size() == 1 ? part->factor : std::max(whole.factor, part->factor);
  }
  if (core_.memory.available() < bytes_of(whole) + kSpareBytes) return;
  auto* to = static_cast<char*>(core_.memory.take(bytes_of(whole)));
  whole.data = to;
  const PackedWeight& joined = joined_.emplace_back(whole);
  for (PackedWeight* part : parts) {
    check(cudaMemcpyAsync(to, part->data, bytes_of(*part), cudaMemcpyDeviceToDevice, device_.stream()),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
    core_.memory.release(part->data);
    part->data = to, part->whole = &joined;
    if (part->factor != joined.factor) {  // both are powers of two
      scale_rows({to, DType::kF16, part->n_out, part->n_in, part->n_in}, part->factor / joined.factor, 0, device_);
      check_launch("scale_rows");
      part->factor = joined.factor;
    }
    to += bytes_of(*part);
  }
}

void DeviceWeights::read_facts() {
  if (without_facts_.empty()) return;
  std::vector<uint32_t> facts(without_facts_.size());
  check(cudaMemcpyAsync(facts.data(), facts_.data(), facts.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost,
                        device_.stream()),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  for (size_t i = 0; i < facts.size(); ++i) {
    PackedWeight& w = *without_facts_[i];
    if (w.layout == Layout::kFloat8) {
      w.grid = grid_of(facts[i]);
    } else {
      w.factor = factor_of(std::bit_cast<float>(facts[i]), w.layout);
    }
  }
  without_facts_.clear();
  fill_copies();
}

bool DeviceWeights::upload(const Tensor& to, const void* from, size_t bytes) {
  if (!upload_ || !to.contiguous()) return false;
  upload_->copy(to.data, from, bytes, device_);
  return true;
}

void DeviceWeights::end_upload() {
  read_facts();
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  upload_.reset();
  core_.memory.free(raw_);
}

const PackedWeight& DeviceWeights::ready(const Weight& w) {
  read_facts();
  return packed(w);
}

bool DeviceWeights::may_have_codes() const {
  return weights_.empty() ||
         std::ranges::any_of(weights_, [](const PackedWeight& w) { return w.layout != Layout::kDense; });
}

}  // namespace ingot::cuda

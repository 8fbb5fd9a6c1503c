// Keys and values in host memory, and attention over them: the plain bodies of make_kv, kv_write and attention.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/backend.h"
#include "backend/ref/host_rows.h"
#include "base/half.h"
#include "quant/f8_e4m3.h"

namespace ingot {
namespace {

// A page holds, for each layer, block_size keys and then block_size values: [n_blocks, n_layers, n_parts, block_size,
// kv_dim]. Elements are rounded to the cache's dtype, so that ref reads the same values as a cache that stores this
// type.
class RefKv : public KvCache {
 public:
  explicit RefKv(const KvShape& s)
      : KvCache(s),
        kv_dim(int64_t{s.n_kv_heads} * s.head_dim),
        data(static_cast<size_t>(s.n_blocks) * s.n_layers * s.n_parts() * s.block_size * kv_dim) {}

  // The key (which = 0) or value (1) row of a token: [kv_dim].
  float* row(int layer, int which, int32_t block, int offset) {
    CHECK(block >= 0 && block < shape.n_blocks);
    const int part = shape.values_are_keys ? 0 : which;
    return &data[((((int64_t{block} * shape.n_layers) + layer) * shape.n_parts() + part) * shape.block_size + offset) *
                 kv_dim];
  }

  size_t block_bytes() const override {
    return sizeof(float) * shape.n_layers * shape.n_parts() * shape.block_size * static_cast<size_t>(kv_dim);
  }
  void read_block(int32_t block, std::span<uint8_t> to) const override {
    CHECK(block >= 0 && block < shape.n_blocks && to.size() == block_bytes());
    std::memcpy(to.data(), reinterpret_cast<const uint8_t*>(data.data()) + block * to.size(), to.size());
  }
  void write_block(int32_t block, std::span<const uint8_t> from) override {
    CHECK(block >= 0 && block < shape.n_blocks && from.size() == block_bytes());
    std::memcpy(reinterpret_cast<uint8_t*>(data.data()) + block * from.size(), from.data(), from.size());
  }

  const int64_t kv_dim;
  std::vector<float> data;
};

// Rounds a group to bytes times a scale, with the largest element at 127. A NaN or an infinity makes the whole group
// NaN.
void round_to_bytes(const float* x, float* y, int64_t n) {
  float amax = 0, none = 0;
  for (int64_t i = 0; i < n; ++i) {
    amax = std::max(amax, std::abs(x[i]));
    none += x[i] * 0.0f;
  }
  const float scale = float_from_f16(f16_from_float(amax / 127.0f + none)), inverse = amax > 0 ? 127.0f / amax : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const auto product =
        std::bit_cast<float>(std::bit_cast<uint32_t>(x[i] * inverse) & ~1u);  // as the kernels of the cpu backend round
    y[i] = std::nearbyint(product) * scale;
  }
}

// Rounds a group to 16 steps as ggml's Q4_0 does: the element of largest magnitude, the first of several, becomes -8. A
// NaN or an infinity makes the whole group NaN.
void round_to_nibbles(const float* x, float* y, int64_t n) {
  float extreme = 0, none = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
    none += x[i] * 0.0f;
  }
  const float scale = extreme / -8.0f, inverse = extreme != 0 ? 1.0f / scale : 0.0f;
  const float rounded = float_from_f16(f16_from_float(scale + none));
  for (int64_t i = 0; i < n; ++i) y[i] = (std::floor(std::min(x[i] * inverse + 8.5f, 15.0f)) - 8.0f) * rounded;
}

// Writes the values that a cache of this type would hold for one token's key or value: [kv_dim].
void round_row(const float* x, float* y, const KvShape& shape, DType dtype) {
  const int64_t n = int64_t{shape.n_kv_heads} * shape.head_dim;
  if (has_scales(dtype)) {
    const auto round = dtype == DType::kQ8_0 ? round_to_bytes : round_to_nibbles;
    for (int64_t head = 0; head < n; head += shape.head_dim)
      for (int64_t i = 0; i < shape.head_dim; i += 32)
        round(x + head + i, y + head + i, std::min<int64_t>(32, shape.head_dim - i));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    y[i] = dtype == DType::kF16    ? float_from_f16(f16_from_float(x[i]))
           : dtype == DType::kBF16 ? float_from_bf16(bf16_from_float(x[i]))
           : dtype == DType::kE4M3 ? quant::float_from_e4m3(quant::e4m3_from_float(x[i]))
                                   : x[i];
}

template <class F>
void for_each_token(const Batch& batch, F&& f) {
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (int64_t t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) f(seq, t);
}

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// One head of one query over the positions [begin, end) of its sequence: softmax(q k^T * scale) v.
void attend(float* y, const float* q, RefKv& kv, const AttentionArgs& a, const Tensor& sinks, const int32_t* blocks,
            int h, int begin, int end) {
  const int64_t kv_head = int64_t{h / (a.n_heads / a.n_kv_heads)} * a.head_dim;
  auto row = [&](int which, int p) {
    return kv.row(a.layer, which, blocks[p / kv.shape.block_size], p % kv.shape.block_size) + kv_head;
  };
  std::vector<double> scores;
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int p = begin; p < end; ++p) {
    double s = dot(q + int64_t{h} * a.head_dim, row(0, p), a.head_dim) * a.scale;
    if (a.softcap > 0) s = a.softcap * std::tanh(s / a.softcap);
    scores.push_back(s);
    largest = std::max(largest, s);
  }
  if (sinks) {
    largest = std::max(largest, double{sinks.f32()[h]});
    total = std::exp(sinks.f32()[h] - largest);
  }
  std::vector<double> out(a.head_dim);
  for (int p = begin; p < end; ++p) {
    const double weight = std::exp(scores[p - begin] - largest);
    total += weight;
    for (int i = 0; i < a.head_dim; ++i) out[i] += weight * row(1, p)[i];
  }
  for (int i = 0; i < a.head_dim; ++i) y[int64_t{h} * a.head_dim + i] = static_cast<float>(out[i] / total);
}

}  // namespace

std::unique_ptr<KvCache> Backend::make_kv(const KvShape& shape) { return std::make_unique<RefKv>(shape); }

void Backend::kv_write(KvCache& cache, int layer, Tensor k, Tensor v) {
  HostRows host(*this);
  k = host.in(k), v = host.in(v);
  auto& kv = static_cast<RefKv&>(cache);
  const auto write = [&](int seq, int64_t t, int position) {
    const int size = kv.shape.block_size;
    const int32_t block = batch_.blocks(seq, kv.shape.table)[position / size];
    round_row(k.f32(t), kv.row(layer, 0, block, position % size), kv.shape, kv.shape.dtype.keys);
    round_row(v.f32(t), kv.row(layer, 1, block, position % size), kv.shape, kv.shape.dtype.values);
  };
  if (!kv.shape.of_source)
    return for_each_token(batch_, [&](int seq, int64_t t) { write(seq, t, batch_.positions[t]); });
  for (int64_t row = 0; row < batch_.n_source_rows(); ++row) {
    const int seq = batch_.seq_of_source_row(row);
    write(seq, row, static_cast<int>(row) - batch_.source_start[seq]);
  }
}

void Backend::attention(Tensor y, Tensor q, const KvCache& cache, const AttentionArgs& a) {
  HostRows host(*this);
  y = host.out(y), q = host.in(q);
  const Tensor sinks = host.in(a.sinks);
  auto& kv = static_cast<RefKv&>(const_cast<KvCache&>(cache));
  for_each_token(batch_, [&](int seq, int64_t t) {
    const int position = batch_.positions[t];
    const int seen = a.causal       ? (a.sees_later ? batch_.seen_by(t) : position + 1)
                     : a.window > 0 ? position + a.window
                                    : batch_.kv_len[seq];
    const bool whole = kv.shape.of_source;
    const int end = whole ? batch_.source_len[seq] : std::min(seen, batch_.kv_len[seq]);
    const int begin = a.window > 0 && !whole ? std::max(0, position + 1 - a.window) : 0;
    const int32_t* blocks = batch_.blocks(seq, kv.shape.table);
    for (int h = 0; h < a.n_heads; ++h) attend(y.f32(t), q.f32(t), kv, a, sinks, blocks, h, begin, end);
  });
}

}  // namespace ingot

#include "backend/ref/ref_backend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "backend/ref/ref_recurrence.h"
#include "backend/route.h"
#include "backend/sampler.h"
#include "base/half.h"
#include "quant/f8_e4m3.h"

namespace ingot {
namespace {

// A page holds, layer by layer, block_size keys and then block_size values: [n_blocks, n_layers, n_parts,
// block_size, kv_dim].
// Elements are rounded to the cache's dtype, so that ref sees what a real cache of that type would hold.
class RefKv : public KvCache {
 public:
  explicit RefKv(const KvShape& s)
      : KvCache(s), kv_dim(int64_t{s.n_kv_heads} * s.head_dim),
        data(static_cast<size_t>(s.n_blocks) * s.n_layers * s.n_parts() * s.block_size * kv_dim) {}

  // The key (which = 0) or value (1) row of a token: [kv_dim].
  float* row(int layer, int which, int32_t block, int offset) {
    CHECK(block >= 0 && block < shape.n_blocks);
    const int part = shape.values_are_keys ? 0 : which;
    return &data[((((int64_t{block} * shape.n_layers) + layer) * shape.n_parts() + part) * shape.block_size + offset) * kv_dim];
  }

  const int64_t kv_dim;
  std::vector<float> data;
};

// A group as bytes times a scale: the largest becomes 127. A number that is none, or infinite, makes all of them none.
void round_to_bytes(const float* x, float* y, int64_t n) {
  float most = 0, none = 0;
  for (int64_t i = 0; i < n; ++i) {
    most = std::max(most, std::abs(x[i]));
    none += x[i] * 0.0f;
  }
  const float scale = float_from_f16(f16_from_float(most / 127.0f + none)), inverse = most > 0 ? 127.0f / most : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const auto product = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i] * inverse) & ~1u);  // as the cpu's kernels do it
    y[i] = std::nearbyint(product) * scale;
  }
}

// What a cache of this type would hold of a token's key or value: [kv_dim].
void round_row(const float* x, float* y, const KvShape& shape) {
  const int64_t n = int64_t{shape.n_kv_heads} * shape.head_dim;
  if (shape.dtype == DType::kQ8_0) {
    for (int64_t head = 0; head < n; head += shape.head_dim)
      for (int64_t i = 0; i < shape.head_dim; i += 32)
        round_to_bytes(x + head + i, y + head + i, std::min<int64_t>(32, shape.head_dim - i));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    y[i] = shape.dtype == DType::kF16    ? float_from_f16(f16_from_float(x[i]))
           : shape.dtype == DType::kBF16 ? float_from_bf16(bf16_from_float(x[i]))
           : shape.dtype == DType::kE4M3 ? quant::float_from_e4m3(quant::e4m3_from_float(x[i]))
                                         : x[i];
}

float activate(float x, Activation act) {
  if (act == Activation::kSilu) return x / (1.0f + std::exp(-x));
  if (act == Activation::kGelu) return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
  return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}

float gated(float gate, float up, Activation act) {
  if (act != Activation::kClampedSwiglu) return activate(gate, act) * up;
  const float g = std::min(gate, 7.0f), u = std::clamp(up, -7.0f, 7.0f);
  return g / (1.0f + std::exp(-1.702f * g)) * (u + 1.0f);
}

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{a[i]} * b[i];
  return sum;
}

class RefBackend final : public Backend {
 public:
  std::string name() const override { return "ref"; }
  std::string description() const override { return "ref: plain C++, the oracle, one thread"; }

  Tensor alloc(DType dtype, int64_t rows, int64_t cols) override {
    buffers_.emplace_back(static_cast<size_t>(rows * cols) * dtype_bytes(dtype));
    allocated_ += buffers_.back().size();
    return {buffers_.back().data(), dtype, rows, cols, cols};
  }
  Weight prepare(const Weight& host, unsigned) override { return host; }
  bool keeps_kv_as(DType) const override { return true; }
  std::unique_ptr<KvCache> make_kv(const KvShape& shape) override {
    auto kv = std::make_unique<RefKv>(shape);
    allocated_ += kv->data.size() * sizeof(float);
    return kv;
  }
  std::unique_ptr<StateCache> make_states(const StateShape& shape) override {
    auto states = std::make_unique<RefStates>(shape);
    allocated_ += states->data.size() * sizeof(float);
    return states;
  }
  size_t allocated_bytes() const override { return allocated_; }
  void upload(const Tensor& to, const void* from) override { std::memcpy(to.data, from, bytes(to)); }
  void download(void* to, const Tensor& from) override { std::memcpy(to, from.data, bytes(from)); }

  void begin(const Batch& batch) override {
    batch_ = batch;
    batch_.tokens = with_drawn_tokens(batch, sampled_, tokens_);
  }
  void sample(const Tensor& logits, std::span<const SampleRow> rows) override {
    SamplerScratch scratch(static_cast<int>(logits.cols));
    sampled_.clear();
    for (size_t i = 0; i < rows.size(); ++i)
      sampled_.push_back(draw_row({logits.f32(i), static_cast<size_t>(logits.cols)}, rows[i], scratch));
  }
  std::vector<Sampled> wait() override { return std::exchange(sampled_, {}); }

  void embed(Tensor x, const Weight& table, float scale) override {
    for (int64_t t = 0; t < x.rows; ++t) {
      CHECK(batch_.tokens[t] >= 0 && batch_.tokens[t] < table.n_out);
      decode_row(table.format, table.row(batch_.tokens[t]), x.f32(t), x.cols);
      for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] *= scale;
    }
  }

  void matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) override {
    CHECK_EQ(x.cols, w.n_in);
    CHECK_EQ(y.cols, w.n_out);
    std::vector<float> row(w.n_in);
    for (int64_t o = 0; o < w.n_out; ++o) {
      decode_row(w.format, w.row(o), row.data(), w.n_in);
      for (int64_t t = 0; t < x.rows; ++t)
        y.f32(t)[o] = static_cast<float>(dot(row.data(), x.f32(t), w.n_in) + (bias ? bias.f32()[o] : 0.0f));
    }
  }

  void norm(Tensor y, Tensor x, const NormArgs& a) override {
    for (int64_t t = 0; t < x.rows; ++t) {
      const float* in = x.f32(t);
      double mean = 0;
      if (a.kind == NormKind::kLayer) {
        for (int64_t i = 0; i < x.cols; ++i) mean += in[i];
        mean /= static_cast<double>(x.cols);
      }
      double squares = 0;
      for (int64_t i = 0; i < x.cols; ++i) squares += (in[i] - mean) * (in[i] - mean);
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + a.eps);
      for (int64_t i = 0; i < x.cols; ++i) {
        const double normed = (in[i] - mean) * inverse * a.weight.f32()[i];
        y.f32(t)[i] = static_cast<float>(normed + (a.bias ? a.bias.f32()[i] : 0.0f));
      }
    }
  }

  void add(Tensor x, Tensor y) override {
    for (int64_t t = 0; t < x.rows; ++t)
      for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] += y.f32(t)[i];
  }

  void act_mul(Tensor y, Tensor gate, Tensor up, Activation act) override {
    for (int64_t t = 0; t < y.rows; ++t)
      for (int64_t i = 0; i < y.cols; ++i) y.f32(t)[i] = gated(gate.f32(t)[i], up.f32(t)[i], act);
  }

  void rope_angles(Tensor angles, Tensor inv_freq, float magnitude) override {
    const int64_t n_freq = inv_freq.cols;
    for (int64_t t = 0; t < angles.rows; ++t)
      for (int64_t i = 0; i < n_freq; ++i) {
        const float angle = static_cast<float>(batch_.positions[t]) * inv_freq.f32()[i];
        angles.f32(t)[i] = std::cos(angle) * magnitude;
        angles.f32(t)[n_freq + i] = std::sin(angle) * magnitude;
      }
  }

  void rope(Tensor x, int n_heads, const RopeArgs& a) override {
    const int64_t half = a.angles.cols / 2, head_dim = x.cols / n_heads;
    const bool split = a.layout == RopeLayout::kHalfSplit;
    for (int64_t t = 0; t < x.rows; ++t)
      for (int h = 0; h < n_heads; ++h)
        for (int64_t i = 0; i < half; ++i) {
          float* head = x.f32(t) + h * head_dim;
          float& first = head[split ? i : 2 * i];
          float& second = head[split ? i + half : 2 * i + 1];
          const float c = a.angles.f32(t)[i], s = a.angles.f32(t)[half + i], u = first, v = second;
          first = u * c - v * s;
          second = v * c + u * s;
        }
  }

  void kv_write(KvCache& cache, int layer, Tensor k, Tensor v) override {
    auto& kv = static_cast<RefKv&>(cache);
    for_each_token([&](int seq, int64_t t) {
      const int position = batch_.positions[t], size = kv.shape.block_size;
      const int32_t block = batch_.blocks(seq)[position / size];
      round_row(k.f32(t), kv.row(layer, 0, block, position % size), kv.shape);
      round_row(v.f32(t), kv.row(layer, 1, block, position % size), kv.shape);
    });
  }

  void attention(Tensor y, Tensor q, const KvCache& cache, const AttentionArgs& a) override {
    auto& kv = static_cast<RefKv&>(const_cast<KvCache&>(cache));
    for_each_token([&](int seq, int64_t t) {
      const int position = batch_.positions[t];
      const int seen = a.causal ? position + 1 : a.window > 0 ? position + a.window : batch_.kv_len[seq];
      const int end = std::min(seen, batch_.kv_len[seq]);
      const int begin = a.window > 0 ? std::max(0, position + 1 - a.window) : 0;
      for (int h = 0; h < a.n_heads; ++h) attend(y.f32(t), q.f32(t), kv, a, seq, h, begin, end);
    });
  }

  bool runs_experts() const override { return true; }
  bool runs_recurrence() const override { return true; }

  void gate(Tensor x, Tensor gate) override {
    for (int64_t t = 0; t < x.rows; ++t)
      for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] /= 1.0f + std::exp(-gate.f32(t)[i]);
  }
  void short_conv(Tensor x, Tensor weight, StateCache& states, int layer) override {
    ref_short_conv(batch_, x, weight, static_cast<RefStates&>(states), layer);
  }
  void delta_rule(const DeltaRuleArgs& args) override { ref_delta_rule(batch_, args); }

  void copy(Tensor y, Tensor x) override {
    for (int64_t t = 0; t < x.rows; ++t) std::memcpy(y.f32(t), x.f32(t), static_cast<size_t>(x.cols) * sizeof(float));
  }

  void moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& a) override {
    for (int64_t t = 0; t < logits.rows; ++t) route_token(ids.i32(t), weights.f32(t), {logits.f32(t), static_cast<size_t>(logits.cols)}, a);
  }

  void moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) override {
    CHECK_EQ(x.cols, w.n_in);
    CHECK_EQ(y.cols, w.n_out);
    CHECK_EQ(y.rows, ids.rows * ids.cols);
    CHECK_EQ(y.rows % x.rows, 0);
    std::vector<float> row(w.n_in);
    for (int64_t i = 0; i < y.rows; ++i) {
      const int64_t expert = ids.i32(i / ids.cols)[i % ids.cols];
      CHECK(expert >= 0 && expert < w.n_experts);
      for (int64_t o = 0; o < w.n_out; ++o) {
        decode_row(w.format, w.row(expert * w.n_out + o), row.data(), w.n_in);
        const double sum = dot(row.data(), x.f32(i * x.rows / y.rows), w.n_in);
        y.f32(i)[o] = static_cast<float>(sum + (bias ? bias.f32(expert)[o] : 0.0f));
      }
    }
  }

  void act(Tensor x, Activation act) override {
    for (int64_t t = 0; t < x.rows; ++t)
      for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] = activate(x.f32(t)[i], act);
  }

  void add_positions(Tensor x, Tensor table) override {
    for (int64_t t = 0; t < x.rows; ++t) {
      const int64_t row = table.rows == 1 ? 0 : batch_.positions[t];
      CHECK_LT(row, table.rows);
      for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] += table.f32(row)[i];
    }
  }

  void pool(Tensor y, Tensor x, Pooling pooling) override {
    for (int seq = 0; seq < batch_.n_seqs(); ++seq) {
      const int begin = batch_.q_start[seq], end = batch_.q_start[seq + 1];
      const int first = pooling == Pooling::kLast ? end - 1 : begin, last = pooling == Pooling::kCls ? begin + 1 : end;
      for (int64_t i = 0; i < x.cols; ++i) {
        double sum = 0;
        for (int t = first; t < last; ++t) sum += x.f32(t)[i];
        y.f32(seq)[i] = static_cast<float>(sum / (last - first));
      }
    }
  }

  void moe_combine(Tensor residual, Tensor y, Tensor weights) override {
    for (int64_t i = 0; i < y.rows; ++i) {
      const int64_t t = i / weights.cols;
      for (int64_t j = 0; j < y.cols; ++j) residual.f32(t)[j] += weights.f32(t)[i % weights.cols] * y.f32(i)[j];
    }
  }

  void gather_rows(Tensor y, Tensor x) override {
    for (int64_t i = 0; i < y.rows; ++i) std::memcpy(y.f32(i), x.f32(batch_.logit_rows[i]), x.cols * sizeof(float));
  }

  void scale(Tensor x, float factor, float softcap) override {
    for (int64_t t = 0; t < x.rows; ++t)
      for (int64_t i = 0; i < x.cols; ++i) {
        const float v = x.f32(t)[i] * factor;
        x.f32(t)[i] = softcap > 0 ? softcap * std::tanh(v / softcap) : v;
      }
  }

 private:
  static size_t bytes(const Tensor& t) {
    CHECK(t.contiguous());
    return static_cast<size_t>(t.rows * t.cols) * dtype_bytes(t.dtype);
  }

  template <class F>
  void for_each_token(F&& f) {
    for (int seq = 0; seq < batch_.n_seqs(); ++seq)
      for (int64_t t = batch_.q_start[seq]; t < batch_.q_start[seq + 1]; ++t) f(seq, t);
  }

  // One head of one query over the positions [begin, end) of its sequence: softmax(q k^T * scale) v.
  void attend(float* y, const float* q, RefKv& kv, const AttentionArgs& a, int seq, int h, int begin, int end) {
    const int64_t kv_head = int64_t{h / (a.n_heads / a.n_kv_heads)} * a.head_dim;
    const int32_t* blocks = batch_.blocks(seq);
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
    if (a.sinks) {
      largest = std::max(largest, double{a.sinks.f32()[h]});
      total = std::exp(a.sinks.f32()[h] - largest);
    }
    std::vector<double> out(a.head_dim);
    for (int p = begin; p < end; ++p) {
      const double weight = std::exp(scores[p - begin] - largest);
      total += weight;
      for (int i = 0; i < a.head_dim; ++i) out[i] += weight * row(1, p)[i];
    }
    for (int i = 0; i < a.head_dim; ++i) y[int64_t{h} * a.head_dim + i] = static_cast<float>(out[i] / total);
  }

  std::vector<std::vector<char>> buffers_;
  size_t allocated_ = 0;
  Batch batch_;
  std::vector<int32_t> tokens_;  // of the batch, where some were drawn
  std::vector<Sampled> sampled_;
};

}  // namespace

std::unique_ptr<Backend> create_ref_backend() { return std::make_unique<RefBackend>(); }

}  // namespace ingot

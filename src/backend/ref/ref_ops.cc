// The plain bodies of the primitives, which every backend inherits. Each is plain C++ on the host and sums in double.
// They define what an op means, and are the oracle of every override. Tensors of a device are accessed through
// HostRows.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/backend.h"
#include "backend/ref/host_rows.h"
#include "backend/route.h"
#include "backend/row_ops.h"

namespace ingot {
namespace {

float activate(float x, Activation act) {
  if (act == Activation::kSquaredRelu) return x > 0 ? x * x : 0.0f;
  if (act == Activation::kSigmoid) return 1.0f / (1.0f + std::exp(-x));
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

}  // namespace

void Backend::embed(Tensor x, const Weight& table, float scale) {
  HostRows host(*this);
  x = host.out(x);
  for (int64_t t = 0; t < x.rows; ++t) {
    CHECK_GE(batch_.tokens[t], 0);
    decode_row(table.format, table.row(table_row(batch_.tokens[t], table)), x.f32(t), x.cols);
    for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] *= scale;
  }
}

void Backend::matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) {
  HostRows host(*this);
  y = host.out(y), x = host.in(x), bias = host.in(bias);
  CHECK_EQ(x.cols, w.n_in);
  CHECK_EQ(y.cols, w.n_out);
  std::vector<float> row(w.n_in);
  for (int64_t o = 0; o < w.n_out; ++o) {
    decode_row(w.format, w.row(o), row.data(), w.n_in);
    for (int64_t t = 0; t < x.rows; ++t)
      y.f32(t)[o] = static_cast<float>(dot(row.data(), x.f32(t), w.n_in) + (bias ? bias.f32()[o] : 0.0f));
  }
}

void Backend::norm(Tensor y, Tensor x, const NormArgs& a) {
  HostRows host(*this);
  const Tensor weight = host.in(a.weight), bias = host.in(a.bias), from = host.in(x);
  y = host.out(y);
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* in = from.f32(t);
    double mean = 0;
    if (a.kind == NormKind::kLayer) {
      for (int64_t i = 0; i < x.cols; ++i) mean += in[i];
      mean /= static_cast<double>(x.cols);
    }
    double squares = 0;
    for (int64_t i = 0; i < x.cols; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + a.eps);
    for (int64_t i = 0; i < x.cols; ++i) {
      const double normed = (in[i] - mean) * inverse * (weight ? weight.f32()[i] : 1.0f);
      y.f32(t)[i] = static_cast<float>(normed + (bias ? bias.f32()[i] : 0.0f));
    }
  }
}

void Backend::add(Tensor x, Tensor y) {
  HostRows host(*this);
  x = host.inout(x), y = host.in(y);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] += y.f32(t)[i];
}

void Backend::act_mul(Tensor y, Tensor gate, Tensor up, Activation act) {
  HostRows host(*this);
  const Tensor g = host.in(gate), u = host.in(up);
  y = host.out(y);
  for (int64_t t = 0; t < y.rows; ++t)
    for (int64_t i = 0; i < y.cols; ++i) y.f32(t)[i] = gated(g.f32(t)[i], u.f32(t)[i], act);
}

void Backend::act(Tensor x, Activation act, Tensor bias) {
  HostRows host(*this);
  x = host.inout(x), bias = host.in(bias);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] = activate(x.f32(t)[i] + (bias ? bias.f32()[i] : 0.0f), act);
}

void Backend::rope_angles(Tensor angles, Tensor inv_freq, float magnitude, Tensor axes) {
  HostRows host(*this);
  angles = host.out(angles), inv_freq = host.in(inv_freq), axes = host.in(axes);
  const int64_t n_freq = inv_freq.cols;
  for (int64_t t = 0; t < angles.rows; ++t)
    for (int64_t i = 0; i < n_freq; ++i) {
      const int32_t position = axes ? batch_.rope_position(axes.i32()[i], t) : batch_.positions[t];
      const float angle = static_cast<float>(position) * inv_freq.f32()[i];
      angles.f32(t)[i] = std::cos(angle) * magnitude;
      angles.f32(t)[n_freq + i] = std::sin(angle) * magnitude;
    }
}

void Backend::rope(Tensor x, int n_heads, const RopeArgs& a) {
  HostRows host(*this);
  x = host.inout(x);
  const Tensor angles = host.in(a.angles);
  const int64_t half = angles.cols / 2, head_dim = x.cols / n_heads;
  const bool split = a.layout == RopeLayout::kHalfSplit;
  for (int64_t t = 0; t < x.rows; ++t)
    for (int h = 0; h < n_heads; ++h)
      for (int64_t i = 0; i < half; ++i) {
        float* head = x.f32(t) + h * head_dim;
        float& first = head[split ? i : 2 * i];
        float& second = head[split ? i + half : 2 * i + 1];
        const float c = angles.f32(t)[i], s = angles.f32(t)[half + i], u = first, v = second;
        first = u * c - v * s;
        second = v * c + u * s;
      }
}

// The element (i, j) of Sylvester's matrix is -1 if i & j has an odd number of bits, otherwise 1.
void Backend::hadamard(Tensor x, int block) {
  HostRows host(*this);
  x = host.inout(x);
  CHECK(block > 0 && (block & (block - 1)) == 0 && x.cols % block == 0);
  std::vector<float> in(static_cast<size_t>(block));
  for (int64_t t = 0; t < x.rows; ++t)
    for (float* out = x.f32(t); out < x.f32(t) + x.cols; out += block) {
      std::copy_n(out, block, in.begin());
      for (int i = 0; i < block; ++i) {
        double sum = 0;
        for (int j = 0; j < block; ++j) sum += std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? in[j] : -in[j];
        out[i] = static_cast<float>(sum / std::sqrt(block));
      }
    }
}

void Backend::add_positions(Tensor x, Tensor table) {
  HostRows host(*this);
  x = host.inout(x), table = host.in(table);
  for (int64_t t = 0; t < x.rows; ++t) {
    const int64_t row = table.rows == 1 ? 0 : batch_.positions[t];
    CHECK_LT(row, table.rows);
    for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] += table.f32(row)[i];
  }
}

void Backend::cut_patches(Tensor y, const PatchArgs& a) {
  HostRows host(*this);
  y = host.out(y);
  const Tensor rgb = host.in(a.rgb), values = host.in(a.values), places = host.in(a.places);
  const auto* bytes = reinterpret_cast<const uint8_t*>(rgb.i32());
  const int64_t patch = a.patch, columns = a.width / a.patch;
  for (int64_t t = 0; t < y.rows; ++t) {
    const int64_t top = places.i32()[t] / columns * patch, left = places.i32()[t] % columns * patch;
    for (int64_t i = 0; i < y.cols; ++i) {
      const int64_t channel = i / (patch * patch), row = i / patch % patch, column = i % patch;
      const int64_t at = 3 * ((top + row) * a.width + left + column) + channel;
      CHECK_LT(at, 4 * rgb.cols);
      y.f32(t)[i] = values.f32(channel)[bytes[at]];
    }
  }
}

void Backend::add_mixed_rows(Tensor x, Tensor table, Tensor rows, Tensor factors) {
  HostRows host(*this);
  x = host.inout(x), table = host.in(table), rows = host.in(rows), factors = host.in(factors);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t j = 0; j < rows.cols; ++j) {
      const int64_t row = rows.i32(t)[j];
      CHECK_LT(row, table.rows);
      for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] += factors.f32(t)[j] * table.f32(row)[i];
    }
}

void Backend::mean_rows(Tensor y, Tensor x) {
  HostRows host(*this);
  const Tensor in = host.in(x);
  y = host.out(y);
  CHECK_EQ(in.rows % y.rows, 0);
  const int64_t k = in.rows / y.rows;
  for (int64_t i = 0; i < y.rows; ++i)
    for (int64_t c = 0; c < y.cols; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < k; ++r) sum += in.f32(i * k + r)[c];
      y.f32(i)[c] = static_cast<float>(sum / static_cast<double>(k));
    }
}

void Backend::pool(Tensor y, Tensor x, Pooling pooling) {
  HostRows host(*this);
  y = host.out(y), x = host.in(x);
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

void Backend::gather_rows(Tensor y, Tensor x) {
  HostRows host(*this);
  y = host.out(y), x = host.in(x);
  for (int64_t i = 0; i < y.rows; ++i) std::memcpy(y.f32(i), x.f32(batch_.logit_rows[i]), x.cols * sizeof(float));
}

void Backend::scale(Tensor x, float factor, float softcap) {
  HostRows host(*this);
  x = host.inout(x);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t i = 0; i < x.cols; ++i) {
      const float v = x.f32(t)[i] * factor;
      x.f32(t)[i] = softcap > 0 ? softcap * std::tanh(v / softcap) : v;
    }
}

void Backend::clamp(Tensor x, float low, float high) {
  HostRows host(*this);
  x = host.inout(x);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] = std::min(std::max(x.f32(t)[i], low), high);
}

void Backend::copy(Tensor y, Tensor x) {
  HostRows host(*this);
  y = host.out(y), x = host.in(x);
  for (int64_t t = 0; t < x.rows; ++t) std::memcpy(y.f32(t), x.f32(t), static_cast<size_t>(x.cols) * sizeof(float));
}

void Backend::scale_by_position(Tensor x, const PositionScale& args) {
  HostRows host(*this);
  x = host.inout(x);
  for (int64_t t = 0; t < x.rows; ++t) scale_row(x.f32(t), x.cols, position_factor(args, batch_.positions[t]));
}

void Backend::scale_groups(Tensor x, Tensor factors, GroupFactor kind) {
  HostRows host(*this);
  x = host.inout(x), factors = host.in(factors);
  for (int64_t t = 0; t < x.rows; ++t)
    scale_groups_of_row(x.f32(t), x.cols, factors.f32(factors.rows > 1 ? t : 0), factors.cols, kind);
}

void Backend::xielu(Tensor x, const Xielu& args) {
  HostRows host(*this);
  x = host.inout(x);
  for (int64_t t = 0; t < x.rows; ++t) xielu_row(x.f32(t), x.cols, args);
}

void Backend::match_size(Tensor y, Tensor x) {
  HostRows host(*this);
  y = host.inout(y), x = host.in(x);
  for (int64_t t = 0; t < y.rows; ++t) match_size_of_row(y.f32(t), x.f32(t * x.rows / y.rows), y.cols);
}

void Backend::mix_streams(Tensor x, Tensor streams, Tensor coefs) {
  HostRows host(*this);
  x = host.inout(x), streams = host.inout(streams), coefs = host.in(coefs);
  const int64_t m = streams.cols / x.cols + 1;
  CHECK_LE(m, kMaxStreams);
  for (int64_t t = 0; t < x.rows; ++t) mix_streams_of_row(x.f32(t), streams.f32(t), coefs.f32(t), m, x.cols);
}

void Backend::correct_streams(Tensor x, Tensor predicted, Tensor streams, Tensor coefs) {
  HostRows host(*this);
  x = host.inout(x), predicted = host.in(predicted), streams = host.inout(streams), coefs = host.in(coefs);
  const int64_t m = streams.cols / x.cols + 1;
  for (int64_t t = 0; t < x.rows; ++t)
    correct_streams_of_row(x.f32(t), predicted.f32(t), streams.f32(t), coefs.f32(t), m, x.cols);
}

void Backend::keep_above(Tensor x, float deviations) {
  HostRows host(*this);
  x = host.inout(x);
  for (int64_t t = 0; t < x.rows; ++t) keep_above_row(x.f32(t), x.cols, deviations);
}

void Backend::gate(Tensor x, Tensor gate) {
  HostRows host(*this);
  x = host.inout(x), gate = host.in(gate);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t i = 0; i < x.cols; ++i) x.f32(t)[i] /= 1.0f + std::exp(-gate.f32(t)[i]);
}

void Backend::moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) {
  HostRows host(*this);
  RouteArgs a = args;
  ids = host.out(ids), weights = host.out(weights), logits = host.in(logits), a.bias = host.in(a.bias);
  a.expert_scale = host.in(a.expert_scale);
  for (int64_t t = 0; t < logits.rows; ++t)
    route_token(ids.i32(t), weights.f32(t), {logits.f32(t), static_cast<size_t>(logits.cols)}, a);
}

void Backend::moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) {
  HostRows host(*this);
  y = host.out(y), x = host.in(x), ids = host.in(ids), bias = host.in(bias);
  CHECK_EQ(x.cols, w.n_in);
  CHECK_EQ(y.cols, w.n_out);
  CHECK_EQ(y.rows, ids.rows * ids.cols);
  CHECK_EQ(y.rows % x.rows, 0);
  std::vector<float> row(w.n_in);
  for (int64_t i = 0; i < y.rows; ++i) {
    const int64_t expert = ids.i32(i / ids.cols)[i % ids.cols];
    CHECK(expert >= -1 && expert < w.n_experts);
    if (expert < 0) continue;
    for (int64_t o = 0; o < w.n_out; ++o) {
      decode_row(w.format, w.row(expert * w.n_out + o), row.data(), w.n_in);
      const double sum = dot(row.data(), x.f32(i * x.rows / y.rows), w.n_in);
      y.f32(i)[o] = static_cast<float>(sum + (bias ? bias.f32(expert)[o] : 0.0f));
    }
  }
}

void Backend::moe_combine(Tensor residual, Tensor y, Tensor weights) {
  HostRows host(*this);
  residual = host.inout(residual), y = host.in(y), weights = host.in(weights);
  for (int64_t i = 0; i < y.rows; ++i) {
    const int64_t t = i / weights.cols;
    const float weight = weights.f32(t)[i % weights.cols];
    if (weight == 0) continue;
    for (int64_t j = 0; j < y.cols; ++j) residual.f32(t)[j] += weight * y.f32(i)[j];
  }
}

}  // namespace ingot

// Recurrent layers, computed token by token as in the formulas, with sums in double. The states are in host memory.

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/backend.h"
#include "backend/ref/host_rows.h"
#include "backend/ref/ref_states.h"

namespace ingot {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

std::vector<double> unit_vector(const float* x, int n, double scale) {
  double squares = 1e-6;
  for (int i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  std::vector<double> unit(n);
  for (int i = 0; i < n; ++i) unit[i] = x[i] / std::sqrt(squares) * scale;
  return unit;
}

// One token of one head of a state-space model: updates its matrix S and returns c S + skip x in y.
void scan_step(float* s, float* y, const float* x, const float* b, const float* c, double keep, double step,
               double skip, int state_dim, int head_dim) {
  for (int j = 0; j < head_dim; ++j) {
    double out = skip * x[j];
    for (int i = 0; i < state_dim; ++i) {
      float& element = s[i * head_dim + j];
      element = static_cast<float>(keep * element + b[i] * step * x[j]);
      out += double{c[i]} * element;
    }
    y[j] = static_cast<float>(out);
  }
}

// One token of one head: updates its matrix S and writes y = q S.
void delta_step(float* s, float* y, const float* v, const std::vector<double>& q, const std::vector<double>& k,
                double keep, double beta, int value_dim) {
  for (int j = 0; j < value_dim; ++j) {
    double known = 0, out = 0;
    for (size_t i = 0; i < k.size(); ++i) known += k[i] * keep * s[i * value_dim + j];
    const double change = beta * (v[j] - known);
    for (size_t i = 0; i < k.size(); ++i) {
      float& element = s[i * value_dim + j];
      element = static_cast<float>(keep * element + k[i] * change);
      out += q[i] * element;
    }
    y[j] = static_cast<float>(out);
  }
}

}  // namespace

std::unique_ptr<StateCache> Backend::make_states(const StateShape& shape) { return std::make_unique<RefStates>(shape); }

void Backend::short_conv(const ShortConvArgs& args) {
  HostRows host(*this);
  const Tensor x = host.inout(args.x), weight = host.in(args.weight), bias = host.in(args.bias),
               in_gate = host.in(args.in_gate), out_gate = host.in(args.out_gate);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*args.states);
  const int buffer = args.buffer;
  const int n_channels = static_cast<int>(x.cols), width = static_cast<int>(weight.cols), kept = width - 1;
  const auto n_kept = static_cast<size_t>(kept) * static_cast<size_t>(n_channels);
  CHECK_EQ(weight.rows, x.cols);
  CHECK_EQ(states.buffer(buffer).size(), static_cast<int64_t>(n_kept));
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const int begin = batch.q_start[seq], n = batch.q_len(seq);
    std::vector<float> inputs(static_cast<size_t>(kept + n) * n_channels);  // with the inputs of earlier steps
    if (batch.state_in[seq] >= 0) std::copy_n(states.matrix(batch.state_in[seq], buffer), n_kept, inputs.data());
    for (int t = 0; t < n; ++t)
      for (int c = 0; c < n_channels; ++c)
        inputs[static_cast<size_t>(kept + t) * n_channels + c] =
            x.f32(begin + t)[c] * (in_gate ? in_gate.f32(begin + t)[c] : 1.0f);
    for (int t = 0; t < n; ++t)
      for (int c = 0; c < n_channels; ++c) {
        double sum = bias ? bias.f32()[c] : 0;
        for (int i = 0; i < width; ++i)
          sum += double{weight.f32(c)[i]} * inputs[static_cast<size_t>(t + i) * n_channels + c];
        if (args.silu) sum *= sigmoid(sum);
        x.f32(begin + t)[c] = static_cast<float>(out_gate ? sum * out_gate.f32(begin + t)[c] : sum);
      }
    std::copy_n(&inputs[static_cast<size_t>(n) * n_channels], n_kept, states.matrix(batch.state_out[seq], buffer));
  }
}

void Backend::delta_rule(const DeltaRuleArgs& args) {
  HostRows host(*this);
  DeltaRuleArgs a = args;
  a.y = host.out(a.y);
  for (Tensor* t : {&a.qkv, &a.beta, &a.alpha, &a.decay, &a.dt}) *t = host.in(*t);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*a.states);
  const StateBuffer& s = states.buffer(a.buffer);
  const int n_heads = static_cast<int>(s.count), key_dim = static_cast<int>(s.rows),
            value_dim = static_cast<int>(s.cols);
  const int keys = a.n_key_heads * key_dim, shared = n_heads / a.n_key_heads;
  CHECK_EQ(a.qkv.cols, 2 * keys + n_heads * value_dim);
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (int h = 0; h < n_heads; ++h) {
      const int key_head = a.tiled ? h % a.n_key_heads : h / shared;
      std::vector<float> matrix(static_cast<size_t>(s.rows * s.cols));
      if (batch.state_in[seq] >= 0)
        std::copy_n(states.matrix(batch.state_in[seq], a.buffer, h), matrix.size(), matrix.data());
      for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) {
        const float* row = a.qkv.f32(t);
        const auto q = unit_vector(row + key_head * key_dim, key_dim, 1 / std::sqrt(static_cast<double>(key_dim)));
        const auto k = unit_vector(row + keys + key_head * key_dim, key_dim, 1);
        const double keep = std::exp(a.decay.f32()[h] * softplus(double{a.alpha.f32(t)[h]} + a.dt.f32()[h]));
        delta_step(matrix.data(), a.y.f32(t) + int64_t{h} * value_dim, row + 2 * keys + int64_t{h} * value_dim, q, k,
                   keep, a.share * sigmoid(a.beta.f32(t)[h]), value_dim);
      }
      std::copy(matrix.begin(), matrix.end(), states.matrix(batch.state_out[seq], a.buffer, h));
    }
}

void Backend::ssm_scan(const SsmScanArgs& args) {
  HostRows host(*this);
  SsmScanArgs a = args;
  const bool in_place = a.y.data == a.x.data;
  a.y = in_place ? host.inout(a.y) : host.out(a.y);
  a.x = in_place ? a.y : host.in(a.x);
  for (Tensor* t : {&a.b, &a.c, &a.dt, &a.decay, &a.dt_bias, &a.skip}) *t = host.in(*t);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*a.states);
  const StateBuffer& s = states.buffer(a.buffer);
  const int n_heads = static_cast<int>(s.count), state_dim = static_cast<int>(s.rows),
            head_dim = static_cast<int>(s.cols);
  CHECK_EQ(a.x.cols, int64_t{n_heads} * head_dim);
  CHECK_EQ(a.b.cols, int64_t{a.n_groups} * state_dim);
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (int h = 0; h < n_heads; ++h) {
      const int64_t group = h / (n_heads / a.n_groups), column = int64_t{h} * head_dim;
      std::vector<float> matrix(static_cast<size_t>(s.rows * s.cols));
      if (batch.state_in[seq] >= 0)
        std::copy_n(states.matrix(batch.state_in[seq], a.buffer, h), matrix.size(), matrix.data());
      for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) {
        const double step = std::clamp(softplus(double{a.dt.f32(t)[h]} + a.dt_bias.f32()[h]), double{a.min_step},
                                       double{a.max_step});
        scan_step(matrix.data(), a.y.f32(t) + column, a.x.f32(t) + column, a.b.f32(t) + group * state_dim,
                  a.c.f32(t) + group * state_dim, std::exp(a.decay.f32()[h] * step), step, a.skip.f32()[h], state_dim,
                  head_dim);
      }
      std::copy(matrix.begin(), matrix.end(), states.matrix(batch.state_out[seq], a.buffer, h));
    }
}

void Backend::selective_scan(const SelectiveScanArgs& args) {
  HostRows host(*this);
  SelectiveScanArgs a = args;
  const bool in_place = a.y.data == a.x.data;
  a.y = in_place ? host.inout(a.y) : host.out(a.y);
  a.x = in_place ? a.y : host.in(a.x);
  for (Tensor* t : {&a.dt, &a.b, &a.c, &a.decay, &a.dt_bias, &a.skip}) *t = host.in(*t);
  if (a.gate) a.gate = host.in(a.gate);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*a.states);
  const StateBuffer& s = states.buffer(a.buffer);
  const int n_channels = static_cast<int>(s.cols), state_dim = static_cast<int>(s.rows);
  CHECK_EQ(a.x.cols, s.cols);
  CHECK_EQ(a.b.cols, s.rows);
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    std::vector<float> state(static_cast<size_t>(s.rows * s.cols));
    if (batch.state_in[seq] >= 0)
      std::copy_n(states.matrix(batch.state_in[seq], a.buffer), state.size(), state.data());
    for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t)
      for (int j = 0; j < n_channels; ++j) {
        const double step = softplus(double{a.dt.f32(t)[j]} + a.dt_bias.f32()[j]), x = a.x.f32(t)[j];
        double out = a.skip.f32()[j] * x;
        for (int i = 0; i < state_dim; ++i) {
          float& element = state[static_cast<size_t>(i) * n_channels + j];
          element = static_cast<float>(std::exp(a.decay.f32(j)[i] * step) * element + a.b.f32(t)[i] * step * x);
          out += double{a.c.f32(t)[i]} * element;
        }
        if (a.gate) out *= a.gate.f32(t)[j] * sigmoid(a.gate.f32(t)[j]);
        a.y.f32(t)[j] = static_cast<float>(out);
      }
    std::copy(state.begin(), state.end(), states.matrix(batch.state_out[seq], a.buffer));
  }
}

void Backend::kda_inputs(const KdaInputsArgs& args) {
  HostRows host(*this);
  KdaInputsArgs a = args;
  for (Tensor* t : {&a.q, &a.k, &a.keep}) *t = host.inout(*t);
  for (Tensor* t : {&a.a, &a.b}) *t = host.out(*t);
  for (Tensor* t : {&a.beta, &a.decay, &a.dt}) *t = host.in(*t);
  const int n_heads = static_cast<int>(a.beta.cols), dim = static_cast<int>(a.q.cols) / n_heads;
  for (int64_t t = 0; t < a.q.rows; ++t)
    for (int i = 0; i < n_heads * dim; ++i) {
      const int h = i / dim;
      if (i % dim == 0) {
        const auto q = unit_vector(a.q.f32(t) + i, dim, 1 / std::sqrt(static_cast<double>(dim)));
        const auto k = unit_vector(a.k.f32(t) + i, dim, 1);
        std::copy(q.begin(), q.end(), a.q.f32(t) + i), std::copy(k.begin(), k.end(), a.k.f32(t) + i);
      }
      const double keep = std::exp(a.decay.f32()[h] * softplus(double{a.keep.f32(t)[i]} + a.dt.f32()[i])),
                   key = a.k.f32(t)[i], take = sigmoid(a.beta.f32(t)[h]) * key;
      a.keep.f32(t)[i] = static_cast<float>(keep), a.a.f32(t)[i] = static_cast<float>(keep * key);
      a.k.f32(t)[i] = static_cast<float>(take), a.b.f32(t)[i] = static_cast<float>(-take);
    }
}

void Backend::rank_one_rule(const RankOneRuleArgs& args) {
  HostRows host(*this);
  RankOneRuleArgs a = args;
  a.y = host.out(a.y);
  for (Tensor* t : {&a.q, &a.keep, &a.a, &a.b, &a.k, &a.v}) *t = host.in(*t);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*a.states);
  const StateBuffer& s = states.buffer(a.buffer);
  const int n_heads = static_cast<int>(s.count), key_dim = static_cast<int>(s.rows),
            value_dim = static_cast<int>(s.cols);
  CHECK_EQ(a.q.cols, int64_t{n_heads} * key_dim);
  CHECK_EQ(a.v.cols, int64_t{n_heads} * value_dim);
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (int h = 0; h < n_heads; ++h) {
      std::vector<float> matrix(static_cast<size_t>(s.rows * s.cols));
      if (batch.state_in[seq] >= 0)
        std::copy_n(states.matrix(batch.state_in[seq], a.buffer, h), matrix.size(), matrix.data());
      for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) {
        const auto of = [&](const Tensor& rows) { return rows.f32(t) + int64_t{h} * key_dim; };
        for (int j = 0; j < value_dim; ++j) {
          const int64_t column = int64_t{h} * value_dim + j;
          double known = 0, out = 0;
          for (int i = 0; i < key_dim; ++i) known += double{of(a.a)[i]} * matrix[i * value_dim + j];
          for (int i = 0; i < key_dim; ++i) {
            float& element = matrix[i * value_dim + j];
            element = static_cast<float>(double{of(a.keep)[i]} * element + of(a.b)[i] * known +
                                         double{of(a.k)[i]} * a.v.f32(t)[column]);
            out += double{of(a.q)[i]} * element;
          }
          a.y.f32(t)[column] = static_cast<float>(out);
        }
      }
      std::copy(matrix.begin(), matrix.end(), states.matrix(batch.state_out[seq], a.buffer, h));
    }
}

void Backend::rg_lru(const RgLruArgs& args) {
  HostRows host(*this);
  const Tensor x = host.inout(args.x), input_gate = host.in(args.input_gate), decay_gate = host.in(args.decay_gate),
               decay = host.in(args.decay);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*args.states);
  CHECK_EQ(states.buffer(args.buffer).size(), x.cols);
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const int in = batch.state_in[seq], begin = batch.q_start[seq];
    std::vector<float> h(static_cast<size_t>(x.cols));
    if (in >= 0) std::copy_n(states.matrix(in, args.buffer), h.size(), h.data());
    for (int t = begin; t < batch.q_start[seq + 1]; ++t)
      for (int64_t c = 0; c < x.cols; ++c) {
        const double log_a = -8 * softplus(decay.f32()[c]) * sigmoid(decay_gate.f32(t)[c]),
                     gated = sigmoid(input_gate.f32(t)[c]) * x.f32(t)[c];
        const bool is_first = in < 0 && t == begin;
        const double next =
            is_first ? gated : std::exp(log_a) * h[static_cast<size_t>(c)] + std::sqrt(-std::expm1(2 * log_a)) * gated;
        x.f32(t)[c] = h[static_cast<size_t>(c)] = static_cast<float>(next);
      }
    std::copy(h.begin(), h.end(), states.matrix(batch.state_out[seq], args.buffer));
  }
}

}  // namespace ingot

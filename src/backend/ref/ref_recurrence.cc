// Recurrent layers, computed token by token as in the formulas, with sums in double. The states are in host memory.

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/backend.h"
#include "backend/ref/host_rows.h"

namespace ingot {
namespace {

// Slots of [layers][conv_width - 1 inputs of n_channels, oldest first; n_heads matrices [key_dim, value_dim]].
class RefStates : public StateCache {
 public:
  explicit RefStates(const StateShape& s)
      : StateCache(s),
        layer_floats(s.conv_floats() + s.n_heads * s.head_floats()),
        data(static_cast<size_t>(s.n_slots) * s.n_layers * layer_floats) {}

  float* inputs(int slot, int layer) {
    CHECK(slot >= 0 && slot < shape.n_slots && layer >= 0 && layer < shape.n_layers);
    return &data[(int64_t{slot} * shape.n_layers + layer) * layer_floats];
  }
  float* matrix(int slot, int layer, int head) {
    return inputs(slot, layer) + shape.conv_floats() + head * shape.head_floats();
  }

  const int64_t layer_floats;
  std::vector<float> data;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

std::vector<double> unit_vector(const float* x, int n, double scale) {
  double squares = 1e-6;
  for (int i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  std::vector<double> unit(n);
  for (int i = 0; i < n; ++i) unit[i] = x[i] / std::sqrt(squares) * scale;
  return unit;
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

void Backend::short_conv(Tensor x, Tensor weight, StateCache& cache, int layer) {
  HostRows host(*this);
  x = host.inout(x), weight = host.in(weight);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(cache);
  const StateShape& s = states.shape;
  CHECK_EQ(x.cols, s.n_channels);
  CHECK_EQ(weight.cols, s.conv_width);
  const int kept = s.conv_width - 1;
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const int begin = batch.q_start[seq], n = batch.q_len(seq);
    std::vector<float> inputs(static_cast<size_t>(kept + n) * s.n_channels);  // with the inputs of earlier steps
    if (batch.state_in[seq] >= 0)
      std::copy_n(states.inputs(batch.state_in[seq], layer), s.conv_floats(), inputs.data());
    for (int t = 0; t < n; ++t)
      std::copy_n(x.f32(begin + t), s.n_channels, &inputs[static_cast<size_t>(kept + t) * s.n_channels]);
    for (int t = 0; t < n; ++t)
      for (int c = 0; c < s.n_channels; ++c) {
        double sum = 0;
        for (int i = 0; i < s.conv_width; ++i)
          sum += double{weight.f32(c)[i]} * inputs[static_cast<size_t>(t + i) * s.n_channels + c];
        x.f32(begin + t)[c] = static_cast<float>(sum * sigmoid(sum));
      }
    std::copy_n(&inputs[static_cast<size_t>(n) * s.n_channels], s.conv_floats(),
                states.inputs(batch.state_out[seq], layer));
  }
}

void Backend::delta_rule(const DeltaRuleArgs& args) {
  HostRows host(*this);
  DeltaRuleArgs a = args;
  a.y = host.out(a.y);
  for (Tensor* t : {&a.qkv, &a.beta, &a.alpha, &a.decay, &a.dt}) *t = host.in(*t);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*a.states);
  const StateShape& s = states.shape;
  const int keys = a.n_key_heads * s.key_dim, shared = s.n_heads / a.n_key_heads;
  CHECK_EQ(a.qkv.cols, 2 * keys + s.n_heads * s.value_dim);
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    for (int h = 0; h < s.n_heads; ++h) {
      const int key_head = a.tiled ? h % a.n_key_heads : h / shared;
      std::vector<float> matrix(s.head_floats());
      if (batch.state_in[seq] >= 0)
        std::copy_n(states.matrix(batch.state_in[seq], a.layer, h), matrix.size(), matrix.data());
      for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) {
        const float* row = a.qkv.f32(t);
        const auto q =
            unit_vector(row + key_head * s.key_dim, s.key_dim, 1 / std::sqrt(static_cast<double>(s.key_dim)));
        const auto k = unit_vector(row + keys + key_head * s.key_dim, s.key_dim, 1);
        const double keep = std::exp(a.decay.f32()[h] * softplus(double{a.alpha.f32(t)[h]} + a.dt.f32()[h]));
        delta_step(matrix.data(), a.y.f32(t) + int64_t{h} * s.value_dim, row + 2 * keys + int64_t{h} * s.value_dim, q,
                   k, keep, sigmoid(a.beta.f32(t)[h]), s.value_dim);
      }
      std::copy(matrix.begin(), matrix.end(), states.matrix(batch.state_out[seq], a.layer, h));
    }
}

}  // namespace ingot

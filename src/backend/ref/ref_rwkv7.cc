// The ops of RWKV-7 besides its rule, as in the formulas, with sums in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/backend.h"
#include "backend/ref/host_rows.h"
#include "backend/ref/ref_states.h"

namespace ingot {
namespace {

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

void Backend::mix_tokens(const MixTokensArgs& args) {
  HostRows host(*this);
  const Tensor y = host.out(args.y), x = host.in(args.x), mix = host.in(args.mix);
  const Batch& batch = batch_;
  auto& states = static_cast<RefStates&>(*args.states);
  CHECK_EQ(y.cols, mix.rows * x.cols);
  CHECK_EQ(states.buffer(args.buffer).size(), x.cols);
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    std::vector<float> last(static_cast<size_t>(x.cols));
    if (batch.state_in[seq] >= 0)
      std::copy_n(states.matrix(batch.state_in[seq], args.buffer), last.size(), last.data());
    for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) {
      for (int64_t i = 0; i < mix.rows; ++i)
        for (int64_t c = 0; c < x.cols; ++c)
          y.f32(t)[i * x.cols + c] = static_cast<float>(
              x.f32(t)[c] + double{mix.f32(i)[c]} * (double{last[static_cast<size_t>(c)]} - x.f32(t)[c]));
      std::copy_n(x.f32(t), last.size(), last.data());
    }
    std::copy(last.begin(), last.end(), states.matrix(batch.state_out[seq], args.buffer));
  }
}

void Backend::wkv7_inputs(const Wkv7InputsArgs& args) {
  HostRows host(*this);
  Wkv7InputsArgs a = args;
  for (Tensor* t : {&a.k, &a.keep, &a.b, &a.v}) *t = host.inout(*t);
  a.a = host.out(a.a);
  a.v_first = a.v_gate ? host.in(a.v_first) : host.out(a.v_first);
  for (Tensor* t : {&a.v_gate, &a.k_k, &a.k_a}) *t = host.in(*t);
  const int64_t dim = a.k.cols / a.n_heads;
  for (int64_t t = 0; t < a.k.rows; ++t) {
    double length = 0;
    for (int64_t i = 0; i < a.k.cols; ++i) {
      if (i % dim == 0) {
        double squares = 0;
        for (int64_t j = i; j < i + dim; ++j) squares += std::pow(double{a.k.f32(t)[j]} * a.k_k.f32()[j], 2);
        length = std::max(std::sqrt(squares), 1e-12);
      }
      float &k = a.k.f32(t)[i], &keep = a.keep.f32(t)[i], &b = a.b.f32(t)[i], &v = a.v.f32(t)[i];
      const double kk = double{k} * a.k_k.f32()[i] / length, rate = logistic(b);
      keep = static_cast<float>(std::exp(-std::exp(-0.5) * logistic(keep)));
      k = static_cast<float>(k * (1 + (rate - 1) * a.k_a.f32()[i]));
      a.a.f32(t)[i] = static_cast<float>(-kk), b = static_cast<float>(kk * rate);
      if (a.v_gate)
        v = static_cast<float>(v + logistic(a.v_gate.f32(t)[i]) * (double{a.v_first.f32(t)[i]} - v));
      else
        a.v_first.f32(t)[i] = v;
    }
  }
}

void Backend::wkv7_outputs(const Wkv7OutputsArgs& args) {
  HostRows host(*this);
  Wkv7OutputsArgs a = args;
  a.y = host.inout(a.y);
  for (Tensor* t : {&a.r, &a.k, &a.v, &a.gate, &a.r_k, &a.norm.weight, &a.norm.bias}) *t = host.in(*t);
  const int64_t dim = a.y.cols / a.n_heads;
  for (int64_t t = 0; t < a.y.rows; ++t)
    for (int64_t first = 0; first < a.y.cols; first += dim) {
      const auto sum = [&](auto&& of) {
        double total = 0;
        for (int64_t i = first; i < first + dim; ++i) total += of(i);
        return total;
      };
      float* y = a.y.f32(t);
      const double mean = sum([&](int64_t i) { return double{y[i]}; }) / static_cast<double>(dim),
                   variance = sum([&](int64_t i) { return (y[i] - mean) * (y[i] - mean); }) / static_cast<double>(dim),
                   bonus = sum([&](int64_t i) { return double{a.r.f32(t)[i]} * a.k.f32(t)[i] * a.r_k.f32()[i]; });
      for (int64_t i = first; i < first + dim; ++i) {
        const double normed =
            (y[i] - mean) / std::sqrt(variance + double{a.norm.eps}) * a.norm.weight.f32()[i] + a.norm.bias.f32()[i];
        y[i] = static_cast<float>(a.gate.f32(t)[i] * (normed + bonus * a.v.f32(t)[i]));
      }
    }
}

}  // namespace ingot

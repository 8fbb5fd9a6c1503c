// Products of one input with several weights: gate and up, or queries, keys and values.
#include <algorithm>
#include <utility>

#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/matmul/products.h"
#include "backend/cuda/matmul/qkv_end.h"

namespace ingot::cuda {
namespace {

const float* data_of(const Tensor& bias) { return bias ? bias.f32() : nullptr; }

bool alike(const Weight& a, const Weight& b) { return share_matvec(packed(a), packed(b)); }

}  // namespace

// The products of one input next to each other, in scratch, if the weights are joined, cuBLASLt multiplies them, and
// scratch has room.
std::optional<Tensor> Products::joined_product(Input& input, std::span<const Weight* const> weights) {
  const int64_t n = input.x.rows;
  const MatmulKernel& kernel = choice_.kernel_for(*weights[0], n);
  const PackedWeight* first = kernel.halves ? packed(*weights[0]).halves : &packed(*weights[0]);
  const PackedWeight* whole = first != nullptr ? first->whole : nullptr;
  if (whole == nullptr || input.norm || kernel.run != nullptr) return {};
  const Tensor y{core_.memory.scratch(Scratch::kUp).data(), core_.act, n, whole->n_out, whole->n_out};
  if (static_cast<size_t>(n * whole->n_out) * dtype_bytes(core_.act) > core_.memory.scratch(Scratch::kUp).size())
    return {};
  return dense_.run(y, core_.in_act_dtype(input.x), whole->data, whole->factor, /*accumulate=*/false, device_)
             ? std::optional(y)
             : std::nullopt;
}

// Whether cuBLASLt can run these products side by side. They share scratch, so none of them may decode its weight.
bool Products::can_run_side_by_side(const Input& input, std::span<const Weight* const> weights) {
  constexpr int64_t kMaxRows = 512;  // more rows fill the device
  const int64_t n = input.x.rows;
  if (core_.deterministic || input.norm || n > kMaxRows || input.x.dtype != core_.act || !on_16_bytes(input.x))
    return false;
  const PackedWeight& first = weights_.ready(*weights[0]);
  return std::ranges::all_of(weights, [&](const Weight* w) {
    const MatmulKernel& kernel = choice_.kernel_for(*w, n);
    return kernel.run == nullptr && !kernel.decodes && packed(*w).layout == first.layout &&
           takes_whole_rows(packed(*w), n) == takes_whole_rows(first, n);
  });
}

// y[i] = x w[i]^T. Kernels for few rows or few outputs leave much of the device idle, so all products but the first run
// on a branch.
void Products::products(std::span<const Tensor> y, Input& input, std::span<const Weight* const> weights) {
  std::vector<bool> done(y.size());
  if (can_run_side_by_side(input, weights)) {
    const auto run_one = [&](size_t i) {
      const MatmulKernel& kernel = choice_.kernel_for(*weights[i], input.x.rows);
      Tensor no_bias;
      done[i] = library_product(y[i], input, packed(*weights[i]), kernel, no_bias, /*accumulate=*/false);
    };
    if (packed(*weights[0]).layout == Layout::kFloat8)
      quantize(input, takes_whole_rows(packed(*weights[0]), input.x.rows));
    device_.side_by_side(
        [&] {
          for (size_t i = 1; i < y.size(); ++i) run_one(i);
        },
        [&] { run_one(0); });
  }
  for (size_t i = 0; i < y.size(); ++i)
    if (!done[i]) run(y[i], input, *weights[i], {}, false);
}

void Products::gate_up(const GateUpArgs& a) {
  const PackedWeight &w_gate = weights_.ready(*a.w_gate), &w_up = packed(*a.w_up);
  Input input = input_of(a.x, a.normed, a.norm, *a.w_gate);
  if (const MatmulKernel& kernel = choice_.kernel_for(*a.w_gate, a.x.rows);
      kernel.run != nullptr && share_matvec(w_gate, w_up)) {
    const Matvec m{.jobs = {{&w_gate, data_of(a.b_gate)}, {&w_up, data_of(a.b_up)}},
                   .y = {a.y},
                   .n_jobs = 2,
                   .gate = static_cast<int>(a.act)};
    return launch(kernel, m, input);
  }
  const Weight* weights[] = {a.w_gate, a.w_up};
  const auto finish = [&](const Tensor& gate, const Tensor& up) {
    for (const auto& [y, bias] : {std::pair{gate, a.b_gate}, {up, a.b_up}})
      if (bias) add_rows(y, bias, true, device_);
    act_mul_rows(a.y, gate, up, a.act, device_, rounds_input(*a.w_gate, a.x.rows));  // as for the down product
    check_launch("act_mul_rows");
  };
  if (const auto both = joined_product(input, weights))
    return finish(both->slice_cols(0, a.y.cols), both->slice_cols(a.y.cols, a.y.cols));
  const Tensor up{core_.memory.scratch(Scratch::kUp, static_cast<size_t>(a.y.rows * a.y.cols) * dtype_bytes(a.y.dtype)),
                  a.y.dtype, a.y.rows, a.y.cols, a.y.cols};
  const Tensor outputs[] = {a.y, up};
  products(outputs, input, weights);
  finish(a.y, up);
}

// One launch for all of qkv(), if dot_rows runs and supports these heads and this cache.
bool Products::qkv_in_one_launch(const QkvArgs& a, Input& input) {
  const MatmulKernel& kernel = choice_.kernel_for(*a.wq, a.x.rows);
  const auto end = qkv_end(a, view_of(*a.kv), core_.step.view(*a.kv));
  if (!end || kernel.run != matvec || packed(*a.wq).layout != Layout::kDense || !alike(*a.wq, *a.wk) ||
      !alike(*a.wq, *a.wv))
    return false;
  launch(kernel,
         {.jobs = {{&packed(*a.wq), data_of(a.bq)}, {&packed(*a.wk), data_of(a.bk)}, {&packed(*a.wv), data_of(a.bv)}},
          .y = {a.q, a.k, a.v},
          .n_jobs = 3,
          .end = &*end},
         input);
  return true;
}

bool Products::qkv(const QkvArgs& a) {
  const bool norms_all_heads = a.q_norm.weight && a.q_norm.weight.cols != a.head_dim;
  if (norms_all_heads || !can_finish_qkv(a)) return false;
  const Weight* weights[] = {a.wq, a.wk, a.wv};
  const Tensor outputs[] = {a.q, a.k, a.v};
  weights_.ready(*a.wq);
  Input input = input_of(a.x, a.normed, a.norm, *a.wq);
  const auto finish = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    finish_qkv(a, q, k, v, view_of(*a.kv), core_.step.view(*a.kv), device_);
    check_launch("finish_qkv");
    return true;
  };
  if (const auto all = joined_product(input, weights))
    return finish(all->slice_cols(0, a.q.cols), all->slice_cols(a.q.cols, a.k.cols),
                  all->slice_cols(a.q.cols + a.k.cols, a.v.cols));
  if (qkv_in_one_launch(a, input)) return true;
  for (int i = 0; i < 3;) {  // neighbours of one layout share a launch, or run side by side
    const MatmulKernel& kernel = choice_.kernel_for(*weights[i], input.x.rows);
    if (kernel.run == nullptr) {
      const int n = i == 0 && can_run_side_by_side(input, weights) ? 3 : 1;
      products(std::span(outputs).subspan(i, n), input, std::span(weights).subspan(i, n));
      i += n;
      continue;
    }
    Matvec m{};
    const int first = i;
    for (; i < 3 && alike(*weights[first], *weights[i]) &&
           kernel.can(device_.limits(), packed(*weights[i]), input.x.rows);
         ++i) {
      m.jobs[m.n_jobs].w = &packed(*weights[i]);
      m.y[m.n_jobs++] = outputs[i];
    }
    launch(kernel, m, input);
  }
  return finish(a.q, a.k, a.v);
}

}  // namespace ingot::cuda

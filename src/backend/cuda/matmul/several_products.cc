// Products of one input with several weights (gate and up, or queries, keys and values), and independent products.
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

// Products of one input. Neighbours of one layout share a launch, or run side by side.
void Products::run_neighbours(std::span<const Product> all, Input& input) {
  for (size_t i = 0; i < all.size();) {
    const std::span<const Product> left = all.subspan(i);
    const MatmulKernel& kernel = choice_.kernel_for(*left[0].w, input.x.rows);
    if (kernel.run == nullptr) {
      i += run_side_by_side(left, input);
      continue;
    }
    Matvec m{};
    for (const Product& p : left) {
      if (m.n_jobs == 3 || !alike(*left[0].w, *p.w) || p.y.dtype != left[0].y.dtype ||
          !kernel.can(device_.limits(), weights_.ready(*p.w), input.x.rows))
        break;
      m.jobs[m.n_jobs] = {&packed(*p.w), data_of(p.bias)};
      m.y[m.n_jobs++] = p.y;
    }
    launch(kernel, m, input);
    i += static_cast<size_t>(m.n_jobs);
  }
}

// The number of products that have run: all, or the first one.
size_t Products::run_side_by_side(std::span<const Product> all, Input& input) {
  std::vector<const Weight*> weights;
  std::vector<Tensor> outputs;
  for (const Product& p : all) weights.push_back(p.w), outputs.push_back(p.y);
  const bool has_bias = std::ranges::any_of(all, [](const Product& p) { return bool{p.bias}; });
  if (all.size() == 1 || has_bias || !can_run_side_by_side(input, weights)) {
    run(all[0].y, input, *all[0].w, all[0].bias, /*accumulate=*/false);
    return 1;
  }
  products(outputs, input, weights);
  return all.size();
}

void Products::run_all(std::span<const Product> all) {
  const std::vector<Product> others = run_together(all);
  for (size_t i = 0; i < others.size();) {
    size_t end = i + 1;
    while (end < others.size() && others[end].x.data == others[i].x.data && others[end].x.cols == others[i].x.cols)
      ++end;
    Input input{core_.aligned(others[i].x)};
    run_neighbours(std::span(others).subspan(i, end - i), input);
    i = end;
  }
  for (const Product& p : others) {
    if (p.act) act_rows(p.y, *p.act, {}, device_);
    if (p.cap != 0) scale_rows(p.y, 1, p.cap, device_);
  }
  check_launch("act_rows");
}

// Runs some products in one launch. Returns the others.
std::vector<Product> Products::run_together(std::span<const Product> all) {
  std::vector<Product> others;
  std::vector<DotJob> jobs;
  for (const Product& p : all) {
    const bool is_job = p.x.rows == 1 && p.x.dtype == DType::kF16 && on_16_bytes(p.x) &&
                        (p.y.dtype == DType::kF32 || p.y.dtype == DType::kF16) && jobs.size() < kMaxDotJobs &&
                        choice_.kernel_for(*p.w, 1).run == matvec && weights_.ready(*p.w).layout == Layout::kDense;
    if (is_job)
      jobs.push_back({.w = &packed(*p.w), .product = &p});
    else
      others.push_back(p);
  }
  if (!jobs.empty()) {
    dot_jobs(jobs, device_);
    check_launch("dot_jobs");
  }
  return others;
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
  const Product all[] = {{.y = a.q, .w = a.wq}, {.y = a.k, .w = a.wk}, {.y = a.v, .w = a.wv}};
  run_neighbours(all, input);
  return finish(a.q, a.k, a.v);
}

}  // namespace ingot::cuda

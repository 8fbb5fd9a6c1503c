// The ops of models with experts. If there are few rows, each row reads the matrix of its expert separately. More rows
// are sorted by expert first, so that a matrix is read once for many rows. The choice depends only on the number of
// rows, so a step can be recorded.
#include <algorithm>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/experts/experts.h"

namespace ingot {

using cuda::check_launch;
using cuda::ExpertMatmul;
using cuda::PackedWeight;

namespace {

const float* data_of(const Tensor& bias) {
  CHECK(!bias || bias.contiguous());
  return bias ? bias.f32() : nullptr;
}

}  // namespace

// x in the type of activations, aligned to 16 bytes. A copy has room to be arranged in place.
Tensor CudaBackend::aligned(const Tensor& x) {
  if (x.dtype == act_ && on_16_bytes(x)) return x;
  const int64_t stride = cuda::arranged_cols(x.cols);
  const Tensor to{scratch_at_least(act_copy_, static_cast<size_t>(x.rows * stride) * dtype_bytes(act_)), act_, x.rows,
                  x.cols, stride};
  cuda::convert(to, x, device_);
  check_launch("convert");
  return to;
}

void CudaBackend::copy(Tensor y, Tensor x) {
  finish_copy();
  cuda::convert(y, x, device_);
  check_launch("convert");
}

void CudaBackend::moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) {
  cuda::route_rows(ids, weights, logits, args, device_);
  check_launch("route_rows");
}

// More rows than this are faster in tiles, both with 32 and with 128 experts (docs/notes). Rows are also faster in
// tiles if there are more rows than experts.
static constexpr int64_t kMaxRows = 16;

bool CudaBackend::takes_rows(const ExpertMatmul& m) const {
  return !deterministic_ && m.n_rows <= std::min(kMaxRows, m.n_experts) && cuda::can_expert_rows(m);
}

// n_own of the experts have matrices on this device.
cuda::ExpertOrder CudaBackend::order_of(int64_t n_rows, int64_t n_own, int tile_rows) {
  void* memory = scratch_at_least(order_, cuda::expert_order_bytes(n_rows, n_own));
  return cuda::expert_order_in(memory, n_rows, n_own, tile_rows);
}

void CudaBackend::order_rows(const ExpertMatmul& m) {
  const int64_t n_own = m.w[0]->n_experts;
  cuda::order_by_expert(order_of(m.n_rows, n_own, m.tile_rows), m.ids, m.n_rows, n_own, device_);
  check_launch("order_by_expert");
}

bool CudaBackend::groups_experts(const PackedWeight& w) const { return cuda::can_group_experts(w, device_.limits()); }

// The rows are already sorted in order_.
void CudaBackend::launch_tiles(ExpertMatmul m) {
  if (m.tile_rows == cuda::kGroupRows && !m.x_arranged) {
    const auto n_bytes = static_cast<size_t>(m.x.rows * cuda::arranged_cols(m.x.cols)) * dtype_bytes(act_);
    m.x = cuda::arrange_rows(scratch_at_least(act_copy_, n_bytes), m.x, device_);
    check_launch("arrange_rows");
  }
  cuda::expert_tiles(m, cuda::expert_order_in(order_.data(), m.n_rows, m.w[0]->n_experts, m.tile_rows), device_);
  check_launch("expert_tiles");
}

void CudaBackend::moe_matmul(Tensor y, Tensor x_any, const Weight& weight, Tensor ids, Tensor bias) {
  CHECK_EQ(x_any.cols, weight.n_in);
  CHECK_EQ(y.cols, weight.n_out);
  CHECK_EQ(y.rows, ids.rows * ids.cols);
  CHECK(ids.contiguous());
  if (y.rows == 0) return;
  const PackedWeight& w = ready(weight);
  const ExpertMatmul m{.y = y,
                       .x = aligned(x_any),
                       .w = {&w},
                       .bias = {data_of(bias)},
                       .ids = ids.i32(),
                       .n_rows = y.rows,
                       .n_experts = w.n_experts,
                       .tile_rows = cuda::expert_tile_rows(y.rows, w.n_experts, groups_experts(w), device_.limits()),
                       .specialised = specialised_for(w)};
  if (!cuda::can_expert_matmul(w)) {
    cuda::plain_expert_rows(m, device_);
    return check_launch("plain_expert_rows");
  }
  if (takes_rows(m)) {
    cuda::expert_rows(m, device_);
    return check_launch("expert_rows");
  }
  order_rows(m);
  launch_tiles(m);
}

void CudaBackend::moe_combine(Tensor residual, Tensor y, Tensor weights) {
  cuda::combine_rows(residual, y, weights, device_);
  check_launch("combine_rows");
}

// Chooses the experts of each token from the norm of x. If one kernel does this, it also computes the norm of a single
// row, or for more tokens sorts the rows by expert. Returns whether the rows are sorted, for tiles of tile_rows.
bool CudaBackend::route(const MoeArgs& a, int tile_rows) {
  const PackedWeight& w = ready(*a.w_router);
  const Tensor& x = a.norm.weight ? a.normed : a.x;
  const cuda::DeferredNorm norm_later{a.normed, a.x, a.norm};
  const bool fits = !deterministic_ && x.dtype == DType::kF16 && on_16_bytes(x);
  const bool at_once = fits && cuda::can_route_at_once(device_, w, x.rows);
  const bool can_wait = at_once && a.norm.weight && cuda::can_defer(norm_later);
  if (a.norm.weight && !can_wait) norm(a.normed, a.x, a.norm);
  const cuda::Router router{.ids = a.ids,
                            .weights = a.weights,
                            .x = x,
                            .norm = can_wait ? &norm_later : nullptr,
                            .w = &w,
                            .bias = data_of(a.b_router)};
  if (at_once) {
    cuda::route_at_once(router, a.route, device_);
    check_launch("route_at_once");
    return false;
  }
  if (fits && w.n_out > 1 && cuda::can_route_and_sort(device_, w, x.rows)) {
    const int64_t n_own = a.route.n_own > 0 ? a.route.n_own : w.n_out;
    cuda::route_and_sort(router, a.route, order_of(a.ids.rows * a.ids.cols, n_own, tile_rows), device_);
    check_launch("route_and_sort");
    return true;
  }
  matmul(a.logits, x, *a.w_router, a.b_router);
  moe_route(a.ids, a.weights, a.logits, a.route);
  return false;
}

void CudaBackend::moe(const MoeArgs& a) {
  const PackedWeight &w_gate = ready(*a.w_gate), &w_up = packed(*a.w_up), &w_down = packed(*a.w_down);
  if (a.x.rows == 0) return;
  // One expert for all tokens: its products are like any other. Experts have no kernels for rows of 8-bit floats.
  const bool is_float8 = w_gate.layout == cuda::Layout::kFloat8 || w_down.layout == cuda::Layout::kFloat8,
             is_plain = a.w_router->n_out == 1 && !w_gate.f32 && (a.x.rows > 1 || deterministic_ || is_float8);
  if (!is_plain &&
      (!cuda::can_expert_matmul(w_gate) || !cuda::can_expert_matmul(w_down) || !cuda::share_matvec(w_gate, w_up)))
    return Backend::moe(a);
  const int64_t n_rows = a.ids.rows * a.ids.cols, n_experts = a.w_router->n_out;
  const int tile_rows =
      cuda::expert_tile_rows(n_rows, n_experts, groups_experts(w_gate) && groups_experts(w_down), device_.limits());
  const bool is_sorted = route(a, tile_rows);
  const Tensor& x = a.norm.weight ? a.normed : a.x;
  const bool partial = a.route.n_own > 0;
  const ExpertMatmul gate{.y = a.gate,
                          .x = aligned(x),
                          .w = {&w_gate, &w_up},
                          .bias = {data_of(a.b_gate), data_of(a.b_up)},
                          .ids = a.ids.i32(),
                          .n_rows = n_rows,
                          .n_experts = n_experts,
                          .tile_rows = tile_rows,
                          .y_arranged = tile_rows == cuda::kGroupRows && a.gate.dtype == DType::kF16 &&
                                        on_16_bytes(a.gate) && a.gate.cols % cuda::kArrangedCols == 0,
                          .partial = partial,
                          .gate = static_cast<int>(a.act),
                          .specialised = specialised_for(w_gate)};
  const bool each = !is_plain && takes_rows(gate);
  if (is_plain) {
    gate_up(
        {.y = a.gate, .x = x, .w_gate = a.w_gate, .w_up = a.w_up, .b_gate = a.b_gate, .b_up = a.b_up, .act = a.act});
    matmul(a.out, a.gate, *a.w_down, a.b_down);
    return moe_combine(a.residual, a.out, a.weights);
  }
  if (each) {
    cuda::expert_rows(gate, device_);
    check_launch("expert_rows");
  } else {
    if (!is_sorted) order_rows(gate);
    launch_tiles(gate);
  }
  const ExpertMatmul down{.y = a.out,
                          .x = aligned(a.gate),
                          .w = {&w_down},
                          .bias = {data_of(a.b_down)},
                          .ids = gate.ids,
                          .n_rows = n_rows,
                          .n_experts = n_experts,
                          .tile_rows = tile_rows,
                          .x_arranged = gate.y_arranged,
                          .partial = partial};
  ExpertMatmul sum = down;
  sum.y = a.residual, sum.weights = a.weights.f32(), sum.n_terms = static_cast<int>(a.ids.cols),
  sum.knows_experts = true;
  sum.specialised = specialised_for(w_down);
  if (each && cuda::can_expert_rows(sum)) {
    cuda::expert_rows(sum, device_);
    return check_launch("expert_rows");
  }
  if (each) order_rows(down);
  launch_tiles(down);
  moe_combine(a.residual, a.out, a.weights);
}

}  // namespace ingot

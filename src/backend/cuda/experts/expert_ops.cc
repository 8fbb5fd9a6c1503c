#include "backend/cuda/experts/expert_ops.h"

#include <algorithm>
#include <utility>

namespace ingot::cuda {
namespace {

const float* data_of(const Tensor& bias) {
  CHECK(!bias || bias.contiguous());
  return bias ? bias.f32() : nullptr;
}

}  // namespace

void ExpertOps::route_logits(const Tensor& ids, const Tensor& weights, const Tensor& logits, const RouteArgs& args) {
  route_rows(ids, weights, logits, args, device_);
  check_launch("route_rows");
}

// More rows than this are faster in tiles, both with 32 and with 128 experts (docs/notes). Rows of several tokens are
// also faster in tiles if there are more rows than experts, or if their matrices have more weights than this.
static constexpr int64_t kMaxRows = 16, kMaxRowWeights = 32'000'000;

bool ExpertOps::takes_rows(const ExpertMatmul& m) const {
  const int64_t n_weights = m.n_rows * m.w[0]->n_out * m.w[0]->n_in;
  return !core_.deterministic && m.n_rows <= std::min(kMaxRows, m.n_experts) &&
         (m.x.rows == 1 || (!m.tiling.streams && n_weights <= kMaxRowWeights)) && can_expert_rows(m);
}

// n_own of the experts have matrices on this device.
ExpertOrder ExpertOps::order_of(int64_t n_rows, int64_t n_own, const ExpertTiling& tiling) {
  void* memory = core_.memory.scratch(Scratch::kOrder, expert_order_bytes(n_rows, n_own));
  return expert_order_in(memory, n_rows, n_own, tiling);
}

void ExpertOps::order_rows(const ExpertMatmul& m) {
  const int64_t n_own = m.w[0]->n_experts;
  order_by_expert(order_of(m.n_rows, n_own, m.tiling), m.ids, m.n_rows, n_own, device_);
  check_launch("order_by_expert");
}

bool ExpertOps::groups_experts(const PackedWeight& w) const { return can_group_experts(w, device_.limits()); }

bool ExpertOps::streams_experts(const PackedWeight& w) const {
  return !core_.deterministic && can_stream_experts(w, device_.limits());
}

// The rows are already sorted.
void ExpertOps::launch_tiles(ExpertMatmul m) {
  if (m.tiling.rows == kGroupRows && !m.x_arranged) {
    const auto n_bytes = static_cast<size_t>(m.x.rows * arranged_cols(m.x.cols)) * dtype_bytes(core_.act);
    m.x = arrange_rows(core_.memory.scratch(Scratch::kActCopy, n_bytes), m.x, device_);
    check_launch("arrange_rows");
  }
  expert_tiles(m, expert_order_in(core_.memory.scratch(Scratch::kOrder).data(), m.n_rows, m.w[0]->n_experts, m.tiling),
               device_);
  check_launch("expert_tiles");
}

void ExpertOps::matmul(const Tensor& y, const Tensor& x_any, const Weight& weight, const Tensor& ids,
                       const Tensor& bias) {
  CHECK_EQ(x_any.cols, weight.n_in);
  CHECK_EQ(y.cols, weight.n_out);
  CHECK_EQ(y.rows, ids.rows * ids.cols);
  CHECK(ids.contiguous());
  if (y.rows == 0) return;
  const PackedWeight& w = weights_.ready(weight);
  const ExpertMatmul m{
      .y = y,
      .x = core_.aligned(x_any),
      .w = {&w},
      .bias = {data_of(bias)},
      .ids = ids.i32(),
      .n_rows = y.rows,
      .n_experts = w.n_experts,
      .tiling = expert_tiling(y.rows, w.n_experts, groups_experts(w), streams_experts(w), device_.limits()),
      .specialised = choice_.specialised_for(w)};
  if (!can_expert_matmul(w)) {
    plain_expert_rows(m, device_);
    return check_launch("plain_expert_rows");
  }
  if (takes_rows(m)) {
    expert_rows(m, device_);
    return check_launch("expert_rows");
  }
  order_rows(m);
  launch_tiles(m);
}

void ExpertOps::combine(const Tensor& residual, const Tensor& y, const Tensor& weights) {
  combine_rows(residual, y, weights, device_);
  check_launch("combine_rows");
}

// Chooses the experts of each token from the norm of x. If one kernel does this, it also computes the norm of a single
// row, or for more tokens sorts the rows by expert. Returns whether the rows are sorted.
bool ExpertOps::route(const MoeArgs& a, const ExpertTiling& tiling) {
  const PackedWeight& w = weights_.ready(*a.w_router);
  const Tensor& x = a.router_x ? a.router_x : a.norm.weight ? a.normed : a.x;
  const DeferredNorm norm_later{a.normed, a.x, a.norm};
  const bool fits = !core_.deterministic && !a.router_x && x.dtype == DType::kF16 && on_16_bytes(x);
  const bool at_once = fits && can_route_at_once(device_, w, x.rows);
  const bool can_wait = at_once && a.norm.weight && can_defer(norm_later);
  if (a.norm.weight && !can_wait) {
    norm_rows(a.normed, a.x, a.norm, device_);
    check_launch("norm_rows");
  }
  const Router router{.ids = a.ids,
                      .weights = a.weights,
                      .x = x,
                      .norm = can_wait ? &norm_later : nullptr,
                      .w = &w,
                      .bias = data_of(a.b_router)};
  if (at_once) {
    route_at_once(router, a.route, device_);
    check_launch("route_at_once");
    return false;
  }
  if (fits && w.n_out > 1 && can_route_and_sort(device_, w, x.rows)) {
    const int64_t n_own = a.route.n_own > 0 ? a.route.n_own : w.n_out;
    route_and_sort(router, a.route, order_of(a.ids.rows * a.ids.cols, n_own, tiling), device_);
    check_launch("route_and_sort");
    return true;
  }
  products_.run(a.logits, x, *a.w_router, a.b_router);
  route_logits(a.ids, a.weights, a.logits, a.route);
  return false;
}

bool ExpertOps::run(const MoeArgs& a) {
  const PackedWeight &w_gate = weights_.ready(*a.w_gate), &w_up = packed(*a.w_up), &w_down = packed(*a.w_down);
  if (a.x.rows == 0) return true;
  // One expert for all tokens: its products are like any other. Experts have no kernels for rows of 8-bit floats.
  const bool is_float8 = w_gate.layout == Layout::kFloat8 || w_down.layout == Layout::kFloat8,
             is_plain = a.w_router->n_out == 1 && !w_gate.f32 && (a.x.rows > 1 || core_.deterministic || is_float8);
  if (!is_plain && (!can_expert_matmul(w_gate) || !can_expert_matmul(w_down) || !share_matvec(w_gate, w_up)))
    return false;
  const int64_t n_rows = a.ids.rows * a.ids.cols, n_experts = a.w_router->n_out;
  const ExpertTiling tiling = expert_tiling(n_rows, n_experts, groups_experts(w_gate) && groups_experts(w_down),
                                            streams_experts(w_gate) && streams_experts(w_down), device_.limits());
  const bool is_sorted = route(a, tiling);
  const Tensor& x = a.norm.weight ? a.normed : a.x;
  const bool partial = a.route.n_own > 0;
  const ExpertMatmul gate{.y = a.gate,
                          .x = core_.aligned(x),
                          .w = {&w_gate, &w_up},
                          .bias = {data_of(a.b_gate), data_of(a.b_up)},
                          .ids = a.ids.i32(),
                          .n_rows = n_rows,
                          .n_experts = n_experts,
                          .tiling = tiling,
                          .y_arranged = tiling.rows == kGroupRows && a.gate.dtype == DType::kF16 &&
                                        on_16_bytes(a.gate) && a.gate.cols % kArrangedCols == 0,
                          .partial = partial,
                          .gate = static_cast<int>(a.act),
                          .specialised = choice_.specialised_for(w_gate)};
  const bool each = !is_plain && takes_rows(gate);
  if (is_plain) {
    products_.gate_up(
        {.y = a.gate, .x = x, .w_gate = a.w_gate, .w_up = a.w_up, .b_gate = a.b_gate, .b_up = a.b_up, .act = a.act});
    products_.run(a.out, a.gate, *a.w_down, a.b_down);
    combine(a.residual, a.out, a.weights);
    return true;
  }
  if (each) {
    expert_rows(gate, device_);
    check_launch("expert_rows");
  } else {
    if (!is_sorted) order_rows(gate);
    launch_tiles(gate);
  }
  const ExpertMatmul down{.y = a.out,
                          .x = core_.aligned(a.gate),
                          .w = {&w_down},
                          .bias = {data_of(a.b_down)},
                          .ids = gate.ids,
                          .n_rows = n_rows,
                          .n_experts = n_experts,
                          .tiling = tiling,
                          .x_arranged = gate.y_arranged,
                          .partial = partial,
                          .knows_experts = tiling.streams && !each};
  ExpertMatmul sum = down;
  sum.y = a.residual, sum.weights = a.weights.f32(), sum.n_terms = static_cast<int>(a.ids.cols),
  sum.knows_experts = true;
  sum.specialised = choice_.specialised_for(w_down);
  if (each && can_expert_rows(sum)) {
    expert_rows(sum, device_);
    check_launch("expert_rows");
    return true;
  }
  if (each) order_rows(down);
  launch_tiles(down);
  combine(a.residual, a.out, a.weights);
  return true;
}

}  // namespace ingot::cuda

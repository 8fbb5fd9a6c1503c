// Experts: the rows of a step are sorted by expert, so that each expert is one matmul over its tokens, and all experts
// are one parallel loop. A decode of one sequence works the same way, with one row for each expert.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/route.h"

namespace ingot {

using cpu::MatmulJob;
using cpu::PackedWeight;

void CpuBackend::moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) {
  for_rows(logits.rows, 32 * logits.rows * logits.cols, [&](int64_t t, int) {
    route_token(ids.i32(t), weights.f32(t), {logits.f32(t), static_cast<size_t>(logits.cols)}, args);
  });
}

// A counting sort of the rows by expert: order_[i] is the row at sorted place i; groups_ lists the experts that have
// rows. Rows of other ranks' experts are left out.
void CpuBackend::group_by_expert(Tensor ids, int64_t n_experts) {
  CHECK(ids.contiguous());
  const int64_t n_rows = ids.rows * ids.cols;
  const int32_t* expert = ids.i32();
  std::vector<int64_t>& next = expert_start_;
  next.assign(static_cast<size_t>(n_experts) + 1, 0);
  for (int64_t i = 0; i < n_rows; ++i) {
    CHECK(expert[i] >= -1 && expert[i] < n_experts);
    if (expert[i] >= 0) ++next[expert[i] + 1];
  }
  for (int64_t e = 0; e < n_experts; ++e) next[e + 1] += next[e];
  groups_.clear();
  for (int64_t e = 0; e < n_experts; ++e)
    if (next[e + 1] > next[e])
      groups_.push_back({static_cast<int>(e), next[e], static_cast<int>(next[e + 1] - next[e])});
  order_.resize(static_cast<size_t>(next[n_experts]));
  for (int64_t i = 0; i < n_rows; ++i)
    if (expert[i] >= 0) order_[next[expert[i]]++] = static_cast<int32_t>(i);
}

// Gathers the rows of x in the order of order_. x has a row for each of the n_ids ids, or a row for each token.
Tensor CpuBackend::gathered(Tensor x, int64_t n_ids, cpu::Memory& memory) {
  const auto n = static_cast<int64_t>(order_.size());
  const Tensor out = room(memory, n, x.cols);
  for_rows(n, n * x.cols, [&](int64_t i, int) {
    std::memcpy(out.f32(i), x.f32(order_[i] * x.rows / n_ids), static_cast<size_t>(x.cols) * sizeof(float));
  });
  return out;
}

Tensor CpuBackend::room(cpu::Memory& memory, int64_t rows, int64_t cols) {
  const auto needed = static_cast<size_t>(rows * cols) * sizeof(float);
  if (memory.size() < needed) memory = cpu::Memory(needed);  // only if reserve() was not called
  return {memory.f32(), DType::kF32, rows, cols, cols};
}

// x and y hold the rows of the groups one after another; or x is a single row that all groups use. With `gated`, the
// outputs are gate and up, and the first output's y gets act(gate) * up.
void CpuBackend::run_groups(Tensor x, std::span<const ExpertOutput> outputs, std::optional<Activation> gated) {
  expert_jobs_.clear();
  expert_panels_.clear();
  const uint8_t* acts[2] = {};
  cpu::ActLayout layouts[2];
  const bool one_row = x.rows == 1;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& w = *static_cast<const PackedWeight*>(outputs[i].w->packed);
    CHECK_EQ(x.cols, w.n_in);
    const cpu::Kernels& kernels = kernels_for(w, rows_of_group(x));
    const cpu::Unpacked how = unpacked(w, rows_of_group(x));
    layouts[i] = activations_of(w, how);
    const int slot = static_cast<int>(i), tile = max_tile(w, kernels, how);
    const bool shared = i > 0 && expert_jobs_[0].kernels == &kernels && cpu::same(layouts[0], layouts[i]);
    acts[i] = shared    ? acts[0]
              : one_row ? pack(x, layouts[i], tile, kernels, slot)
                        : pack_groups(x, layouts[i], tile, kernels, slot);
    const int64_t token_bytes = cpu::act_token_bytes(layouts[i], w.n_in);
    for (const ExpertGroup& group : groups_) {
      MatmulJob job = cpu::job_of(w, kernels, group.n_rows, acts[i] + (one_row ? 0 : group.first * token_bytes),
                                  outputs[i].y.slice_rows(group.first, group.n_rows), how);
      job.panels += group.expert * w.n_panels * w.panel_bytes;
      job.bias = outputs[i].bias ? outputs[i].bias.f32(group.expert) : nullptr;
      expert_jobs_.push_back(job);
      expert_panels_.push_back(w.n_panels);
    }
  }
  // Gate and up run together, so only the gate's panels become tasks.
  const size_t n_groups = groups_.size(), n_dealt = gated ? n_groups : expert_jobs_.size();
  plan_matmuls({expert_jobs_.data(), n_dealt}, {expert_panels_.data(), n_dealt}, /*in_order=*/pool_.nodes().empty());
  pool_.parallel_for(static_cast<int64_t>(matmul_tasks_.size()), [&](int64_t i, int) {
    const MatmulTask& task = matmul_tasks_[i];
    if (gated) {
      const MatmulJob &gate = expert_jobs_[task.job], &up = expert_jobs_[n_groups + task.job];
      gate.kernels->gate_up(gate, up, static_cast<int>(*gated), task.range);
    } else {
      run_task(expert_jobs_[task.job], task.range);
    }
  });
}

// Packs each group into separate tiles.
const uint8_t* CpuBackend::pack_groups(Tensor x, const cpu::ActLayout& layout, int max_tile,
                                       const cpu::Kernels& kernels, int slot) {
  const int64_t token_bytes = cpu::act_token_bytes(layout, x.cols);
  const auto needed = static_cast<size_t>(x.rows * token_bytes);
  if (activations_[slot].size() < needed)
    activations_[slot] = cpu::Memory(needed);  // only if reserve() was not called
  uint8_t* to = activations_[slot].data();
  for_rows(static_cast<int64_t>(groups_.size()), x.rows * x.cols, [&](int64_t g, int) {
    const ExpertGroup& group = groups_[g];
    const cpu::Tiling tiling = cpu::make_tiling(group.n_rows, max_tile);
    for (int tile = 0; tile < tiling.n_tiles; ++tile) {
      const int64_t begin = group.first + cpu::tile_begin(tiling, tile),
                    end = group.first + cpu::tile_begin(tiling, tile + 1);
      kernels.pack_activations(x.f32(begin), x.stride, static_cast<int>(end - begin), x.cols, layout,
                                to + begin * token_bytes);
    }
  });
  return to;
}

void CpuBackend::moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) {
  if (y.rows == 0) return;
  CHECK_EQ(y.rows, ids.rows * ids.cols);
  CHECK_EQ(y.cols, w.n_out);
  group_by_expert(ids, w.n_experts);
  if (groups_.empty()) return;
  const Tensor sorted = gathered(x, y.rows, expert_in_), out = room(expert_out_, sorted.rows, y.cols);
  const ExpertOutput output{out, &w, bias};
  run_groups(sorted, {&output, 1}, {});
  for_rows(out.rows, out.rows * y.cols, [&](int64_t i, int) {
    std::memcpy(y.f32(order_[i]), out.f32(i), static_cast<size_t>(y.cols) * sizeof(float));
  });
}

void CpuBackend::moe_combine(Tensor residual, Tensor y, Tensor weights) {
  const int64_t n_used = weights.cols;
  for_rows(residual.rows, 2 * y.rows * y.cols, [&](int64_t t, int) {
    for (int64_t k = 0; k < n_used; ++k)
      if (weights.f32(t)[k] != 0)
        kernels_.add_scaled(residual.f32(t), y.f32(t * n_used + k), weights.f32(t)[k], y.cols);
  });
}

// From gate to down, the rows stay sorted by expert.
void CpuBackend::moe(const MoeArgs& a) {
  const auto& gate = *static_cast<const PackedWeight*>(a.w_gate->packed);
  const auto& up = *static_cast<const PackedWeight*>(a.w_up->packed);
  if (a.x.rows == 0) return;
  const Tensor x = normed(a.x, a.normed, a.norm);
  const Output logits{.y = a.logits, .w = a.w_router, .bias = a.b_router, .cuts_k = true};
  run_matmuls(a.router_x ? a.router_x : x, {&logits, 1});
  moe_route(a.ids, a.weights, a.logits, a.route);
  group_by_expert(a.ids, a.w_gate->n_experts);
  if (groups_.empty()) return;
  const auto n_rows = static_cast<int64_t>(order_.size());
  const Tensor hidden = a.gate.slice_rows(0, n_rows), up_rows = a.up.slice_rows(0, n_rows),
               out = a.out.slice_rows(0, n_rows);  // sorted by expert
  const Tensor sorted = x.rows == 1 ? x : gathered(x, a.gate.rows, expert_in_);
  const bool together = run_together(gate, up, rows_of_group(sorted));
  const ExpertOutput gate_and_up[] = {{hidden, a.w_gate, a.b_gate}, {together ? hidden : up_rows, a.w_up, a.b_up}};
  run_groups(sorted, gate_and_up, together ? std::optional(a.act) : std::nullopt);
  if (!together) act_mul(hidden, hidden, up_rows, a.act);
  const ExpertOutput down{out, a.w_down, a.b_down};
  run_groups(hidden, {&down, 1}, {});
  place_.assign(static_cast<size_t>(a.gate.rows), -1);
  for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = static_cast<int32_t>(i);
  const int64_t n_used = a.weights.cols;
  for_rows(a.residual.rows, 2 * out.rows * out.cols, [&](int64_t t, int) {
    for (int64_t k = 0; k < n_used; ++k)
      if (const int32_t place = place_[t * n_used + k]; place >= 0)
        kernels_.add_scaled(a.residual.f32(t), out.f32(place), a.weights.f32(t)[k], out.cols);
  });
}

}  // namespace ingot

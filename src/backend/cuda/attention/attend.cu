// Chooses the kernels for the sequences, and the splits of their keys.
#include <algorithm>
#include <bit>

#include "backend/cuda/attention/attention.cuh"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kHopperRows = 256;  // with fewer rows in the longest sequence, most of Hopper's large tiles are empty

// The head sizes for which decode.cu has a kernel.
bool is_narrow(const AttentionArgs& a) {
  const bool known = a.head_dim == 32 || a.head_dim == 64 || a.head_dim == 96 || a.head_dim == 128;
  return known && a.n_heads / a.n_kv_heads <= kRows;
}

Params params_of(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& a, const DeviceBatch& batch,
                 const AttentionPlan& plan) {
  Params p{};
  p.q = static_cast<const half*>(q.data);
  p.q_stride = q.stride;
  p.y = y.data;
  p.y_stride = y.stride;
  p.y_f32 = y.dtype == DType::kF32;
  p.kv = kv;
  p.batch = batch;
  p.layer = a.layer;
  p.group = a.n_heads / a.n_kv_heads;
  p.window = a.window;
  p.causal = a.causal;
  p.scale = a.softcap > 0 ? a.scale : a.scale * 1.44269504f;
  p.softcap = a.softcap;
  p.sinks = a.sinks ? a.sinks.f32() : nullptr;
  p.block_factor = static_cast<uint32_t>(((uint64_t{1} << 32) + static_cast<uint64_t>(kv.block_size) - 1) /
                                         static_cast<uint64_t>(kv.block_size));
  p.most_short = !plan.any_long ? INT32_MAX : plan.any_short ? kRows : 0;
  p.rows = plan.rows;
  p.n_row_blocks = plan.n_row_blocks;
  p.n_splits = plan.n_splits;
  return p;
}

int64_t n_parts(const AttentionPlan& plan, const DeviceKv& kv) {
  return int64_t{plan.n_seqs} * kv.n_kv_heads * plan.n_row_blocks * plan.rows * plan.n_splits;
}

}  // namespace

bool can_attend(const DeviceKv& kv, const AttentionArgs& a, const DeviceLimits& device) {
  if (dtype_bytes(kv.dtype) > 2 || kv.block_size % 16 != 0) return false;
  return is_narrow(a) || wide_shape(a.head_dim, kv.n_parts == 1, 1, device).rows > 0;
}

// A sequence with few rows has a block for each KV head and split. There are as many splits as the GPU runs at once,
// but at most one per kSplitKeys keys.
AttentionPlan plan_attention(const DeviceKv& kv, const AttentionArgs& a, const AttentionStep& step,
                             const DeviceLimits& device) {
  const int group = a.n_heads / a.n_kv_heads, few = kRows / group;
  const bool narrow = is_narrow(a), on_hopper = can_attend_hopper(kv, a, device);
  const bool has_long = group <= kRows && (on_hopper || can_attend_long(a.head_dim, device));
  AttentionPlan plan{.n_seqs = step.n_seqs, .max_q_len = step.max_q_len};
  plan.on_hopper = on_hopper && (step.batch_invariant || step.max_q_len * group >= kHopperRows ||
                                 !can_attend_long(a.head_dim, device));
  // The longest of the sequences with few rows.
  const int longest_few = std::bit_width(step.short_lens & ((1u << few) - 1));
  plan.any_short = !has_long || (!step.batch_invariant && longest_few > 0);
  plan.any_long = has_long && (step.batch_invariant || step.max_q_len > few);
  if (!plan.any_short) return plan;
  if (narrow) plan.rows = longest_few * group <= 8 ? 8 : kRows;
  int n_at_once = 2 * device.n_multiprocessors;
  if (!narrow) {
    const int64_t n_rows = has_long ? kRows : int64_t{step.max_q_len} * group;
    plan.wide = wide_shape(a.head_dim, kv.n_parts == 1, step.batch_invariant ? INT64_MAX : n_rows, device);
    plan.rows = plan.wide.rows;
    plan.n_row_blocks = static_cast<int>((n_rows + plan.rows - 1) / plan.rows);
    n_at_once = plan.wide.n_blocks * device.n_multiprocessors;
  }
  const int n_tasks = step.n_seqs * a.n_kv_heads * plan.n_row_blocks;
  const int most = (step.most_kv + kSplitKeys - 1) / kSplitKeys;
  if (!step.batch_invariant) plan.n_splits = std::clamp(n_at_once / n_tasks, 1, std::max(most, 1));
  if (plan.n_splits > 1)
    plan.part_bytes = static_cast<size_t>(n_parts(plan, kv)) * static_cast<size_t>(kv.head_dim + 2) * sizeof(float);
  return plan;
}

void attend(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& a, const DeviceBatch& batch,
            const AttentionPlan& plan, Device& device) {
  CHECK(q.dtype == DType::kF16 && q.stride % 8 == 0);
  CHECK(plan.n_splits == 1 || plan.parts != nullptr);
  Params p = params_of(y, q, kv, a, batch, plan);
  p.part_sums = static_cast<float*>(plan.parts);
  if (plan.parts != nullptr) p.part_stats = reinterpret_cast<float2*>(p.part_sums + n_parts(plan, kv) * kv.head_dim);
  if (plan.any_long) plan.on_hopper ? attend_hopper(p, plan, device) : attend_long(p, plan, device);
  if (!plan.any_short) return;
  plan.wide.rows > 0 ? attend_wide(p, plan, device) : attend_short(p, plan, device);
  merge_splits(p, plan, device);
}

}  // namespace ingot::cuda

// Chooses the kernels for the sequences, and the splits of their keys.
#include <algorithm>
#include <bit>

#include "backend/cuda/attention/attention.cuh"
#include "backend/cuda/attention/part_bytes.h"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kSplitBits = std::countr_zero(static_cast<unsigned>(kSplitKeys));
constexpr int kHopperSplitBits = 9;  // an estimate: merging takes as long as about 256 keys
static_assert(kRows <= AttentionStep::kFewTokens);

// The head sizes for which decode.cu has a kernel.
bool is_narrow(const AttentionArgs& a) {
  const bool known = a.head_dim == 32 || a.head_dim == 64 || a.head_dim == 96 || a.head_dim == 128;
  return known && a.n_heads / a.n_kv_heads <= kRows;
}

Params params_of(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& a, const DeviceBatch& batch,
                 bool rounds) {
  Params p{};
  p.q = static_cast<const half*>(q.data);
  p.q_stride = q.stride;
  p.y = y.data;
  p.y_stride = y.stride;
  p.y_f32 = y.dtype == DType::kF32;
  p.rounds = rounds;
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
  return p;
}

int64_t n_parts(const AttentionPlan& plan, const AttentionBlocks& blocks, const DeviceKv& kv) {
  return int64_t{plan.n_seqs} * kv.n_kv_heads * blocks.n_row_blocks * blocks.rows * blocks.n_splits;
}
size_t part_bytes(const AttentionPlan& plan, const AttentionBlocks& blocks, const DeviceKv& kv) {
  if (blocks.n_splits == 1) return 0;
  return static_cast<size_t>(n_parts(plan, blocks, kv)) * static_cast<size_t>(kv.head_dim + 2) * sizeof(float);
}

// Parameters of the kernel for some of the sequences, and of the merge of its parts.
Params part_of(Params p, const AttentionPlan& plan, const AttentionBlocks& blocks, int fewest_rows, int most_rows) {
  p.blocks = blocks, p.fewest_rows = fewest_rows, p.most_rows = most_rows;
  p.part_sums = static_cast<float*>(plan.parts);
  if (p.part_sums != nullptr)
    p.part_stats = reinterpret_cast<float2*>(p.part_sums + n_parts(plan, blocks, p.kv) * p.kv.head_dim);
  return p;
}

// Returns the splits with which the tasks finish in the fewest rounds, for their length. More splits must gain at least
// a tenth, because merging takes time, too.
int splits_for(int64_t n_tasks, int64_t n_at_once, int max_splits) {
  const auto rounds = [&](int n) { return static_cast<double>((n_tasks * n + n_at_once - 1) / n_at_once) / n; };
  int best = 1;
  for (int n = 2; n <= max_splits && n_tasks * (n - 1) < 2 * n_at_once; ++n)
    if (rounds(n) < 0.9 * rounds(best)) best = n;
  return best;
}

// The blocks of the prompts' kernel if decodes are computed at the same time; 0: prompts first, then decodes. A block
// of the prompts' kernel leaves no room for others on its multiprocessor. Decodes wait for memory, so they begin on a
// third of the multiprocessors, and use the others when the prompts end. If one of the two parts does not fill the GPU,
// it is too short to gain.
int prompt_blocks_beside_decodes(const AttentionArgs& a, int prompt_rows, int n_prompt_tokens, int n_decodes,
                                 int n_sms) {
  const int64_t n_prompt_tasks = int64_t{n_prompt_tokens} * (a.n_heads / a.n_kv_heads) / prompt_rows * a.n_kv_heads,
                n_decode_tasks = int64_t{n_decodes} * a.n_kv_heads;
  return std::min(n_prompt_tasks, n_decode_tasks) < n_sms ? 0 : n_sms * 2 / 3;
}

int blocks_of(int64_t n_rows, int rows) { return static_cast<int>((n_rows + rows - 1) / rows); }

}  // namespace

int fast_head_dim(int head_dim) {
  for (const int known : {32, 64, 96, 128, 256})
    if (head_dim <= known) return known;
  return head_dim;
}

bool can_attend(const DeviceKv& kv, const AttentionArgs& a, const DeviceLimits& device) {
  if (dtype_bytes(kv.dtype) > 2 || kv.block_size % 16 != 0) return false;
  return is_narrow(a) || wide_shape(a.head_dim, kv.values_are_keys, 1, device).rows > 0;
}

// A sequence with few rows has a block for each KV head and split: as many splits as the GPU runs at once, but at most
// one per kSplitKeys keys. A sequence with many rows has several blocks of rows, so its keys are split only if these
// blocks do not fill the GPU.
AttentionPlan plan_attention(const DeviceKv& kv, const AttentionArgs& a, const AttentionStep& step,
                             const DeviceLimits& device) {
  const int group = a.n_heads / a.n_kv_heads, few = kRows / group, n_sms = device.n_multiprocessors;
  const int long_rows = long_block_rows(a.head_dim, device), hopper_rows = hopper_block_rows(kv, a, device);
  const bool has_many = group <= kRows && (hopper_rows > 0 || long_rows > 0);
  const int64_t most_rows = int64_t{step.max_q_len} * group;
  AttentionPlan plan{.n_seqs = step.n_seqs, .max_q_len = step.max_q_len};
  int n_few = 0, longest_few = 0, few_tokens = 0;  // of the sequences with few rows
  if (!step.batch_invariant)
    for (int n = 1; n <= few; ++n)
      if (step.n_of_len[n] > 0) n_few += step.n_of_len[n], few_tokens += n * step.n_of_len[n], longest_few = n;
  const auto n_splits = [&](int bits, auto choose) {
    return step.batch_invariant ? 1 : choose(std::max(1, (step.most_kv + (1 << bits) - 1) >> bits));
  };
  if (has_many && n_few < step.n_seqs) {
    plan.on_hopper = hopper_rows > 0;
    AttentionBlocks& b = plan.many;
    b.rows = plan.on_hopper ? hopper_rows : long_rows;
    b.n_row_blocks = blocks_of(most_rows, b.rows);
    b.split_bits = plan.on_hopper ? kHopperSplitBits : kSplitBits;
    const int n_at_once = plan.on_hopper || a.head_dim > 128 ? n_sms : 2 * n_sms;
    const int64_t n_tasks = int64_t{step.n_seqs - n_few} * a.n_kv_heads * b.n_row_blocks;
    b.n_splits = n_splits(b.split_bits, [&](int max_splits) { return splits_for(n_tasks, n_at_once, max_splits); });
    // Parts have room for the rows of all sequences. Beside hundreds of sequences with one token, they would be too
    // large.
    if (part_bytes(plan, b, kv) > most_part_bytes(kv.head_dim, n_sms)) b.n_splits = 1;
  }
  if (!has_many || n_few > 0) {
    AttentionBlocks& b = plan.few;
    int n_at_once = 2 * n_sms;
    if (is_narrow(a)) {
      b.rows = longest_few * group <= 8 ? 8 : kRows;
    } else {
      const int64_t n_rows = has_many ? kRows : most_rows;
      plan.wide = wide_shape(a.head_dim, kv.values_are_keys, step.batch_invariant ? INT64_MAX : n_rows, device);
      b.rows = plan.wide.rows;
      b.n_row_blocks = blocks_of(n_rows, b.rows);
      n_at_once = plan.wide.n_blocks * n_sms;
    }
    b.split_bits = kSplitBits;
    const int n_tasks = step.n_seqs * a.n_kv_heads * b.n_row_blocks;
    b.n_splits = n_splits(b.split_bits, [&](int max_splits) { return std::clamp(n_at_once / n_tasks, 1, max_splits); });
  }
  if (plan.on_hopper && n_few > 0 && (plan.many.n_splits == 1 || plan.few.n_splits == 1))  // they share `parts`
    plan.n_prompt_blocks = prompt_blocks_beside_decodes(a, hopper_rows, step.n_tokens - few_tokens, n_few, n_sms);
  plan.part_bytes = std::max(part_bytes(plan, plan.few, kv), part_bytes(plan, plan.many, kv));
  return plan;
}

void attend(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& a, const DeviceBatch& batch,
            const AttentionPlan& plan, Device& device) {
  CHECK(q.dtype == DType::kF16 && q.stride % 8 == 0);
  CHECK(plan.part_bytes == 0 || plan.parts != nullptr);
  const Params p = params_of(y, q, kv, a, batch, plan.rounds);
  const auto attend_many = [&] {
    const Params many = part_of(p, plan, plan.many, plan.few.rows > 0 ? kRows + 1 : 1, INT32_MAX);
    plan.on_hopper ? attend_hopper(many, plan, device) : attend_long(many, plan, device);
    merge_splits(many, plan, device);
  };
  const auto attend_few = [&] {
    const Params few = part_of(p, plan, plan.few, 1, plan.many.rows > 0 ? kRows : INT32_MAX);
    plan.wide.rows > 0 ? attend_wide(few, plan, device) : attend_short(few, plan, device);
    merge_splits(few, plan, device);
  };
  if (plan.n_prompt_blocks > 0) return device.side_by_side(attend_few, attend_many);
  if (plan.many.rows > 0) attend_many();
  if (plan.few.rows > 0) attend_few();
}

}  // namespace ingot::cuda

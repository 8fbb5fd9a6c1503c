// Assigns memory to the buffers of blocks. Each block requests its buffers twice: first to measure, then to place them.
#include "backend/block.h"

#include <algorithm>
#include <atomic>

#include "backend/backend.h"

namespace ingot {
namespace {

constexpr size_t kAlignment = 256;

int next_id() {
  static std::atomic<int> id{0};
  return ++id;
}

}  // namespace

void Buffers::begin_block() { scratch_.at = 0; }

void Buffers::place(Tensor& t, Arena& arena, DType dtype, int64_t rows, int64_t cols) {
  t = {arena.base == nullptr ? nullptr : arena.base + arena.at, dtype, rows, cols, cols};
  const size_t bytes = static_cast<size_t>(rows * cols) * dtype_bytes(dtype);
  arena.at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  arena.most = std::max(arena.most, arena.at);
}

void Buffers::scratch_f32(Tensor& t, int64_t cols, int64_t rows_a_token) {
  limits_.max_width = std::max(limits_.max_width, static_cast<int>(cols));
  scratch(t, DType::kF32, limits_.max_tokens * rows_a_token, cols);
}

void Buffers::scratch_act(Tensor& t, int64_t cols, int64_t rows_a_token) {
  limits_.max_width = std::max(limits_.max_width, static_cast<int>(cols));
  scratch(t, act_, limits_.max_tokens * rows_a_token, cols);
}

void Buffers::has_attention(const AttentionArgs& a) {
  limits_.max_heads = std::max(limits_.max_heads, a.n_heads);
  limits_.head_dim = std::max(limits_.head_dim, a.head_dim);
}

void Buffers::has_experts(int64_t rows_a_token, int64_t widest) {
  constexpr int64_t kRowPadding = 64;
  const int64_t rows = limits_.max_tokens * rows_a_token;
  limits_.max_expert_rows = std::max(limits_.max_expert_rows, rows);
  limits_.max_expert_floats = std::max(limits_.max_expert_floats, rows * (widest + kRowPadding));
}

size_t Buffers::bytes() const { return kept_.most + scratch_.most; }

void Buffers::allocate(Backend& backend) {
  for (Arena* arena : {&kept_, &scratch_}) {
    // Backends count rows and columns in ints, so the arena has rows of this many bytes.
    constexpr size_t kRow = kAlignment;
    if (arena->most == 0) continue;
    const auto rows = static_cast<int64_t>((arena->most + kRow - 1) / kRow);
    arena->base = static_cast<char*>(backend.alloc(DType::kI32, rows, kRow / 4).data);
    arena->at = 0;
  }
}

void AttentionBlock::lay_out(Buffers& buffers) {
  const int64_t q_dim = int64_t{attention.n_heads} * attention.head_dim;
  const int64_t kv_dim = int64_t{attention.n_kv_heads} * attention.head_dim;
  buffers.has_attention(attention);
  buffers.scratch_act(q, q_dim);
  buffers.scratch_act(k, kv_dim);
  buffers.scratch_act(v, kv_dim);
  buffers.scratch_act(attended, q_dim);
  if (has_gate) buffers.scratch_act(gates, q_dim);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);  // values before a post-norm may not fit f16
  if (heads_of_ranks) buffers.scratch_act(heads_of_ranks->rows, heads_of_ranks->q_dim + heads_of_ranks->k_dim);
}

void LatentAttentionBlock::lay_out(Buffers& buffers) {
  const int n_heads = attention.n_heads;
  const int64_t q_dim = int64_t{n_heads} * attention.head_dim, query_dim = int64_t{n_heads} * (nope_dim + rope_dim);
  buffers.has_attention(attention);
  buffers.has_experts(n_heads, std::max({kv_rank, nope_dim, value_dim}));
  if (q_rank > 0) buffers.scratch_act(q_low, q_rank);
  buffers.scratch_act(q_heads, query_dim);
  buffers.scratch_act(q, q_dim);
  buffers.scratch_act(latent, attention.head_dim);
  buffers.scratch_act(k, attention.head_dim);
  buffers.scratch_act(attended, q_dim);
  buffers.scratch_act(values, int64_t{n_heads} * value_dim);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void DeltaBlock::lay_out(Buffers& buffers) {
  const int64_t all_keys = int64_t{n_key_heads} * key_dim, all_values = int64_t{n_heads} * value_dim;
  buffers.scratch_f32(channels, 2 * all_keys + all_values);
  buffers.scratch_act(gates, all_values);
  buffers.scratch_f32(beta, n_heads);
  buffers.scratch_f32(alpha, n_heads);
  buffers.scratch_f32(read, all_values);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void DraftInputBlock::lay_out(Buffers& buffers) {
  buffers.scratch_f32(embedded, x.cols);
  buffers.scratch_f32(normed, std::max(2 * x.cols, hidden.cols));  // products may convert inputs of this width
}

void FeedForwardBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(hidden, ffn_dim);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void ExpertsBlock::lay_out(Buffers& buffers) {
  const int64_t n_used = route.n_used, widest = std::max<int64_t>(ffn_dim, (shared_dim + n_used - 1) / n_used);
  const int64_t n_rows = buffers.limits().max_tokens;
  buffers.has_experts(n_used, std::max({static_cast<int>(x.cols), ffn_dim, shared_dim}));
  buffers.scratch(logits, DType::kF32, n_rows, n_experts);
  buffers.scratch(ids, DType::kI32, n_rows, n_used);
  buffers.scratch(weights, DType::kF32, n_rows, n_used);
  buffers.scratch_act(gate, widest, n_used);
  buffers.scratch_act(up, widest, n_used);
  buffers.scratch_act(out, x.cols, n_used);
  if (shared_dim > 0) buffers.scratch_act(hidden, shared_dim);
  if (shared_scale != 1) buffers.scratch_f32(branch, x.cols);
  if (sums) buffers.scratch_f32(sum, x.cols);
}

void HeadBlock::lay_out(Buffers& buffers) {
  const int64_t n_rows = buffers.limits().max_logits;
  buffers.keep(logits, DType::kF32, n_rows, n_vocab);
  buffers.scratch(selected, DType::kF32, n_rows, x.cols);
  buffers.scratch(normed, buffers.act(), n_rows, x.cols);
  if (n_ranks == 1) return;
  buffers.scratch(own, DType::kF32, n_rows, rank_vocab);
  buffers.scratch(gathered, DType::kF32, n_ranks * n_rows, rank_vocab);
}

void PoolBlock::lay_out(Buffers& buffers) {
  if (pools) buffers.keep(pooled, DType::kF32, buffers.limits().max_seqs, x.cols);
}

Program::Program() : id(next_id()) {}

void Program::lay_out(Buffers& buffers) {
  const int n = buffers.limits().max_tokens;
  buffers.keep(x, DType::kF32, n, dim);
  for (RopeTable& rope : ropes) {
    buffers.keep(rope.inv_freq, DType::kF32, 1, rope.rot_dim / 2);
    buffers.keep(rope.angles, DType::kF32, n, rope.rot_dim);
  }
  if (n_latent_heads > 0) buffers.keep(head_ids, DType::kI32, n, n_latent_heads);
  if (n_kept > 0) buffers.keep(kept, DType::kF32, n, int64_t{n_kept} * dim);
  if (has_pair) buffers.keep(pair, buffers.act(), n, 2 * int64_t{dim});
  for_each([&](auto& block) {
    buffers.begin_block();
    block.x = x;
    // The first scratch has the same place in all blocks, so a block can compute the norm of the next block.
    if constexpr (requires { block.follows_sum; }) buffers.scratch_act(block.normed, dim);
    if constexpr (requires { block.rope_table; })
      block.rope.angles = block.rope_table == kNoRope ? Tensor{} : ropes[static_cast<size_t>(block.rope_table)].angles;
    if constexpr (requires { block.head_ids; }) block.head_ids = head_ids;
    if constexpr (requires { block.kept; }) block.kept = kept;
    if constexpr (requires { block.pair; }) block.pair = pair;
    if constexpr (requires { block.kv; }) kv = block.kv;
    if constexpr (requires { block.states; }) states = block.states;
    block.lay_out(buffers);
  });
}

StepLimits Program::place(Backend& backend, const StepLimits& limits) {
  Buffers buffers(backend.act_dtype(), limits);
  lay_out(buffers);
  buffers.allocate(backend);
  lay_out(buffers);
  for (const RopeTable& rope : ropes) backend.upload(rope.inv_freq, rope.frequencies.data());
  // Without an embedding, x is received for real tokens only. The rows of padding must still be finite.
  if (!blocks.empty() && !std::holds_alternative<EmbedBlock>(blocks.front()))
    backend.upload(x, std::vector<float>(static_cast<size_t>(x.rows * x.cols)).data());
  if (n_latent_heads > 0) {
    std::vector<int32_t> ids(static_cast<size_t>(head_ids.rows * head_ids.cols));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i) % n_latent_heads;
    backend.upload(head_ids, ids.data());
  }
  return buffers.limits();
}

void Program::allocate(Backend& backend, const StepLimits& limits) {
  backend.reserve(place(backend, limits));
  backend.prepare_program(*this);
}

Tensor Program::output(int n_tokens, int n_seqs, int n_logits) const {
  if (const auto* head = std::get_if<HeadBlock>(&blocks.back())) return head->logits.slice_rows(0, n_logits);
  const auto& pool = std::get<PoolBlock>(blocks.back());
  return pool.pools ? pool.pooled.slice_rows(0, n_seqs) : x.slice_rows(0, n_tokens);
}

}  // namespace ingot

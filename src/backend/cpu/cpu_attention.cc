// Attention and the KV cache. The batch is cut into tasks of (tokens of a sequence, KV head, range of keys). If a step
// has few decodes with long contexts, their keys are cut as well, and the partial results are merged (as in
// flash-decoding).
#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv.h"

namespace ingot {

using cpu::CpuKv;

void CpuBackend::write_token(KvCache& cache, int layer, int64_t token, const float* k, const float* v) {
  const auto& kv = static_cast<const CpuKv&>(cache);
  const bool of_source = kv.shape.of_source;
  const int seq = of_source ? batch().seq_of_source_row(token) : token_seq_[token];
  const int position = of_source ? static_cast<int>(token) - batch().source_start[seq] : batch().positions[token];
  const int size = kv.shape.block_size, head_dim = kv.shape.head_dim;
  const int32_t block = batch().blocks(seq, kv.shape.table)[position / size];
  CHECK(block >= 0 && block < kv.shape.n_blocks);
  for (int h = 0; h < kv.shape.n_kv_heads; ++h, k += head_dim, v += head_dim) {
    uint8_t* page = kv.pages(layer, h) + cpu::offset_of(kv.places(), block);
    kernels_.write_kv(k, v, head_dim, kv.layout, page, position % size);
  }
}

void CpuBackend::kv_write(KvCache& kv, int layer, Tensor k, Tensor v) {
  for_rows(k.rows, 2 * k.rows * k.cols, [&](int64_t t, int) { write_token(kv, layer, t, k.f32(t), v.f32(t)); });
}

// The number of tokens from `first` on, at most n, that see the same keys as the first, or all no later ones.
int CpuBackend::n_seeing_alike(int first, int n) const {
  const auto sees_later = [&](int t) { return batch().seen_by(t) > batch().positions[t] + 1; };
  int count = 1;
  while (count < n && sees_later(first + count) == sees_later(first) &&
         (!sees_later(first) || batch().seen_by(first + count) == batch().seen_by(first)))
    ++count;
  return count;
}

// Makes the tasks of one KV head; all heads have the same tasks. Returns the number of parts into which each token's
// keys are cut. The number is 1 unless the context is long and there are too few tasks for the threads.
//
// The softmax handles blocks of keys in order, so a token's numbers depend on where its key range is cut. In
// deterministic mode the range is not cut, and its blocks are counted from the first key. A block has a fixed number of
// chunks (next_block), and no chunk crosses a page.
int CpuBackend::plan_attention(const AttentionArgs& a, const KvShape& kv) {
  const int block_size = kv.block_size;
  const std::span<const int32_t> lengths = kv.of_source ? batch().source_len : batch().kv_len;
  constexpr int kShortestPart = 256;
  const int tokens_a_task = std::max(1, cpu::kMaxQueryRows / (a.n_heads / a.n_kv_heads));
  attention_tasks_.clear();
  int longest = 0;
  for (int seq = 0; seq < batch().n_seqs(); ++seq) {
    for (int t = batch().q_start[seq], n = 0; t < batch().q_start[seq + 1]; t += n) {
      n = std::min(tokens_a_task, batch().q_start[seq + 1] - t);
      const bool sees_later = a.causal && a.sees_later && batch().seen_by(t) > batch().positions[t] + 1;
      if (a.causal && a.sees_later && !batch().seen_len.empty()) n = n_seeing_alike(t, n);
      const int position = batch().positions[t];
      int begin = a.window > 0 ? std::max(0, position + 1 - a.window) : 0;
      if (deterministic_)
        begin -=
            begin % (block_size % cpu::kKeyChunk == 0 ? cpu::kKeyBlock : block_size * cpu::kKeyBlock / cpu::kKeyChunk);
      const int seen = sees_later     ? batch().seen_by(t)
                       : a.causal     ? position + n
                       : a.window > 0 ? position + n - 1 + a.window
                                      : lengths[seq];
      const int end = std::min(seen, lengths[seq]);
      attention_tasks_.push_back({seq, t, n, begin, end, sees_later, -1});
      longest = std::max(longest, end - begin);
    }
  }
  // Long tasks go first, so that the last task to finish is short. In a prompt, the long tasks are at the end.
  std::reverse(attention_tasks_.begin(), attention_tasks_.end());
  const int n_tasks = static_cast<int>(attention_tasks_.size()), wanted = 4 * pool_.size();
  if (deterministic_ || pool_.size() == 1 || n_tasks * a.n_kv_heads >= wanted || longest < 2 * kShortestPart) return 1;
  const int n_parts =
      std::min((wanted + n_tasks * a.n_kv_heads - 1) / (n_tasks * a.n_kv_heads), longest / kShortestPart);
  for (int i = 0; i < n_tasks; ++i) {
    const AttentionTask whole = attention_tasks_[i];
    const auto cut = [&](int part) {
      return whole.key_begin + (whole.key_end - whole.key_begin) * int64_t{part} / n_parts;
    };
    for (int part = 0; part < n_parts; ++part) {
      AttentionTask& task = part == 0 ? attention_tasks_[i] : attention_tasks_.emplace_back(whole);
      task.key_begin = static_cast<int>(cut(part));
      task.key_end = static_cast<int>(cut(part + 1));
      task.part = i * n_parts + part;
    }
  }
  return n_parts;
}

// If more query heads share the KV head than a task can hold (attention over latents), handles some heads at a time.
void CpuBackend::attention_in_turns(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& a) {
  CHECK_EQ(a.n_kv_heads, 1);
  for (int first = 0; first < a.n_heads; first += cpu::kMaxQueryRows) {
    const int n = std::min(cpu::kMaxQueryRows, a.n_heads - first);
    const int64_t begin = int64_t{first} * a.head_dim, cols = int64_t{n} * a.head_dim;
    AttentionArgs part = a;
    part.n_heads = n;
    if (a.sinks) part.sinks = a.sinks.slice_cols(first, n);
    attention(y.slice_cols(begin, cols), q.slice_cols(begin, cols), kv, part);
  }
}

void CpuBackend::attention(Tensor y, Tensor q, const KvCache& cache, const AttentionArgs& args) {
  const auto& kv = static_cast<const CpuKv&>(cache);
  AttentionArgs a = args;
  if (kv.shape.of_source) a.causal = false, a.window = 0;
  const int group = a.n_heads / a.n_kv_heads;
  if (group > cpu::kMaxQueryRows) return attention_in_turns(y, q, cache, a);
  const int n_parts = plan_attention(a, kv.shape);
  const int64_t row_floats = 2 + a.head_dim, part_floats = cpu::kMaxQueryRows * row_floats;
  if (attention_scratch_stride_ < cpu::attention_scratch_floats(a.head_dim)) {  // only if reserve() was not called
    attention_scratch_stride_ = cpu::attention_scratch_floats(a.head_dim);
    attention_scratch_ = cpu::Memory(static_cast<size_t>(pool_.size() * attention_scratch_stride_ * 4));
  }
  const auto n_tasks = static_cast<int64_t>(attention_tasks_.size()) * a.n_kv_heads;
  if (n_parts > 1 && partials_.size() < static_cast<size_t>(n_tasks * part_floats * 4))
    partials_ = cpu::Memory(static_cast<size_t>(n_tasks * part_floats * 4));
  pool_.parallel_for(n_tasks, [&](int64_t i, int thread) {
    const AttentionTask& task = attention_tasks_[i / a.n_kv_heads];
    const int kv_head = static_cast<int>(i % a.n_kv_heads), first_head = kv_head * group;
    const int64_t column = int64_t{first_head} * a.head_dim;
    kernels_.attention({.pages = kv.pages(a.layer, kv_head),
                        .places = kv.places(),
                        .kv = kv.layout,
                        .block_size = kv.shape.block_size,
                        .blocks = batch().blocks(task.seq, kv.shape.table),
                        .q = q.f32(task.first_token) + column,
                        .q_stride = q.stride,
                        .group = group,
                        .n_tokens = task.n_tokens,
                        .head_dim = a.head_dim,
                        .position = batch().positions[task.first_token],
                        .key_begin = task.key_begin,
                        .key_end = task.key_end,
                        .window = a.window,
                        .causal = a.causal,
                        .sees_all = task.sees_all,
                        .scale = a.scale,
                        .softcap = a.softcap,
                        .sinks = a.sinks ? a.sinks.f32() + first_head : nullptr,
                        .y = y.f32(task.first_token) + column,
                        .y_stride = y.stride,
                        .partial = task.part < 0
                                       ? nullptr
                                       : partials_.f32() + (int64_t{task.part} * a.n_kv_heads + kv_head) * part_floats,
                        .scratch = attention_scratch_.f32() + thread * attention_scratch_stride_});
  });
  if (n_parts == 1) return;
  for (const AttentionTask& task : attention_tasks_) {
    if (task.part % n_parts != 0) continue;
    for (int kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) {
      for (int t = 0; t < task.n_tokens; ++t) {
        const float* first =
            partials_.f32() + (int64_t{task.part} * a.n_kv_heads + kv_head) * part_floats + t * group * row_floats;
        kernels_.merge_attention(first, a.n_kv_heads * part_floats, n_parts, group, a.head_dim,
                                 a.sinks ? a.sinks.f32() + int64_t{kv_head} * group : nullptr,
                                 y.f32(task.first_token + t) + int64_t{kv_head} * group * a.head_dim);
      }
    }
  }
}

}  // namespace ingot

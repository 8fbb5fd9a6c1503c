#include "backend/cuda/device_batch.h"

#include <algorithm>

#include "base/check.h"

namespace ingot::cuda {
namespace {

// Where the arrays lie, in ints; each starts on 16 bytes.
struct Places {
  int64_t tokens, positions, token_seq, q_start, kv_len, logit_rows, state_in, state_out, table, end;
};

Places places_of(int64_t max_tokens, int64_t max_seqs, int64_t max_logits, int64_t table_size) {
  int64_t at = 4;  // the first four: max_blocks
  const auto take = [&](int64_t n) {
    const int64_t begin = at;
    at += (n + 3) / 4 * 4;
    return begin;
  };
  Places p{};
  p.tokens = take(max_tokens);
  p.positions = take(max_tokens);
  p.token_seq = take(max_tokens);
  p.q_start = take(max_seqs + 1);
  p.kv_len = take(max_seqs);
  p.logit_rows = take(max_logits);
  p.state_in = take(max_seqs);
  p.state_out = take(max_seqs);
  p.table = take(table_size);
  p.end = at;
  return p;
}

}  // namespace

BatchUpload::~BatchUpload() {
  for (Slot& slot : slots_)
    if (slot.brought != nullptr) cudaEventDestroy(slot.brought);
}

void BatchUpload::reserve(int max_tokens, int max_seqs, int max_logits, int64_t table_size) {
  max_tokens_ = max_seqs_ = max_logits_ = 0, table_size_ = 0;  // until there is memory for more
  const Places at = places_of(max_tokens, max_seqs, max_logits, table_size);
  const size_t bytes = static_cast<size_t>(at.end) * sizeof(int32_t);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (Slot& slot : slots_) {
    slot.memory = Memory(bytes, Place::kPinned);
    if (slot.brought == nullptr)
      check(cudaEventCreateWithFlags(&slot.brought, cudaEventDisableTiming), "cudaEventCreate");
  }
  device_ = Memory(bytes);
  const auto* base = static_cast<const int32_t*>(device_.data());
  view_ = {.tokens = base + at.tokens,
           .positions = base + at.positions,
           .token_seq = base + at.token_seq,
           .q_start = base + at.q_start,
           .kv_len = base + at.kv_len,
           .logit_rows = base + at.logit_rows,
           .max_blocks = base,
           .block_table = base + at.table,
           .state_in = base + at.state_in,
           .state_out = base + at.state_out};
  max_tokens_ = max_tokens, max_seqs_ = max_seqs, max_logits_ = max_logits, table_size_ = table_size;
}

bool BatchUpload::upload(const Batch& batch, const Padding& padding, const Key* keys, const RowDrawn* drawn, int block_size, Device& device) {
  int n_blocks = padding.n_seqs > 0 ? 1 : 0;  // of the longest sequence: the table's rows are cut to it
  for (const int32_t len : batch.kv_len) n_blocks = std::max(n_blocks, (len + block_size - 1) / block_size);
  if (!batch.block_table.empty()) n_blocks = std::min(n_blocks, batch.max_blocks);
  if (batch.block_table.empty() && batch.n_seqs() > 0) n_blocks = 0;
  const int n_tokens = batch.n_tokens() + padding.n_seqs * padding.q_len, n_seqs = batch.n_seqs() + padding.n_seqs;
  const int n_logits = batch.n_logits() + padding.n_logits;
  const int64_t table = int64_t{n_blocks} * n_seqs;
  const bool moved = n_tokens > max_tokens_ || n_seqs > max_seqs_ || n_logits > max_logits_ || table > table_size_;
  if (moved) {
    reserve(std::max(n_tokens, max_tokens_), std::max(n_seqs, max_seqs_), std::max(n_logits, max_logits_), std::max(table, table_size_));
  }
  const Places at = places_of(max_tokens_, max_seqs_, max_logits_, table_size_);
  Slot& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % kSlots;
  check(cudaEventSynchronize(slot.brought), "cudaEventSynchronize");
  auto* host = static_cast<int32_t*>(slot.memory.data());
  host[0] = n_blocks;
  std::ranges::copy(batch.tokens, host + at.tokens);
  std::ranges::copy(batch.positions, host + at.positions);
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    std::fill(host + at.token_seq + batch.q_start[seq], host + at.token_seq + batch.q_start[seq + 1], seq);
    std::copy_n(batch.blocks(seq), n_blocks, host + at.table + int64_t{seq} * n_blocks);
  }
  host[at.q_start] = 0;
  std::ranges::copy(batch.q_start, host + at.q_start);
  std::ranges::copy(batch.kv_len, host + at.kv_len);
  std::ranges::copy(batch.logit_rows, host + at.logit_rows);
  std::fill_n(host + at.logit_rows + batch.n_logits(), padding.n_logits, 0);
  std::ranges::copy(batch.state_in, host + at.state_in);
  std::ranges::copy(batch.state_out, host + at.state_out);
  for (int seq = batch.n_seqs(); seq < n_seqs; ++seq) {
    const int first = host[at.q_start + seq];
    host[at.q_start + seq + 1] = first + padding.q_len;
    host[at.kv_len + seq] = padding.q_len;
    host[at.state_in + seq] = -1;
    host[at.state_out + seq] = padding.state;
    std::fill_n(host + at.table + int64_t{seq} * n_blocks, n_blocks, padding.block);
    for (int t = 0; t < padding.q_len; ++t) {
      host[at.tokens + first + t] = 0;
      host[at.positions + first + t] = t;
      host[at.token_seq + first + t] = seq;
    }
  }
  const bool has_drawn = keys != nullptr || drawn != nullptr;
  bring_batch(static_cast<int32_t*>(device_.data()), host, at.table + table,
              {.first = at.tokens, .n = has_drawn ? batch.n_tokens() : 0, .keys = keys, .drawn = drawn}, device);
  check_launch("bring_batch");
  check(cudaEventRecord(slot.brought, device.stream()), "cudaEventRecord");
  return moved;
}

}  // namespace ingot::cuda

#include "backend/cuda/device_batch.h"

#include <algorithm>

#include "base/check.h"

namespace ingot::cuda {
namespace {

// Most table changes that one kernel copies. More changes need several kernels.
constexpr size_t kMaxChanges = size_t{64} << 10;

// Offsets of the arrays, in ints; each array is aligned to 16 bytes. Pinned memory holds the list of table changes in
// place of the table.
struct Places {
  int64_t tokens, positions, rope_positions, seen_len, source_positions, source_seq, source_len, token_seq, q_start, kv_len,
      logit_rows, state_in, state_out, table, end;
};

Places places_of(const BatchSizes& max_sizes, int64_t table_size) {
  int64_t at = 4;  // the first four ints hold the length of a table row
  const auto take = [&](int64_t n) {
    const int64_t begin = at;
    at += (n + 3) / 4 * 4;
    return begin;
  };
  Places p{};
  p.tokens = take(max_sizes.tokens);
  p.positions = take(max_sizes.tokens);
  p.rope_positions = take(max_sizes.rope_positions());
  p.seen_len = take(max_sizes.seen_len());
  p.source_positions = take(max_sizes.source_rows);
  p.source_seq = take(max_sizes.source_rows);
  p.source_len = take(max_sizes.source_rows > 0 ? max_sizes.seqs : 0);
  p.token_seq = take(max_sizes.tokens);
  p.q_start = take(max_sizes.seqs + 1);
  p.kv_len = take(max_sizes.seqs);
  p.logit_rows = take(max_sizes.logits);
  p.state_in = take(max_sizes.seqs);
  p.state_out = take(max_sizes.seqs);
  p.table = take(table_size);
  p.end = at;
  return p;
}

BatchSizes largest(const BatchSizes& a, const BatchSizes& b) {
  return {std::max(a.tokens, b.tokens), std::max(a.seqs, b.seqs), std::max(a.logits, b.logits),
          std::max(a.tables, b.tables), std::max(a.blocks, b.blocks), std::max(a.axes, b.axes),
          std::max(a.source_rows, b.source_rows), a.sees_later || b.sees_later};
}

}  // namespace

BatchUpload::~BatchUpload() {
  for (Slot& slot : slots_)
    if (slot.brought != nullptr) cudaEventDestroy(slot.brought);
}

size_t BatchUpload::bytes_for(const BatchSizes& max_sizes) {
  return static_cast<size_t>(places_of(max_sizes, max_sizes.table_entries()).end) * sizeof(int32_t);
}

DeviceBatch BatchUpload::view(const KvShape& kv, bool writes) const {
  DeviceBatch view = view_;
  view.block_table += int64_t{kv.table} * most_.seqs * most_.blocks;
  if (!kv.of_source) return view;
  const Places at = places_of(most_, 0);
  const auto* base = static_cast<const int32_t*>(device_.data());
  view.kv_len = base + at.source_len;
  if (writes) view.positions = base + at.source_positions, view.token_seq = base + at.source_seq;
  return view;
}

void BatchUpload::reserve(const BatchSizes& sizes, Device& device) {
  most_ = {};  // zero until the new memory is allocated
  const Places at = places_of(sizes, sizes.table_entries());
  const size_t bytes = bytes_for(sizes);
  check(cudaStreamSynchronize(device.stream()), "cudaStreamSynchronize");
  for (Slot& slot : slots_) {
    slot.memory =
        Memory(static_cast<size_t>(at.table) * sizeof(int32_t) + kMaxChanges * sizeof(TableChange), Place::kPinned);
    if (slot.brought == nullptr)
      check(cudaEventCreateWithFlags(&slot.brought, cudaEventDisableTiming), "cudaEventCreate");
  }
  device_ = Memory(bytes);
  // Entries that are never copied stay 0, which is a valid block.
  check(cudaMemsetAsync(device_.data(), 0, bytes, device.stream()), "cudaMemsetAsync");
  table_.reset(sizes.tables, sizes.seqs, sizes.blocks);
  const auto* base = static_cast<const int32_t*>(device_.data());
  view_ = {.tokens = base + at.tokens,
           .positions = base + at.positions,
           .rope_positions = sizes.rope_positions() > 0 ? base + at.rope_positions : nullptr,
           .axis_stride = sizes.tokens,
           .token_seq = base + at.token_seq,
           .q_start = base + at.q_start,
           .kv_len = base + at.kv_len,
           .logit_rows = base + at.logit_rows,
           .max_blocks = base,
           .block_table = base + at.table,
           .state_in = base + at.state_in,
           .state_out = base + at.state_out};
  most_ = sizes;
}

// Writes all arrays except the table. The padding follows the batch's own sequences.
void BatchUpload::write_arrays(const Batch& batch, const Padding& padding, int32_t* host) const {
  const Places at = places_of(most_, 0);
  host[0] = most_.blocks;
  std::ranges::copy(batch.tokens, host + at.tokens);
  std::ranges::copy(batch.positions, host + at.positions);
  for (int axis = 0; axis < (most_.axes > 1 ? most_.axes : 0); ++axis)
    for (int t = 0; t < batch.n_tokens(); ++t)
      host[at.rope_positions + int64_t{axis} * most_.tokens + t] = batch.rope_position(axis, t);
  std::ranges::copy(batch.seen_len, host + at.seen_len);
  if (most_.source_rows > 0) {
    std::ranges::copy(batch.source_len, host + at.source_len);
    std::fill_n(host + at.source_len + batch.n_seqs(), padding.n_seqs, 1);
    for (int row = 0; row < batch.n_source_rows(); ++row) {
      const int seq = batch.seq_of_source_row(row);
      host[at.source_seq + row] = seq, host[at.source_positions + row] = row - batch.source_start[seq];
    }
  }
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    std::fill(host + at.token_seq + batch.q_start[seq], host + at.token_seq + batch.q_start[seq + 1], seq);
  host[at.q_start] = 0;
  std::ranges::copy(batch.q_start, host + at.q_start);
  std::ranges::copy(batch.kv_len, host + at.kv_len);
  std::ranges::copy(batch.logit_rows, host + at.logit_rows);
  std::fill_n(host + at.logit_rows + batch.n_logits(), padding.n_logits, 0);
  std::ranges::copy(batch.state_in, host + at.state_in);
  std::ranges::copy(batch.state_out, host + at.state_out);
  for (int seq = batch.n_seqs(); seq < batch.n_seqs() + padding.n_seqs; ++seq) {
    const int first = host[at.q_start + seq];
    host[at.q_start + seq + 1] = first + padding.q_len;
    host[at.kv_len + seq] = padding.q_len;
    host[at.state_in + seq] = -1;
    host[at.state_out + seq] = padding.state;
    for (int t = 0; t < padding.q_len; ++t) {
      host[at.tokens + first + t] = 0;
      host[at.positions + first + t] = t;
      for (int axis = 0; axis < (most_.axes > 1 ? most_.axes : 0); ++axis)
        host[at.rope_positions + int64_t{axis} * most_.tokens + first + t] = t;
      host[at.token_seq + first + t] = seq;
    }
  }
}

// The first kernel copies the arrays and as many changes as fit. Further kernels copy the other changes, for example
// when all sequences are new.
void BatchUpload::send(const Batch& batch, const Padding& padding, std::span<const TableChange> changes,
                       DrawnTokens tokens, FloatCopy copy, Device& device) {
  const int64_t table = places_of(most_, 0).table;
  auto* to = static_cast<int32_t*>(device_.data());
  for (bool first = true; first || !changes.empty(); first = false) {
    Slot& slot = slots_[next_slot_];
    next_slot_ = (next_slot_ + 1) % kSlots;
    check(cudaEventSynchronize(slot.brought), "cudaEventSynchronize");
    auto* host = static_cast<int32_t*>(slot.memory.data());
    if (first) write_arrays(batch, padding, host);
    const size_t n = std::min(changes.size(), kMaxChanges);
    auto* pairs = reinterpret_cast<TableChange*>(host + table);
    std::ranges::copy(changes.first(n), pairs);
    if (n % 2 != 0) pairs[n] = pairs[n - 1];  // the kernel copies two at a time
    if (!first) tokens.n = copy.n = 0;
    const TableWrites writes{to + table, host + table, static_cast<int64_t>((n + 1) / 2 * 2)};
    upload_batch(to, host, first ? table : 0, tokens, writes, copy, device);
    check_launch("upload_batch");
    check(cudaEventRecord(slot.brought, device.stream()), "cudaEventRecord");
    changes = changes.subspan(n);
  }
}

bool BatchUpload::upload(const Batch& batch, const Padding& padding, const Draws& draws, const FloatCopy& copy,
                         int block_size, Device& device) {
  const BatchSizes needed{.tokens = batch.n_tokens() + padding.n_seqs * padding.q_len,
                          .seqs = batch.n_seqs() + padding.n_seqs,
                          .logits = batch.n_logits() + padding.n_logits,
                          .tables = std::max(batch.n_tables(), padding.n_tables),
                          .blocks = std::max(most_used_blocks(batch, block_size), padding.n_blocks),
                          .axes = batch.rope_positions.empty() ? 1 : kRopeAxes,
                          .source_rows = std::max(batch.n_source_rows(), batch.source_len.empty() ? 0 : 1),
                          .sees_later = !batch.seen_len.empty()};
  const BatchSizes sizes = largest(needed, most_);
  const bool moved = sizes != most_;
  if (moved) reserve(sizes, device);
  view_.seen_len =
      batch.seen_len.empty() ? nullptr : static_cast<const int32_t*>(device_.data()) + places_of(most_, 0).seen_len;
  const int64_t n_drawn = draws.keys != nullptr || draws.drawn != nullptr ? batch.n_tokens() : 0;
  const int64_t tokens = places_of(most_, 0).tokens;
  try {
    send(batch, padding, table_.changes_to(batch, block_size, padding),
         {.first = tokens, .n = n_drawn, .keys = draws.keys, .drawn = draws.drawn}, copy, device);
  } catch (...) {
    table_.forget();
    throw;
  }
  return moved;
}

}  // namespace ingot::cuda

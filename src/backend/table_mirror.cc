#include "backend/table_mirror.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ingot {
namespace {

constexpr int32_t kUnknown = INT32_MIN;  // differs from every block

}  // namespace

int used_blocks(const Batch& batch, int seq, int block_size, int table) {
  if (batch.block_table.empty()) return 0;
  const bool of_source = !batch.source_len.empty() && table == batch.n_tables() - 1;
  const int n = of_source ? batch.source_len[seq] : batch.kv_len[seq];
  return std::min((n + block_size - 1) / block_size, batch.max_blocks);
}

int most_used_blocks(const Batch& batch, int block_size) {
  int max_used = 0;
  for (int table = 0; table < batch.n_tables(); ++table)
    for (int seq = 0; seq < batch.n_seqs(); ++seq)
      max_used = std::max(max_used, used_blocks(batch, seq, block_size, table));
  return max_used;
}

void TableMirror::reset(int n_tables, int n_rows, int stride) {
  CHECK(int64_t{n_tables} * n_rows * stride <= INT32_MAX);
  n_tables_ = n_tables, n_rows_ = n_rows, stride_ = stride;
  table_.assign(static_cast<size_t>(n_tables) * static_cast<size_t>(n_rows) * static_cast<size_t>(stride), kUnknown);
}

void TableMirror::forget() { std::ranges::fill(table_, kUnknown); }

// The entries from index `first` on shall be the n wanted ones.
void TableMirror::find_changes(const int32_t* wanted, int n, int64_t first) {
  int32_t* known = table_.data() + first;
  if (n == 0 || std::memcmp(known, wanted, static_cast<size_t>(n) * sizeof(int32_t)) == 0) return;
  for (int i = 0; i < n; ++i)
    if (known[i] != wanted[i]) changes_.push_back({static_cast<int32_t>(first + i), known[i] = wanted[i]});
}

std::span<const TableChange> TableMirror::changes_to(const Batch& batch, int block_size, const Padding& padding) {
  CHECK_LE(batch.n_seqs() + padding.n_seqs, n_rows_);
  CHECK(batch.n_tables() <= n_tables_ && padding.n_tables <= n_tables_);
  CHECK(most_used_blocks(batch, block_size) <= stride_ && padding.n_blocks <= stride_);
  changes_.clear();
  const auto index_of = [&](int table, int row) { return (int64_t{table} * n_rows_ + row) * stride_; };
  for (int table = 0; table < batch.n_tables(); ++table)
    for (int seq = 0; seq < batch.n_seqs(); ++seq)
      find_changes(batch.blocks(seq, table), used_blocks(batch, seq, block_size, table), index_of(table, seq));
  for (int table = 0; table < padding.n_tables; ++table)
    for (int row = batch.n_seqs(); row < batch.n_seqs() + padding.n_seqs; ++row)
      for (int i = 0; i < padding.n_blocks; ++i)
        find_changes(&padding.blocks[static_cast<size_t>(table)], 1, index_of(table, row) + i);
  return changes_;
}

}  // namespace ingot

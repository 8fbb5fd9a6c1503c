#include "backend/table_mirror.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ingot {
namespace {

constexpr int32_t kUnknown = INT32_MIN;  // differs from every block

}  // namespace

int used_blocks(const Batch& batch, int seq, int block_size) {
  return batch.block_table.empty() ? 0 : std::min((batch.kv_len[seq] + block_size - 1) / block_size, batch.max_blocks);
}

int most_used_blocks(const Batch& batch, int block_size) {
  int most = 0;
  for (int seq = 0; seq < batch.n_seqs(); ++seq) most = std::max(most, used_blocks(batch, seq, block_size));
  return most;
}

void TableMirror::reset(int n_rows, int stride) {
  CHECK(int64_t{n_rows} * stride <= INT32_MAX);
  n_rows_ = n_rows, stride_ = stride;
  table_.assign(static_cast<size_t>(n_rows) * static_cast<size_t>(stride), kUnknown);
}

void TableMirror::forget() { std::ranges::fill(table_, kUnknown); }

std::span<const TableChange> TableMirror::changes_to(const Batch& batch, int block_size, const Padding& padding) {
  CHECK_LE(batch.n_seqs() + padding.n_seqs, n_rows_);
  changes_.clear();
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    const int n = used_blocks(batch, seq, block_size), first = seq * stride_;
    CHECK_LE(n, stride_);
    const int32_t* wanted = batch.blocks(seq);
    int32_t* known = table_.data() + first;
    if (n == 0 || std::memcmp(known, wanted, static_cast<size_t>(n) * sizeof(int32_t)) == 0) continue;
    for (int i = 0; i < n; ++i)
      if (known[i] != wanted[i]) changes_.push_back({first + i, known[i] = wanted[i]});
  }
  for (int i = 0; i < padding.n_seqs * padding.n_blocks; ++i) {
    const int index = (batch.n_seqs() + i / padding.n_blocks) * stride_ + i % padding.n_blocks;
    int32_t& known = table_[static_cast<size_t>(index)];
    if (known != padding.block) changes_.push_back({index, known = padding.block});
  }
  return changes_;
}

}  // namespace ingot

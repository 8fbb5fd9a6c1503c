// TableMirror: a host copy of the block tables that a device holds, so that a step sends only the entries that changed.
// All rows have the same fixed length in all steps, and each table the same number of rows, so an entry keeps its
// index. Entries after a sequence's last block are never sent, because no kernel reads them.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/batch.h"

namespace ingot {

struct TableChange {
  int32_t index;  // in [n_tables, n_rows, stride]
  int32_t value;
};

// Sequences that pad a step up to the size of a recorded step. Each has q_len tokens with id 0, from position 0 on. All
// of them share the same blocks and state slot. No request uses these blocks or this slot, so nothing reads what the
// padding writes.
struct Padding {
  int n_seqs = 0, q_len = 1;
  int n_logits = 0;             // rows of logits to add to the batch's
  std::array<int32_t, kMaxTables> blocks{};  // of each table
  int n_tables = 0, n_blocks = 0;            // how many entries of a table row name the block
  int state = 0;
};

class TableMirror {
 public:
  // The device has new tables, [n_tables, n_rows, stride], with unknown contents.
  void reset(int n_tables, int n_rows, int stride);
  // Marks all entries as unknown: the last changes may not have reached the device.
  void forget();

  // Returns the entries to write to make the device's tables equal to the batch's, each index once, and marks them as
  // written. The batch has at most n_tables tables of n_rows sequences, each of at most `stride` blocks. The result is
  // valid until the next call.
  std::span<const TableChange> changes_to(const Batch& batch, int block_size, const Padding& padding = {});

  int n_rows() const { return n_rows_; }
  int stride() const { return stride_; }

 private:
  void find_changes(const int32_t* wanted, int n, int64_t first);

  int n_tables_ = 0, n_rows_ = 0, stride_ = 0;
  std::vector<int32_t> table_;  // [n_tables, n_rows, stride]
  std::vector<TableChange> changes_;
};

// The number of entries of a table that name blocks of this sequence; 0 if the batch has no block table. In models with
// sources, the last table is that of the cache of sources.
int used_blocks(const Batch& batch, int seq, int block_size, int table = 0);
int most_used_blocks(const Batch& batch, int block_size);  // the maximum over all sequences and tables

}  // namespace ingot

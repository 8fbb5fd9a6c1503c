// TableMirror: what a device holds of the block table, so that a step sends only what differs from it. Rows have a
// fixed length, whatever the longest sequence of a step is, so entries stay where they are. Entries past a sequence's
// last block are never sent, for nobody reads them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/batch.h"

namespace ingot {

struct TableChange {
  int32_t index;  // in [n_rows, stride]
  int32_t value;
};

// Sequences that fill a step up to the size of a recorded one. Each brings q_len tokens 0, from position 0 on. All of
// them have the same blocks and state, which no sequence of a request has: nobody reads what they write.
struct Padding {
  int n_seqs = 0, q_len = 1;
  int n_logits = 0;             // rows of logits more than the batch wants
  int block = 0, n_blocks = 0;  // the block, and how often it stands in a row of the table
  int state = 0;
};

class TableMirror {
 public:
  // The device has a new table, [n_rows, stride], of which nothing is known.
  void reset(int n_rows, int stride);
  // Nothing is known any more: what was to be sent may not have come.
  void forget();

  // What has to be written on the device so that it holds the batch's table, each index once; from now on it counts as
  // written. The batch has no more sequences than rows, and no longer ones. Good until the next call.
  std::span<const TableChange> changes_to(const Batch& batch, int block_size, const Padding& padding = {});

  int n_rows() const { return n_rows_; }
  int stride() const { return stride_; }

 private:
  int n_rows_ = 0, stride_ = 0;
  std::vector<int32_t> table_;  // [n_rows, stride]
  std::vector<TableChange> changes_;
};

// Blocks of the batch's sequence that hold tokens; 0 where the batch has no table.
int used_blocks(const Batch& batch, int seq, int block_size);
int most_used_blocks(const Batch& batch, int block_size);  // of any sequence

}  // namespace ingot

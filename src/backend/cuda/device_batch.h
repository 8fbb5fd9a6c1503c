// BatchUpload: copies each batch to the same place on the device, with one kernel that reads pinned memory. Only
// changed entries of the block table are copied, because the table of a long sequence takes megabytes.
#pragma once
#include <array>
#include <span>

#include "backend/batch.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"
#include "backend/table_mirror.h"

namespace ingot::cuda {

// The most of each in a batch.
struct BatchSizes {
  int tokens = 0, seqs = 0, logits = 0, tables = 0, blocks = 0;
  int axes = 1;  // of ropes
  int source_rows = 0;
  bool sees_later = false;  // some tokens see later ones
  int seen_len() const { return sees_later ? tokens : 0; }
  int rope_positions() const { return axes > 1 ? axes * tokens : 0; }
  bool operator==(const BatchSizes&) const = default;
  int64_t table_entries() const { return int64_t{tables} * seqs * blocks; }
};

class BatchUpload {
 public:
  ~BatchUpload();
  // Allocates room for batches of these sizes. The old contents are lost, and the addresses may change.
  void reserve(const BatchSizes& sizes, Device& device);
  // Tokens below 0 are replaced by drawn tokens, if `draws` has any. Also copies `copy`. Returns true if the addresses
  // changed to make room.
  struct Draws {
    const Key* keys = nullptr;
    const RowDrawn* drawn = nullptr;  // used if keys is null
  };
  bool upload(const Batch& batch, const Padding& padding, const Draws& draws, const FloatCopy& copy, int block_size,
              Device& device);
  DeviceBatch view() const { return view_; }
  // With the block table of a KV cache. For a cache of sources, kv_len is that of sources; for writes, positions and
  // token_seq are those of the rows of sources.
  DeviceBatch view(const KvShape& kv, bool writes) const;
  int most_source_rows() const { return most_.source_rows; }  // in a batch
  size_t bytes() const { return device_.size(); }
  static size_t bytes_for(const BatchSizes& sizes);  // that reserve() allocates

 private:
  // An upload may still be in flight when the next batch arrives, so several slots are used in turn.
  static constexpr int kSlots = 4;
  struct Slot {
    Memory memory;
    cudaEvent_t brought = nullptr;
  };
  void write_arrays(const Batch& batch, const Padding& padding, int32_t* host) const;
  void send(const Batch& batch, const Padding& padding, std::span<const TableChange> changes, DrawnTokens tokens,
            FloatCopy copy, Device& device);

  BatchSizes most_;
  std::array<Slot, kSlots> slots_;
  int next_slot_ = 0;
  Memory device_;
  TableMirror table_;
  DeviceBatch view_;
};

}  // namespace ingot::cuda

// BatchUpload: one batch after another to the same place on the device, each brought by one kernel from pinned memory.
// Of the block table, which is megabytes where one sequence is long, only the entries that have changed are brought.
#pragma once
#include <array>
#include <span>

#include "backend/batch.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"
#include "backend/table_mirror.h"

namespace ingot::cuda {

class BatchUpload {
 public:
  ~BatchUpload();
  // Makes room for batches within these numbers; what was there is lost, and the places may be new.
  void reserve(int max_tokens, int max_seqs, int max_logits, int max_blocks, Device& device);
  // With what was drawn in place of tokens below 0: its keys, or where they are null what `drawn` says; both null:
  // there are none. True when the places moved to make room.
  bool upload(const Batch& batch, const Padding& padding, const Key* keys, const RowDrawn* drawn, int block_size,
              Device& device);
  const DeviceBatch& view() const { return view_; }
  size_t bytes() const { return device_.size(); }
  static size_t bytes_for(int max_tokens, int max_seqs, int max_logits, int max_blocks);  // that reserve will take

 private:
  // One may still be on its way when the next batch comes: so there are several, used in turn.
  static constexpr int kSlots = 4;
  struct Slot {
    Memory memory;
    cudaEvent_t brought = nullptr;
  };
  void write_arrays(const Batch& batch, const Padding& padding, int32_t* host) const;
  void send(const Batch& batch, const Padding& padding, std::span<const TableChange> changes, DrawnTokens tokens,
            Device& device);

  int max_tokens_ = 0, max_seqs_ = 0, max_logits_ = 0, max_blocks_ = 0;
  std::array<Slot, kSlots> slots_;
  int next_slot_ = 0;
  Memory device_;
  TableMirror table_;
  DeviceBatch view_;
};

}  // namespace ingot::cuda

// BatchUpload: one batch after another to the same place on the device, each brought by one kernel from pinned memory.
#pragma once
#include <array>

#include "backend/batch.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

// Sequences that fill a step up to the size of a recorded one. Each brings q_len tokens 0, from position 0 on, to a block and a state
// that no other sequence has; nobody reads what comes of them.
struct Padding {
  int n_seqs = 0, q_len = 1;
  int n_logits = 0;  // rows of logits more than the batch wants
  int block = 0, state = 0;
};

class BatchUpload {
 public:
  ~BatchUpload();
  // Makes room for batches within these numbers; what was there is lost, and the places may be new.
  void reserve(int max_tokens, int max_seqs, int max_logits, int64_t table_size);
  // With what was drawn in place of tokens below 0: its keys, or where they are null what `drawn` says; both null: there are none.
  // True when the places moved to make room.
  bool upload(const Batch& batch, const Padding& padding, const Key* keys, const RowDrawn* drawn, int block_size, Device& device);
  const DeviceBatch& view() const { return view_; }
  size_t bytes() const { return device_.size(); }

 private:
  // One may still be on its way when the next batch comes: so there are several, used in turn.
  static constexpr int kSlots = 4;
  struct Slot {
    Memory memory;
    cudaEvent_t brought = nullptr;
  };

  int max_tokens_ = 0, max_seqs_ = 0, max_logits_ = 0;
  int64_t table_size_ = 0;
  std::array<Slot, kSlots> slots_;
  int next_slot_ = 0;
  Memory device_;
  DeviceBatch view_;
};

}  // namespace ingot::cuda

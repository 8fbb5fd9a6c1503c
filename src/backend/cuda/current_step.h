// CurrentStep: the batch of a step on the device, and the numbers that choose kernels for the step.
#pragma once
#include "backend/cuda/device_batch.h"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {

struct CurrentStep {
  // The sizes of a batch that `padding` pads. Attention is planned for contexts up to most_kv.
  void set_sizes(const Batch& batch, const Padding& padding, int most_kv);
  AttentionStep attention(const KvCache& kv, bool batch_invariant) const;
  DeviceBatch view() const { return batch.view(); }
  // As attention reads the cache, and as writes to the cache see the batch.
  DeviceBatch view(const KvCache& kv) const { return batch.view(kv.shape, false); }
  DeviceBatch view_of_writes(const KvCache& kv) const { return batch.view(kv.shape, true); }

  BatchUpload batch;
  int block_size = 16;  // of the KV cache; the usual size until there is a cache
  int n_tokens = 0, n_seqs = 0, min_q_len = 0, max_q_len = 0;
  int most_kv = 0;  // no sequence of the step is longer

 private:
  decltype(AttentionStep::n_of_len) n_of_len_{};
};

}  // namespace ingot::cuda

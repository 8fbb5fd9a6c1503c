// RecordSizes: which steps are recorded, and which of them share a record.
//
// Steps whose sequences all have the same small number of tokens need the same launches each time, because kernels read
// lengths and blocks on the device. The number of sequences is padded to one of kBuckets.
#pragma once
#include <algorithm>
#include <compare>
#include <functional>
#include <optional>

#include "backend/batch.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/fused_layers.h"
#include "backend/program.h"

namespace ingot::cuda {

// Identifies a recorded step of a program: all sequences have q_len tokens, their number is padded to n_seqs, and
// attention is planned for contexts up to most_kv.
struct RecordKey {
  int program, n_seqs, q_len, most_kv;
  auto operator<=>(const RecordKey&) const = default;
};

inline int longest_of(const Batch& batch) { return batch.kv_len.empty() ? 0 : *std::ranges::max_element(batch.kv_len); }

class RecordSizes {
 public:
  RecordSizes(const Device& device, const FusedLayers& fused) : device_(device), fused_(fused) {}

  void set_limits(const StepLimits& limits) { limits_ = limits; }
  const StepLimits& limits() const { return limits_; }
  int most_sequences(int q_len) const;  // of a recorded step whose sequences have q_len tokens
  int most_rows(int n_max) const;           // tokens of the largest recorded step that has at most n_max
  int plain_context(int kv_len) const;  // for which attention is planned without a record

  std::optional<RecordKey> key_of(const Program& program, const Batch& batch) const;
  // Calls f(key, runs_first) for the steps to record when a program is prepared. runs_first: the step is the first with
  // its kernels and plans. Calls before_size(n_seqs) before the steps of each number of sequences.
  void each_at_load(const Program& program, const std::function<void(int n_seqs)>& before_size,
                    const std::function<void(const RecordKey& key, bool runs_first)>& f) const;

 private:
  bool is_recorded(const Program& program, int q_len) const;
  int bucket_of(const Program& program, int n_seqs, int q_len, int n_max) const;
  int context(const Program& program, int n_seqs, int q_len, int kv_len) const;

  const Device& device_;
  const FusedLayers& fused_;
  StepLimits limits_;
};

}  // namespace ingot::cuda

// Ranks: the Runner of real backends. Owns the backend, the weights, the KV pool and the program; today on one device.
#pragma once
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "base/trace_file.h"
#include "model/draft_head.h"
#include "model/memory_plan.h"
#include "model/runner.h"
#include "model/weights.h"

namespace ingot {

class Checkpoint;

// Whether a model's MTP head runs beside the model, so that it can guess tokens.
enum class MtpHead : uint8_t { kNone, kIfPresent, kNeeded };

struct RunnerOptions {
  BackendOptions backend;
  int n_ctx = 0;  // tokens of one sequence; 0: the model's own context, cut to what fits in memory
  int max_batch_tokens = 0;  // of one step; 0: the backend and the free memory decide
  int max_seqs = 1;
  int max_logits = 0;   // rows of logits in one step; 0: one for each sequence
  int block_size = 16;  // tokens a KV block
  int n_kv_tokens = 0;  // size of the pool; 0: n_ctx for each sequence, or what fits in memory
  double memory_share =
      0;  // share of the device's memory that may be in use; the pool takes the rest of it; 0: see n_kv_tokens
  size_t memory_bytes = 0;  // as memory_share, in bytes for this model; 0: not set
  DType kv_dtype = DType::kF16;
  int n_checkpoints =
      0;  // of recurrent layers' states, for the prefix cache; -1: as many as are useful and fit (memory_plan)
  bool fills_memory() const { return memory_share > 0 || memory_bytes > 0; }
  MtpHead mtp_head = MtpHead::kNone;
  std::shared_ptr<const Checkpoint> eagle_head;  // runs in place of an MTP head; null: none
  bool check_tensors = false;  // read every number of the weights first and refuse NaN and Inf
  bool check_nan = false;
  bool check_replay = false;  // compare recorded steps with plain launches, on backends that record steps
  std::shared_ptr<TraceFile> trace;
  bool trace_ops = true;  // true: trace each op, so a device waits after each; false: trace steps only
};

class Ranks final : public Runner {
 public:
  // Loads the weights. Throws Error when they do not fit or do not match the config.
  Ranks(const Config& config, std::unique_ptr<WeightSource> source, const RunnerOptions& options,
        const LoadProgress& progress);

  const RunnerInfo& info() const override { return info_; }
  void forward(const Batch& batch) override;
  void sample(std::span<const SampleRow> rows) override { backend_->sample(logits_, rows); }
  void follow(std::span<const int32_t> next_tokens) override { draft_head_->follow(batch_, next_tokens); }
  std::vector<int32_t> draft(std::span<const DraftRow> rows) override { return draft_head_->draft(rows); }
  std::vector<Sampled> wait() override { return backend_->wait(); }

  std::vector<float> logits() override;

  const Config& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  Backend& backend() { return *backend_; }
  DraftHead* draft_head() { return draft_head_ ? &*draft_head_ : nullptr; }
  const KvShape& kv_shape() const { return kv_->shape; }
  const MemoryPlan& memory() const { return plan_; }

  // All device memory that is allocated; nothing more is allocated while the model runs.
  size_t allocated_bytes() const { return backend_->allocated_bytes(); }

 private:
  size_t memory_limit(const RunnerOptions& options) const;
  void load(const LoadProgress& progress);

  const std::unique_ptr<WeightSource> source_;  // the backend may read embeddings from its mapping
  const std::unique_ptr<Backend> backend_;
  const DraftHeadFile head_file_;  // empty: no draft head
  const Config config_;
  MemoryPlan plan_;
  Weights weights_;
  DraftHeadWeights head_weights_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<StateCache> states_;  // null in models without recurrent layers
  std::optional<Program> program_;
  std::optional<DraftHead> draft_head_;
  Batch batch_;    // of the last forward
  Tensor logits_;  // [n_logits, n_vocab] of the last forward
  RunnerInfo info_;
};

}  // namespace ingot

// Ranks: the Runner of real backends. It owns the devices. Each device has a backend, the weights and caches of its
// blocks, and a program of these blocks (split.h). With one device, the program is the whole model. Devices of one kind
// that each have one run of blocks are a Pipeline; some of its stages may be in other processes. Otherwise the head's
// device runs a step, and the other devices run their blocks when the head's program reaches them.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/trace_file.h"
#include "model/config/split.h"
#include "model/devices/loaded_device.h"
#include "model/devices/memory_plan.h"
#include "model/devices/parallel.h"
#include "model/devices/pipeline.h"
#include "model/devices/split_choice.h"
#include "model/files/weights.h"
#include "model/program/decoder_program.h"
#include "model/program/draft_head.h"
#include "model/program/runner.h"

namespace ingot {

class Checkpoint;

// Whether a model's MTP head runs with the model, to guess tokens.
// kIfPresent: if the model has a head that fits in memory.
enum class MtpHead : uint8_t { kNone, kIfPresent, kNeeded };

struct RunnerOptions {
  BackendOptions backend;  // its device may be a list, "cuda:0,cuda:1", whose devices share the layers
  SplitOptions layers_on;
  Split split;  // used instead of layers_on; empty: layers_on decides
  int n_ctx = 0;  // tokens of one sequence; 0: the model's own context, or the longest that fits in memory
  int max_batch_tokens = 0;  // of one step; 0: the backend and the free memory decide
  int max_seqs = 1;      // at once; 0: as choose_sequences (memory_plan.h) decides
  int max_logits = 0;    // rows of logits in one step; 0: one for each sequence, and spare_logits
  int spare_logits = 0;  // rows of logits beside one for each sequence; used if max_logits is 0
  int logit_rows() const { return max_logits > 0 ? max_logits : max_seqs + spare_logits; }
  int block_size = 16;  // tokens a KV block
  int n_kv_tokens = 0;  // size of the pool; 0: n_ctx for each sequence, or as much as fits in memory
  bool small_pool = false;  // with n_kv_tokens 0: n_ctx for one sequence, or 2,048 tokens for each if that is more
  double memory_share =
      0;  // share of the device's memory that may be in use; the pool gets the rest; 0: see n_kv_tokens
  size_t memory_bytes = 0;  // as memory_share, in bytes for this model; 0: not set
  bool may_save_memory = true;  // if memory is short: the host packs weights as with BackendOptions::small_weights
  KvTypes kv_dtype;
  int n_snapshots =
      0;  // of recurrent layers' states, for the prefix cache; -1: as many as are useful and fit (memory_plan)
  bool fills_memory() const { return memory_share > 0 || memory_bytes > 0; }
  bool has_neighbours = false;  // other models may be loaded on the same device later
  std::string quantize;        // format of dense matrices, encoded during loading (load_quantizer.h); empty: none
  MtpHead mtp_head = MtpHead::kNone;
  std::shared_ptr<const Checkpoint> eagle_head;  // runs in place of an MTP head; null: none
  bool check_tensors = false;  // read every number of the weights first and refuse NaN and Inf
  bool check_nan = false;
  bool check_replay = false;  // compare recorded steps with plain launches, on backends that record steps
  std::shared_ptr<TraceFile> trace;
  ParallelOptions parallel;
  bool trace_ops = true;  // true: trace each op, so a device waits after each; false: trace steps only
};

class Ranks final : public Runner {
 public:
  // Loads the weights. Throws Error when they do not fit or do not match the config.
  Ranks(const Config& config, std::unique_ptr<WeightSource> source, RunnerOptions options,
        const LoadProgress& progress);

  ~Ranks() override;

  const RunnerInfo& info() const override { return info_; }
  void forward(const Batch& batch) override;
  void sample(std::span<const SampleRow> rows) override;
  std::vector<Sampled> wait() override;
  bool is_drawn() override;
  uint64_t progress() const override;  // of all devices of this process
  void follow(std::span<const int32_t> next_tokens) override { draft_head_->follow(batch_, next_tokens); }
  std::vector<std::vector<HeadGuess>> draft(std::span<const DraftRow> rows, const HeadGoesOn& goes_on = {}) override {
    return draft_head_->draft(rows, goes_on);
  }

  std::vector<float> logits() override;
  std::string kv_layout() const override;
  size_t kv_block_bytes(int pool) const override;
  void read_kv(int pool, int32_t block, std::span<uint8_t> to) override;
  bool copies_kv() const override { return !communicator_; }  // a model without a KV cache has nothing to copy
  void copy_kv(int pool, int32_t from, int32_t to) override;
  void write_kv(int pool, int32_t block, std::span<const uint8_t> from) override;

  // For every rank but the first: runs the batches of the first rank until that rank ends.
  void run_as_follower();
  // Ends the communication with other ranks. All ranks call it, because GPUs wait for each other here.
  void disconnect();
  void take(std::unique_ptr<Followers> followers) { followers_ = std::move(followers); }

  const Config& config() const { return config_; }
  // Of head(); the numbers of bytes and parameters are those of the whole model.
  const Weights& weights() const { return head().weights; }
  Backend& backend() { return *head().backend; }
  int n_devices() const { return static_cast<int>(devices_.size()); }
  const std::string& device_name(int i) const { return devices_[static_cast<size_t>(i)]->name; }
  Backend& backend(int i) { return *devices_[static_cast<size_t>(i)]->backend; }
  const Weights& weights(int i) const { return devices_[static_cast<size_t>(i)]->weights; }
  DraftHead* draft_head() { return draft_head_ ? &*draft_head_ : nullptr; }
  const MemoryPlan& memory() const { return plan_; }
  std::string description() const;  // of all devices

  // The memory that is allocated on all devices; nothing more is allocated while the model runs.
  size_t allocated_bytes() const;

 private:
  using Device = LoadedDevice;
  // Some blocks of a device's program.
  struct Run {
    Device* device;
    BlockRange blocks;
  };

  void open_devices(RunnerOptions& options);
  void open_device(const std::string& name, const RunnerOptions& options);
  void agree_on_split();
  void take_stage(const RunnerOptions& options);
  std::exception_ptr lost(std::exception_ptr fault) const;
  size_t memory_limit(const Device& device, const RunnerOptions& options) const;
  std::vector<DeviceMemory> device_memory(const RunnerOptions& options, bool is_loaded) const;
  bool save_memory(const RunnerOptions& options);
  void make_first_plan(RunnerOptions& options, bool chooses);
  void make_plan(const RunnerOptions& options, bool is_loaded);
  void load(const LoadProgress& progress);
  void add_other_stages(Weights& weights) const;
  void make_programs();
  bool is_pipeline() const;
  void start_pipeline();
  void link_runs();
  void allocate_programs();
  void drop_head(const RunnerOptions& options);
  void allocate_with_head();
  template <class F>
  void for_each_cache(int pool, F&& f) const;
  static void run_remote(std::span<const Run> runs, const Batch& batch, float* rows, bool reads);
  bool has_remote_stages() const { return parallel_.n_stages > 1; }
  // Of the whole model, or of the parts of all processes.
  size_t n_parts() const { return std::max(devices_.size(), static_cast<size_t>(parallel_.n_stages)); }
  // The device that has the head; in a process that has no head, its only device.
  Device& head() const { return *devices_[has_remote_stages() ? 0 : static_cast<size_t>(split_.head())]; }

  const std::unique_ptr<WeightSource> source_;  // the backend may read embeddings from its mapping
  DraftHeadFile head_file_;                     // empty: no draft head
  Config config_;                               // with the draft head's
  const ParallelOptions parallel_;
  const std::shared_ptr<Communicator> communicator_;  // null: this is the only rank
  std::unique_ptr<Followers> followers_;              // the other ranks of this process
  MemoryPlan plan_;
  Split split_;  // with remote stages: as this process sees it (Split::seen_by)
  std::vector<std::unique_ptr<Device>> devices_;
  DraftHeadWeights head_weights_;
  std::optional<DraftHead> draft_head_;
  Batch batch_;    // of the last forward
  Tensor logits_;  // [n_logits, n_vocab] of the last forward
  RunnerInfo info_;
  std::unique_ptr<Pipeline> pipeline_;  // last, because its threads use the devices; null: the head's device runs steps
};

}  // namespace ingot

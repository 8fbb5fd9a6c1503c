// CpuBackend: the ops on this machine's cores. It splits each op into tasks for the pool; the kernels of one
// instruction set (kernels.h) do the arithmetic. reserve() allocates everything that a step needs.
#pragma once
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/recurrence_kernels.h"
#include "backend/cpu/step_threads.h"
#include "backend/sampler.h"
#include "base/threads.h"

namespace ingot {

class CpuBackend final : public Backend {
 public:
  // Throws UsageError if options.isa is not an instruction set of this machine.
  explicit CpuBackend(const BackendOptions& options);

  std::string name() const override { return "cpu"; }
  std::string description() const override;
  int n_threads() const override { return pool_.size(); }
  uint64_t progress() const override { return Backend::progress() + pool_.progress(); }
  bool is_host() const override { return true; }
  bool keeps_kv_as(KvTypes types) const override { return !types.differ(); }

  Tensor alloc(DType dtype, int64_t rows, int64_t cols) override;
  Weight prepare(const Weight& host, unsigned use) override;
  size_t packed_bytes(const Weight& shape, unsigned use) const override;
  bool reads_codes(Format format, unsigned use) const override;
  bool save_memory() override;
  size_t kv_bytes(const KvShape& shape) const override;
  size_t state_bytes(const StateShape& shape) const override;  // cpu_recurrence.cc
  std::unique_ptr<KvCache> make_kv(const KvShape& shape) override;
  std::unique_ptr<StateCache> make_states(const StateShape& shape) override;
  void reserve(const StepLimits& limits) override;
  size_t scratch_bytes(const StepLimits& limits) const override;
  size_t allocated_bytes() const override { return allocated_; }
  void upload(const Tensor& to, const void* from) override;
  void download(void* to, const Tensor& from) override;
  std::vector<std::string> matmul_kernels(const Weight& w, int64_t rows) const override;
  void use_matmul_kernel(const std::string& kernel) override;
  Peak measure_peak(Format weights) override;  // cpu_peak.cc

  void begin(const Batch& batch) override;
  void run(const Program& program, const Batch& batch) override;
  void sample(const Tensor& logits, std::span<const SampleRow> rows) override;

  void embed(Tensor x, const Weight& table, float scale) override;
  void matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) override;
  void norm(Tensor y, Tensor x, const NormArgs& args) override;
  void add(Tensor x, Tensor y) override;
  void act_mul(Tensor y, Tensor gate, Tensor up, Activation act) override;
  void rope_angles(Tensor angles, Tensor inv_freq, float magnitude, Tensor axes) override;
  void rope(Tensor x, int n_heads, const RopeArgs& args) override;
  void hadamard(Tensor x, int block) override;
  void kv_write(KvCache& kv, int layer, Tensor k, Tensor v) override;
  void attention(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& args) override;
  void act(Tensor x, Activation act, Tensor bias) override;
  void add_positions(Tensor x, Tensor table) override;
  void pool(Tensor y, Tensor x, Pooling pooling) override;
  void scale(Tensor x, float factor, float softcap) override;
  void copy(Tensor y, Tensor x) override;
  void moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) override;
  void moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) override;
  void moe_combine(Tensor residual, Tensor y, Tensor weights) override;
  void scale_by_position(Tensor x, const PositionScale& args) override;
  void scale_groups(Tensor x, Tensor factors, GroupFactor kind) override;
  void xielu(Tensor x, const Xielu& args) override;
  void match_size(Tensor y, Tensor x) override;
  void mix_streams(Tensor x, Tensor streams, Tensor coefs) override;
  void correct_streams(Tensor x, Tensor predicted, Tensor streams, Tensor coefs) override;
  void keep_above(Tensor x, float deviations) override;
  void gate(Tensor x, Tensor gate) override;
  void short_conv(const ShortConvArgs& args) override;
  void delta_rule(const DeltaRuleArgs& args) override;
  void ssm_scan(const SsmScanArgs& args) override;
  void selective_scan(const SelectiveScanArgs& args) override;
  void rg_lru(const RgLruArgs& args) override;
  void kda_inputs(const KdaInputsArgs& args) override;
  void rank_one_rule(const RankOneRuleArgs& args) override;
  void mix_tokens(const MixTokensArgs& args) override;
  void wkv7_inputs(const Wkv7InputsArgs& args) override;
  void wkv7_outputs(const Wkv7OutputsArgs& args) override;

  void qkv(const QkvArgs& args) override;
  void gate_up(const GateUpArgs& args) override;
  void add_normed(Tensor x, Tensor y, const NormArgs& args, float factor) override;
  void matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) override;
  void moe(const MoeArgs& args) override;

 private:
  // Bytes that reserve() allocates.
  struct ScratchSizes {
    size_t activations = 0;  // of each of kMaxOutputs buffers
    size_t attention = 0, partials = 0;
    size_t experts = 0;  // of each of two buffers
  };
  ScratchSizes scratch_for(const StepLimits& limits) const;
  size_t packed_weight_bytes() const;
  cpu::Memory memory_to_read();  // cpu_peak.cc

  // A matmul. One op runs at most kMaxOutputs of them on the same activations.
  static constexpr int kMaxOutputs = 3;
  struct Output {
    Tensor y;
    const Weight* w;
    Tensor bias;
    bool accumulate = false;
    bool cuts_k = false;  // the only output may be cut along k
  };
  struct MatmulTask {
    int job;
    cpu::PanelRange range;
  };
  static constexpr int64_t kPartUnit = 256, kMostPartsOfK = 8, kMostPanelsOfParts = 8;  // run_parts_of_k
  // A unit of attention work, the same for each KV head: some tokens of a sequence, and a range of its keys.
  struct AttentionTask {
    int seq;
    int first_token;  // in the batch
    int n_tokens;
    int key_begin, key_end;
    bool sees_all;  // each token sees all keys of the range, but for those before its window
    int part;  // index of the partial result to write; -1: the task writes y
  };

  // cpu_matmul.cc. With `gated`, the outputs are gate and up, and the first output's y gets act(gate) * up.
  const cpu::Kernels& kernels_for(const cpu::PackedWeight& w, int64_t rows) const;
  bool run_together(const cpu::PackedWeight& gate, const cpu::PackedWeight& up, int64_t n_rows) const;
  cpu::Unpacked unpacked(const cpu::PackedWeight& w, int64_t n_rows) const;
  void run_matmuls(Tensor x, std::span<const Output> outputs, std::optional<Activation> gated = {});
  void run_task(const cpu::MatmulJob& job, const cpu::PanelRange& range);
  bool can_cut_k(const cpu::MatmulJob& job, int64_t n_panels) const;
  void run_parts_of_k(const cpu::MatmulJob& job, int64_t n_panels);
  const uint8_t* pack(Tensor x, const cpu::ActLayout& layout, int max_tile, const cpu::Kernels& kernels, int slot);
  void plan_matmuls(std::span<const cpu::MatmulJob> jobs, std::span<const int64_t> n_panels, bool in_order);

  // cpu_attention.cc
  int n_seeing_alike(int first, int n) const;
  int plan_attention(const AttentionArgs& args, const KvShape& kv);
  void attention_in_turns(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& args);
  void write_token(KvCache& kv, int layer, int64_t token, const float* k, const float* v);

  // cpu_recurrence.cc
  void prepare_delta(const DeltaRuleArgs& args);

  // cpu_moe.cc
  struct ExpertOutput {
    Tensor y;  // rows sorted by expert, as in order_
    const Weight* w;
    Tensor bias;  // [n_experts, n_out] or empty
  };
  struct ExpertGroup {
    int expert;
    int64_t first;  // row in the order of order_
    int n_rows;
  };
  void group_by_expert(Tensor ids, int64_t n_experts);
  Tensor gathered(Tensor x, int64_t n_ids, cpu::Memory& memory);
  static Tensor room(cpu::Memory& memory, int64_t rows, int64_t cols);
  int64_t rows_of_group(Tensor x) const { return x.rows / static_cast<int64_t>(groups_.size()); }
  const uint8_t* pack_groups(Tensor x, const cpu::ActLayout& layout, int max_tile, const cpu::Kernels& kernels,
                             int slot);
  void run_groups(Tensor x, std::span<const ExpertOutput> outputs, std::optional<Activation> gated);

  // Calls f(row, thread) for n rows. Uses several threads if the work is large enough: `elements` in all rows together.
  template <class F>
  void for_rows(int64_t n, int64_t elements, F&& f) {
    constexpr int64_t kWorthATask = 8192;
    const int64_t n_tasks = std::min({n, elements / kWorthATask + 1, int64_t{pool_.size()} * 4});
    pool_.parallel_for(n_tasks, [&](int64_t task, int thread) {
      for (int64_t row = task * n / n_tasks; row < (task + 1) * n / n_tasks; ++row) f(row, thread);
    });
  }

  const cpu::Kernels& kernels_;
  const cpu::RecurrenceKernels& recurrence_;
  cpu::Packing packing_;
  const bool deterministic_;
  const bool measures_kernels_;                    // the options name no instruction set
  const cpu::Kernels* forced_kernels_ = nullptr;  // use_matmul_kernel
  ThreadPool pool_;
  // A number of threads that the user gave is obeyed. With memory nodes, each thread reads its own node.
  const bool chooses_threads_;
  std::optional<cpu::StepThreads> step_threads_;  // from the first step on, if chooses_threads_
  size_t allocated_ = 0;
  std::deque<cpu::Memory> buffers_;
  std::deque<cpu::PackedWeight> weights_;

  std::vector<int32_t> token_seq_;               // [n_tokens]: the sequence of each token of the batch
  std::vector<SamplerScratch> sampler_scratch_;  // [threads]

  cpu::Memory activations_[kMaxOutputs];
  cpu::Memory part_sums_;
  std::vector<MatmulTask> matmul_tasks_;
  std::vector<ExpertGroup> groups_;
  std::vector<int32_t> order_, place_;  // [rows]: the row at each sorted place, and the place of each row
  std::vector<int64_t> expert_start_, expert_panels_;
  std::vector<cpu::MatmulJob> expert_jobs_;
  cpu::Memory expert_in_, expert_out_;
  std::vector<AttentionTask> attention_tasks_;
  cpu::Memory attention_scratch_;  // [threads, attention_scratch_floats]
  int64_t attention_scratch_stride_ = 0;
  cpu::Memory partials_;
};

std::unique_ptr<Backend> create_cpu_backend(const BackendOptions& options);

}  // namespace ingot

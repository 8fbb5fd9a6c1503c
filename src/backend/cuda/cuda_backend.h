// CudaBackend: the ops on one NVIDIA GPU. Everything is enqueued on one stream; the host waits only in wait() and
// download().
//
// Activations between matmuls are f16 (saturating); sums and the residual stream are f32. With
// BackendOptions::activations "f32", all activations are f32 and products run in f32, for comparisons. Weights are
// repacked on the device at load time (packed_weight.h).
//
// The parts of the backend keep its state. A part uses only the parts above it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/attention/attention_ops.h"
#include "backend/cuda/core.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/experts/expert_ops.h"
#include "backend/cuda/fused_layers.h"
#include "backend/cuda/matmul/kernel_choice.h"
#include "backend/cuda/matmul/products.h"
#include "backend/cuda/ranks/rank_ops.h"
#include "backend/cuda/recorded/record_sizes.h"
#include "backend/cuda/recorded/step_recorder.h"
#include "backend/cuda/recurrence/recurrence_ops.h"
#include "backend/cuda/sampling/draws.h"
#include "backend/recorded_steps.h"

namespace ingot {

class CudaBackend final : public Backend, public RecordedSteps {
 public:
  explicit CudaBackend(const BackendOptions& options);
  ~CudaBackend() override;

  std::string name() const override { return "cuda"; }
  std::string description() const override { return description_; }
  int fast_head_dim(int head_dim) const override;
  DType act_dtype() const override { return core_.act; }
  int prompt_chunk() const override { return core_.device.chip().prompt_chunk; }

  // cuda_backend.cc
  Tensor alloc(DType dtype, int64_t rows, int64_t cols) override;
  Weight prepare(const Weight& host, unsigned use) override { return weights_.prepare(host, use); }
  size_t packed_bytes(const Weight& w, unsigned use) const override { return weights_.packed_bytes(w, use); }
  bool save_memory() override { return weights_.save_memory(); }
  bool reads_codes(Format, unsigned) const override { return false; }
  size_t kv_bytes(const KvShape& shape) const override;
  size_t state_bytes(const StateShape& shape) const override { return cuda::RecurrenceOps::state_bytes(shape); }
  std::unique_ptr<KvCache> make_kv(const KvShape& shape) override;
  std::unique_ptr<StateCache> make_states(const StateShape& shape) override;
  void reserve(const StepLimits& limits) override;
  size_t available_bytes() const override { return core_.memory.available(); }
  size_t device_bytes() const override { return core_.memory.total(); }
  size_t scratch_bytes(const StepLimits& limits) const override;
  size_t driver_bytes() const override { return size_t{384} << 20; }  // each recorded step takes 1 to 2 MiB
  size_t allocated_bytes() const override { return core_.memory.allocated(); }
  void upload(const Tensor& to, const void* from) override;
  std::shared_ptr<float[]> host_floats(size_t n) override;
  void download(void* to, const Tensor& from) override;
  Peak measure_peak(Format weights) override;  // measure_peak.cc
  std::vector<std::string> matmul_kernels(const Weight& w, int64_t rows) const override;
  void use_matmul_kernel(const std::string& kernel) override;
  void await_kernels() override;

  // cuda_step.cc
  void begin(const Batch& batch) override;
  void run(const Program& program, const Batch& batch) override;
  void prepare_program(const Program& program) override;
  void remote(const RemoteBlock& block) override { recorder_.remote(block, batch()); }
  bool overlaps() const override { return true; }
  void copy_before_run(Tensor y, Tensor x) override;
  void synchronize() override;
  void check_replays() override { recorder_.check_replays(); }
  void trace_steps(std::shared_ptr<TraceFile> file) override;
  void sample(const Tensor& logits, std::span<const SampleRow> rows) override { draws_.sample(logits, rows); }
  std::vector<Sampled> wait() override;
  bool is_drawn() override { return draws_.is_drawn(); }

  // cuda_ops.cc
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
  void cut_patches(Tensor y, const PatchArgs& args) override;
  void add_mixed_rows(Tensor x, Tensor table, Tensor rows, Tensor factors) override;
  void mean_rows(Tensor y, Tensor x) override;
  void gather_rows(Tensor y, Tensor x) override;
  void scale(Tensor x, float factor, float softcap) override;
  void clamp(Tensor x, float low, float high) override;
  void copy(Tensor y, Tensor x) override;
  void zero(Tensor x) override;
  void qkv(const QkvArgs& args) override;
  void gate_up(const GateUpArgs& args) override;
  void add_normed(Tensor x, Tensor y, const NormArgs& args, float factor) override;
  void gated_norm(Tensor y, Tensor x, Tensor gate, const NormArgs& args) override;
  void wkv7(const Wkv7Args& args) override;
  void matmuls(std::span<const Product> products) override;
  void matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) override;
  void norm_matmul(Tensor y, Tensor x, Tensor normed, const NormArgs& args, const Weight& w, Tensor bias) override;
  void plain_layers(const PlainLayersBlock& block) override;
  void draft_input(const DraftInputBlock& block) override;

  void connect(std::shared_ptr<Communicator> ranks) override;
  void all_reduce(Tensor x) override;
  void all_gather(Tensor y, Tensor x) override;
  void add_reduced(Tensor x, Tensor y, Tensor norm_out, const NormArgs& args) override;
  bool norms_sums(const Tensor& x, const NormArgs& args) const override;

  void moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) override;
  void moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) override;
  void moe_combine(Tensor residual, Tensor y, Tensor weights) override;
  void moe(const MoeArgs& args) override;

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

 private:
  cuda::ScratchSizes scratch_for(const StepLimits& limits) const;
  cuda::BatchSizes batch_sizes(const StepLimits& limits) const;
  void load_ready_kernels();
  void start(const Batch& batch, const Padding& padding, int most_kv);  // begin for a padded step
  void finish_copy();

  cuda::Core core_;  // the first member, because all others belong to it
  cuda::KernelChoice choice_;
  cuda::DeviceWeights weights_;
  cuda::Products products_{core_, weights_, choice_};
  cuda::AttentionOps attention_{core_};
  cuda::ExpertOps experts_{core_, weights_, choice_, products_};
  cuda::RecurrenceOps recurrence_{core_};
  cuda::FusedLayers fused_{core_, choice_};
  cuda::RankOps rank_ops_{core_};
  cuda::Draws draws_{core_, rank_ops_};
  cuda::RecordSizes sizes_{core_.device, fused_};
  cuda::StepRecorder recorder_{core_, [this](const Program& program) { run_blocks(program); }};
  cuda::FloatCopy copy_;  // of copy_before_run(), until the next upload of a batch; n 0: none
  std::string description_;
};

}  // namespace ingot

// CudaBackend: the ops on one NVIDIA GPU. Everything is enqueued on one stream; the host waits only in wait() and
// download().
//
// Activations between matmuls are f16 (saturating); sums and the residual stream are f32. With
// BackendOptions::activations "f32", all activations are f32 and products run in f32, for comparisons. Weights are
// repacked on the device at load time (packed_weight.h).
#pragma once
#include <array>
#include <bitset>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cluster/layers.h"
#include "backend/cuda/crossing/crossing.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/device_batch.h"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/grid/layers.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul/dense_matmul.h"
#include "backend/cuda/matmul/float8.h"
#include "backend/cuda/matmul/matmul_kernels.h"
#include "backend/cuda/matmul/weight_upload.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/ranks/nccl.h"
#include "backend/cuda/ranks/peer_sums.h"
#include "backend/cuda/specialised.h"
#include "backend/cuda/step_clock.h"
#include "backend/recorded_steps.h"
#include "base/threads.h"

namespace ingot {

class CudaBackend final : public Backend, public RecordedSteps {
 public:
  explicit CudaBackend(const BackendOptions& options);
  ~CudaBackend() override;

  std::string name() const override { return "cuda"; }
  std::string description() const override { return description_; }
  DType act_dtype() const override { return act_; }
  int prompt_chunk() const override { return device_.chip().prompt_chunk; }

  // cuda_memory.cc
  Tensor alloc(DType dtype, int64_t rows, int64_t cols) override;
  Weight prepare(const Weight& host, unsigned use) override;  // cuda_weights.cc
  size_t packed_bytes(const Weight& shape, unsigned use) const override;
  bool save_memory() override { return std::exchange(keeps_halves_, false); }
  bool reads_codes(unsigned) const override { return false; }
  size_t kv_bytes(const KvShape& shape) const override;
  size_t state_bytes(const StateShape& shape) const override;  // recurrence/recurrence_ops.cc
  std::unique_ptr<KvCache> make_kv(const KvShape& shape) override;
  std::unique_ptr<StateCache> make_states(const StateShape& shape) override;  // recurrence/recurrence_ops.cc
  void reserve(const StepLimits& limits) override;
  size_t available_bytes() const override;
  size_t device_bytes() const override;
  size_t scratch_bytes(const StepLimits& limits) const override;
  size_t driver_bytes() const override { return size_t{384} << 20; }  // each recorded step takes 1 to 2 MiB
  size_t allocated_bytes() const override { return allocated_; }
  void upload(const Tensor& to, const void* from) override;
  std::shared_ptr<float[]> host_floats(size_t n) override;
  void download(void* to, const Tensor& from) override;
  Peak measure_peak(Format weights) override;

  // cuda_step.cc
  void begin(const Batch& batch) override;
  void run(const Program& program, const Batch& batch) override;
  void prepare_program(const Program& program) override;
  void remote(const RemoteBlock& block) override;
  bool overlaps() const override { return true; }
  void copy_before_run(Tensor y, Tensor x) override;
  void synchronize() override;
  void check_replays() override { checks_replays_ = true; }
  void trace_steps(std::shared_ptr<TraceFile> file) override {
    clock_ = std::make_unique<cuda::StepClock>(std::move(file), device_);
  }

  // sampling/sample.cc
  void sample(const Tensor& logits, std::span<const SampleRow> rows) override;
  std::vector<Sampled> wait() override;
  bool is_drawn() override;

  // cuda_kernels.cc
  std::vector<std::string> matmul_kernels(const Weight& w, int64_t rows) const override;
  void use_matmul_kernel(const std::string& kernel) override;
  void await_kernels() override;

  // cuda_ops.cc
  void embed(Tensor x, const Weight& table, float scale) override;
  void matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) override;
  void norm(Tensor y, Tensor x, const NormArgs& args) override;
  void add(Tensor x, Tensor y) override;
  void act_mul(Tensor y, Tensor gate, Tensor up, Activation act) override;
  void rope_angles(Tensor angles, Tensor inv_freq, float magnitude) override;
  void rope(Tensor x, int n_heads, const RopeArgs& args) override;
  void kv_write(KvCache& kv, int layer, Tensor k, Tensor v) override;
  void attention(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& args) override;
  void act(Tensor x, Activation act) override;
  void add_positions(Tensor x, Tensor table) override;
  void pool(Tensor y, Tensor x, Pooling pooling) override;
  void gather_rows(Tensor y, Tensor x) override;
  void scale(Tensor x, float factor, float softcap) override;
  void qkv(const QkvArgs& args) override;
  void gate_up(const GateUpArgs& args) override;
  void matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) override;
  void norm_matmul(Tensor y, Tensor x, Tensor normed, const NormArgs& args, const Weight& w, Tensor bias) override;
  void plain_layers(const PlainLayersBlock& block) override;
  void draft_input(const DraftInputBlock& block) override;

  // ranks/ranks_ops.cc
  void connect(std::shared_ptr<Communicator> ranks) override;
  void zero(Tensor x) override;
  void all_reduce(Tensor x) override;
  void all_gather(Tensor y, Tensor x) override;
  void add_reduced(Tensor x, Tensor y, Tensor norm_out, const NormArgs& args) override;
  bool norms_sums(const Tensor& x, const NormArgs& args) const override;

  // experts/experts_ops.cc
  void copy(Tensor y, Tensor x) override;
  void moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) override;
  void moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) override;
  void moe_combine(Tensor residual, Tensor y, Tensor weights) override;
  void moe(const MoeArgs& args) override;

  // recurrence/recurrence_ops.cc
  void gate(Tensor x, Tensor gate) override;
  void short_conv(Tensor x, Tensor weight, StateCache& states, int buffer) override;
  void delta_rule(const DeltaRuleArgs& args) override;

 private:
  // Identifies a recorded step of a program: all sequences have q_len tokens, their number is padded to n_seqs, and
  // attention is planned for contexts up to most_kv.
  struct GraphKey {
    int program, n_seqs, q_len, most_kv;
    auto operator<=>(const GraphKey&) const = default;
  };
  struct Graph {
    cudaGraphExec_t exec = nullptr;
    bool is_stale = false;                           // correct, but faster kernels are ready by now
    std::vector<const RemoteBlock*> crossings = {};  // in order
  };

  struct ScratchSizes {
    size_t up, act_copy, arranged, decoded, partials, order, grid, turns;
  };
  ScratchSizes scratch_for(const StepLimits& limits) const;
  cuda::BatchSizes batch_sizes(const StepLimits& limits) const;
  // cuda_weights.cc
  void pack_dense(cuda::PackedWeight& w, const Weight& host);
  void pack_codes(cuda::PackedWeight& w, const Weight& host);
  bool is_float8(const Weight& host) const;
  void pack_float8(cuda::PackedWeight& w, const Weight& host);
  uint32_t* fact_of(cuda::PackedWeight& w);
  cuda::WeightUpload& weight_upload();
  cuda::PackedWeight* own(const Weight& weight);
  size_t halves_bytes(const Weight& shape, unsigned use) const;
  void add_halves(cuda::PackedWeight& w, Format format, size_t bytes);
  void fill_halves();
  void join_weights(const Program& program);
  void join(std::initializer_list<const Weight*> weights);
  void finish_weights();     // downloads the facts that the device has found
  void* take(size_t bytes);  // allocates device memory that lives as long as the backend, or until release()
  void release(const void* taken);
  // Both grow `memory` to at least `bytes`, after the work that uses it has ended. Recorded steps hold addresses of
  // scratch, so scratch_at_least() drops recorded steps when scratch moves. Recorded steps hold no address of memory
  // from grown().
  void* scratch_at_least(cuda::Memory& memory, size_t bytes, cuda::Place place = cuda::Place::kDevice);
  void* grown(cuda::Memory& memory, size_t bytes, cuda::Place place = cuda::Place::kDevice);
  Tensor in_act_dtype(const Tensor& x);              // converts x to the type of activations
  const cuda::PackedWeight& ready(const Weight& w);  // the weight, with its factor read
  // The input of a product: x, or the norm of x. The norm has been written by a kernel, or the product computes it.
  struct Input {
    Tensor x;
    std::optional<cuda::DeferredNorm> norm = {};
    std::optional<cuda::Float8Rows> float8 = {};  // x as 8-bit floats, from the previous product
  };
  Input input_of(const Tensor& x, const Tensor& normed, const NormArgs& norm, const Weight& w);
  bool norm_quantized(Input& input, const Tensor& x, const NormArgs& norm, const Weight& w);
  bool rounds_input(const Weight& w, int64_t n);
  void launch(const cuda::MatmulKernel& kernel, cuda::Matvec m, Input& input);
  const cuda::MatmulKernel& kernel_for(const Weight& w, int64_t rows) const;
  cuda::SpecialisedKernels* specialised_for(const cuda::PackedWeight& w) const;
  void begin_tuning(const BackendOptions& options);
  void load_ready_kernels();
  // cuda_ops.cc
  std::unique_ptr<cuda::LayersStep> layers_step_of(const PlainLayersBlock& block, int n_tokens);
  const void* grid_kernel(const cuda::LayersStep& step);
  void compile_layers(const Program& program);  // cuda_step.cc
  void time_kernels(int64_t most_rows);
  double time_kernel(const cuda::MatmulKernel& kernel, const std::vector<const Weight*>& weights, int64_t rows);
  void decoded_product(const Tensor& y, const Tensor& x, const cuda::PackedWeight& w, bool accumulate);
  bool library_product(const Tensor& y, Input& input, const cuda::PackedWeight& w, const cuda::MatmulKernel& kernel,
                       bool accumulate);
  bool float8_product(const Tensor& y, Input& input, const cuda::PackedWeight& w, bool accumulate);
  void quantize(Input& input, bool whole_rows);
  std::optional<Tensor> joined_product(Input& input, std::span<const Weight* const> weights);
  bool qkv_in_one_launch(const QkvArgs& args, Input& input);
  bool can_run_side_by_side(const Input& input, std::span<const Weight* const> weights);
  void products(std::span<const Tensor> y, Input& input, std::span<const Weight* const> weights);
  void product(const Tensor& y, Input& input, const Weight& w, const Tensor& bias, bool accumulate);
  Tensor aligned(const Tensor& x);
  bool route(const MoeArgs& args, int tile_rows);
  bool takes_rows(const cuda::ExpertMatmul& m) const;
  cuda::ExpertOrder order_of(int64_t n_rows, int64_t n_own, int tile_rows);
  void order_rows(const cuda::ExpertMatmul& m);
  bool groups_experts(const cuda::PackedWeight& w) const;
  void launch_tiles(cuda::ExpertMatmul m);
  bool has_room_for_graph(const Program& program) const;
  std::optional<GraphKey> key_of(const Program& program, const Batch& batch) const;
  void start(const Batch& batch, const Padding& padding, int most_kv);  // begin for a padded step
  void share_drawn_tokens(const Batch& batch);
  void await(cudaEvent_t event);
  void await_stream();
  void meet_ranks();
  static int longest(const Batch& batch);
  bool replays_on_clusters(const Program& program, int n_tokens) const;
  bool is_recorded(const Program& program, int q_len) const;
  int bucket_of(const Program& program, int n_seqs, int q_len, int most) const;
  int longest_on_grid(const Program& program, int n_seqs, int q_len) const;
  int recorded_context(const Program& program, int n_seqs, int q_len, int kv_len) const;
  void capture(Graph& graph, const Program& program);
  void replay(const Graph& graph);
  void check_replay(const Graph& graph, const Program& program);
  struct Written {
    void* data;
    size_t bytes;
  };
  std::vector<std::vector<char>> downloaded(const std::vector<Written>& places);
  void drop_graphs();
  void mark_graphs_stale();
  void finish_copy();
  void sample_greedy(const Tensor& logits, bool has_logprobs);
  void sample_rows(const Tensor& logits);
  void copy_draws(void* to, const void* from, size_t bytes);
  void collect_draws();
  std::span<const int32_t> host_drawn_tokens(const Batch& batch);
  void sample_on_host(const float* logits, std::vector<Sampled>& sampled);

  cuda::Device device_;  // the first member, because all others belong to it
  DType act_ = DType::kF16;
  bool deterministic_ = false;
  const cuda::MatmulKernel* forced_ = nullptr;  // set by use_matmul_kernel
  bool tunes_ = false;                          // chooses kernels for this device and the model's sizes
  bool keeps_halves_ = false;                   // quantized weights have PackedWeight::halves
  std::unique_ptr<cuda::SpecialisedKernels> specialised_;
  cuda::TimedChoice timed_;
  std::string description_;
  size_t allocated_ = 0;
  std::deque<cuda::Memory> buffers_;
  std::deque<cuda::PackedWeight> weights_;
  std::deque<cuda::PackedWeight> joined_;  // PackedWeight::whole
  std::deque<cuda::PackedWeight> halves_;
  struct EmptyCopy {
    cuda::PackedWeight *w, *halves;
    bool rounds;
  };
  std::vector<EmptyCopy> without_halves_;
  std::vector<Weight> factors_;            // the weights that products use
  std::unique_ptr<cuda::DenseMatmul> dense_;
  std::unique_ptr<cuda::WeightUpload> upload_;      // until reserve()
  std::vector<cuda::PackedWeight*> without_facts_;  // their facts are still on the device, in facts_
  cuda::Memory facts_;
  cuda::Memory raw_;       // a weight or a part of it, in the file's layout, while it is repacked
  cuda::Memory decoded_;   // a slice of a quantized weight for the dense product, or activations as 8-bit floats
  cuda::Memory act_copy_;  // activations converted to act_
  cuda::Memory arranged_;  // activations in matvec's layout, if shared memory is too small for them
  cuda::Memory up_;        // the second product of gate_up, or a product of joined weights
  cuda::Memory partials_;  // partial results of split attention
  cuda::Memory order_;     // rows by expert (experts.h)
  cuda::Memory grid_;      // for grid/layers.h; its counters are zero between steps
  cuda::Memory turns_;     // ClusterTurns, for cluster/layers.h

  int block_size_ = 16;  // of the KV cache; the usual size until there is a cache
  cuda::DeviceBatch batch_of(const KvCache& kv) const { return device_batch_.view(kv.shape.table); }
  cuda::BatchUpload device_batch_;
  cuda::FloatCopy copy_;  // of copy_before_run(), until the next upload of a batch; n 0: none
  static constexpr int kMaxRecordedTokens = 8;  // of a sequence in a recorded step, if it does not run on clusters
  int n_tokens_ = 0, n_seqs_ = 0, min_q_len_ = 0, max_q_len_ = 0;
  decltype(cuda::AttentionStep::n_of_len) n_of_len_{};
  int most_kv_ = 0;          // attention is planned for this length: no sequence of the step is longer
  StepLimits limits_;
  std::map<GraphKey, Graph> graphs_;
  // The steps of a program whose layers run in one launch, by the program's id.
  struct FusedSteps {
    std::bitset<cuda::kMaxClusterTokens + 1> on_clusters;  // [n]: recorded steps of n tokens run on clusters
    std::array<int, cuda::kMaxGridTokens + 1> longest_on_grid{};  // [n]: of a recorded step of n tokens
  };
  std::map<int, FusedSteps> fused_steps_;
  bool capturing_ = false;
  std::vector<const RemoteBlock*> captured_crossings_;
  cuda::Crossing crossing_;
  bool checks_replays_ = false;
  std::vector<Written> activations_,
      states_;  // buffers that check_replay() restores; not KV caches, because a step run twice writes the same
  std::unique_ptr<cuda::StepClock> clock_;
  std::vector<cudaGraphExec_t> retired_;  // replaced graphs, which may still be running

  std::vector<SampleRow> rows_;
  int64_t sample_vocab_ = 0;
  bool greedy_ = false;            // the sampled rows are argmax keys, not RowDrawn
  std::vector<size_t> host_rows_;  // indices in rows_ of the rows that the host's sampler draws
  std::vector<int32_t> counts_;    // [n_vocab]: zero between draws
  cuda::Memory best_, sampled_;    // best_: keys or RowDrawn; sampled_: pinned copy, then the logits of host_rows_
  cuda::Memory argmax_;            // RowArgmax, zero between draws
  cuda::Memory draws_, draws_pinned_;
  cudaEvent_t drawn_event_ = nullptr;     // the draws have reached the host
  cudaEvent_t finished_event_ = nullptr;  // of await_stream
  cudaEvent_t copied_event_ = nullptr;    // the inputs of the draws have reached the device
  std::unique_ptr<cuda::Nccl> nccl_;      // null: no other ranks
  std::unique_ptr<cuda::PeerSums> peer_sums_;
  std::vector<Sampled> drawn_;        // the draws of the last sample(), once collected
  std::vector<int32_t> tokens_;       // the batch's tokens, if the host drew some of them
  std::unique_ptr<ThreadPool> pool_;  // for the host sampler
};

inline const cuda::PackedWeight& packed(const Weight& w) {
  CHECK(w.packed != nullptr);
  return *static_cast<const cuda::PackedWeight*>(w.packed);
}

// For smaller weights, compiling a kernel costs more time than the kernel saves.
inline bool is_worth_compiling(const cuda::PackedWeight& w) { return w.n_in * w.n_out >= 1 << 18; }

inline bool on_16_bytes(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0; }

// The last block is for the writes of sequences that pad a step.
struct CudaKv : KvCache {
  CudaKv(const KvShape& s, cuda::Memory m, const cuda::Device& d) : KvCache(s), memory(std::move(m)), device(d) {}
  cuda::DeviceKv view() const;
  size_t block_bytes() const override { return shape.token_bytes() * shape.block_size; }
  void read_block(int32_t block, std::span<uint8_t> to) const override;
  void write_block(int32_t block, std::span<const uint8_t> from) override;
  template <class F>
  void each_page(int32_t block, F&& f) const;
  cuda::Memory memory;
  const cuda::Device& device;
};

}  // namespace ingot

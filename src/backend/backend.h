// Backend: one object per device. A backend owns the device's memory and runs programs. A program is a list of blocks,
// such as attention and feed-forward (block.h).
//
// A block's body (blocks/) lists the ops that compute the block, in order. There are two kinds of ops:
//   - primitives. Each has a plain body that works on every backend (ref/). The plain body computes on the host,
//     and copies tensors from and to a device;
//   - fused ops. The default body of a fused op (fused.cc) calls primitives.
// A backend overrides the ops that it can run faster. The default body remains the oracle of the override. A new
// backend is correct once it implements the pure virtual functions of this class, about ten (docs/add-a-backend.md).
//
// The ref and cpu backends keep activations as f32 rows. A device may keep the activations between products in another
// type (act_dtype). One step calls run(program, batch), sample and wait.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/communicator.h"
#include "backend/kv.h"
#include "backend/program.h"
#include "backend/sampling.h"
#include "backend/state.h"
#include "backend/tensor.h"

namespace ingot {

struct DraftInputBlock;
struct PlainLayersBlock;
struct RemoteBlock;

// The rates that the device reaches in a short measurement of matmuls with weights of one format. They are the 100 % of
// `bench`.
struct Peak {
  double read_gb_s = 0;       // 10^9 bytes read a second
  double matmul_gflop_s = 0;  // 10^9 multiplications and additions a second
  std::string matmul_kind;    // "int8", "f32", "bf16"
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu"
  virtual std::string description() const = 0;  // "cpu: 2 threads, AVX-512 VNNI BF16"

  virtual int n_threads() const { return 1; }               // host threads that compute
  virtual bool keeps_kv_as(KvTypes) const { return true; }  // called before anything is loaded
  // The size of heads, at least this one, with which attention is fast; weights may have rows of zeros between heads.
  virtual int fast_head_dim(int head_dim) const { return head_dim; }
  virtual DType act_dtype() const { return DType::kF32; }   // of activations between products
  virtual bool is_host() const { return false; }            // this process can read and write the device's memory
  virtual int prompt_chunk() const { return 512; }          // tokens in a step; larger steps hardly speed up prompts

  // ---- memory: only at start-up ----
  virtual Tensor alloc(DType dtype, int64_t rows, int64_t cols) = 0;
  // Copy `rows * cols` elements between contiguous host memory and a view with any stride.
  virtual void upload(const Tensor& to, const void* from) = 0;
  virtual void download(void* to, const Tensor& from) = 0;
  // Host memory from which upload() copies fast, and to which download() does, also those of other backends.
  virtual std::shared_ptr<float[]> host_floats(size_t n) { return std::make_shared<float[]>(n); }
  virtual size_t allocated_bytes() const = 0;  // total of alloc, prepare, make_kv, make_states and reserve
  virtual size_t available_bytes() const;      // memory that can be allocated now
  virtual size_t device_bytes() const { return available_bytes(); }  // all memory of the device
  // Returns the weight in the form that matmul and embed read. If the backend still needs host's codes, the result
  // points at them. If the backend has its own copy, the result's codes are null. The bodies in ref/ need codes.
  virtual Weight prepare(const Weight& host, unsigned /* WeightUse bits */) { return host; }
  // Sizes for memory plans, computed from shapes alone: the bytes that prepare, make_kv and make_states allocate.
  // reads_codes: whether a prepared weight of this format and use still points at host's codes. Such codes stay in the
  // memory of their source.
  virtual size_t packed_bytes(const Weight& /*shape*/, unsigned /*use*/) const { return 0; }
  virtual bool reads_codes(Format /*format*/, unsigned /*use*/) const { return true; }
  // From now on, packs weights in as few bytes as possible (BackendOptions::small_weights) and keeps no copies
  // (BackendOptions::copies). False if it did so before.
  virtual bool save_memory() { return false; }
  virtual size_t kv_bytes(const KvShape& shape) const { return shape.bytes(); }
  virtual size_t state_bytes(const StateShape& shape) const { return shape.bytes(); }
  virtual std::unique_ptr<KvCache> make_kv(const KvShape& shape);
  virtual std::unique_ptr<StateCache> make_states(const StateShape& shape);
  // reserve allocates all scratch for the largest step of any program. prepare_program runs before a program's first
  // run.
  virtual void reserve(const StepLimits& /*limits*/) {}
  virtual void prepare_program(const Program& /*program*/) {}
  virtual size_t scratch_bytes(const StepLimits& /*limits*/) const { return 0; }  // bytes that reserve will allocate
  virtual size_t driver_bytes() const { return 0; }  // memory left to the driver: kernel code, recorded steps

  // The ranks that share each step with this backend, set before the first reserve(); null: no ranks.
  virtual void connect(std::shared_ptr<Communicator> ranks) { ranks_ = std::move(ranks); }

  // matmul_kernels: the kernels that can multiply `rows` rows by w; the first is the default. use_matmul_kernel:
  // products use the named kernel, which must be in that list, until the next call; "" restores the default.
  // await_kernels: waits until all kernels requested so far are compiled. For `ingot inspect --kernels`, benchmarks and
  // tests.
  virtual std::vector<std::string> matmul_kernels(const Weight& /*w*/, int64_t /*rows*/) const { return {name()}; }
  virtual void use_matmul_kernel(const std::string& /*kernel*/) {}
  virtual void await_kernels() {}
  virtual Peak measure_peak(Format /*weights*/) { return {}; }  // takes about a second; zeros: unknown

  // ---- one step ----
  virtual void begin(const Batch& batch);  // the ops below work on this batch
  virtual void run(const Program& program,
                   const Batch& batch);            // begin, then the blocks; may record a step and replay the record
  // Runs some of the program's blocks. The ranges of a step are passed in order; the first range starts at block 0.
  void run_part(const Program& program, const Batch& batch, BlockRange range);
  virtual bool overlaps() const { return false; }  // run and sample return before the device has finished
  // Between runs: copies before the next run(), copy() or download() begins.
  virtual void copy_before_run(Tensor y /* out f32 [n, dim] */, Tensor x /* f32 [n, dim] */) { copy(y, x); }
  virtual void synchronize() {}  // waits for the ops so far
  virtual void sample(const Tensor& logits /* [n_logits, n_vocab] */, std::span<const SampleRow> rows);
  virtual std::vector<Sampled> wait();  // the draws of the last sample, in row order
  virtual bool is_drawn() { return true; }  // whether wait() would return at once
  // A number that changes while a step proceeds, for a watchdog: blocks begun, and tasks of ops on the host. Any thread
  // may call this function at any time.
  virtual uint64_t progress() const { return n_blocks_begun_.load(std::memory_order_relaxed); }

  // ---- primitives ----
  // Tokens that the table lacks have its row 0.
  virtual void embed(Tensor x /* out [n_tokens, dim] */, const Weight& table /* [n_vocab or fewer, dim] */,
                     float scale);
  virtual void matmul(Tensor y /* out [n, n_out] */, Tensor x /* [n, n_in] */, const Weight& w, Tensor bias = {});
  virtual void norm(Tensor y /* out [n, dim] */, Tensor x /* [n, dim]; may be y */, const NormArgs& args);
  virtual void add(Tensor x /* in, out [n, dim] */, Tensor y /* [n, dim] */);
  // y = act(gate) * up
  virtual void act_mul(Tensor y /* out [n, ffn] */, Tensor gate /* [n, ffn]; may be y */, Tensor up /* [n, ffn] */,
                       Activation act);
  virtual void act(Tensor x /* in, out [n, ffn] */, Activation act, Tensor bias = {} /* [1, ffn]: added before */);
  // angles [n_tokens, 2 * n_freq]: magnitude * cos(position * inv_freq), then the sines, at the positions of the batch.
  // axes: the axis of each frequency (Batch::rope_positions); empty: the rope has one axis.
  virtual void rope_angles(Tensor angles, Tensor inv_freq /* [1, n_freq] */, float magnitude,
                           Tensor axes = {} /* i32 [1, n_freq] */);
  virtual void rope(Tensor x /* in, out [n_tokens, n_heads * head_dim] */, int n_heads, const RopeArgs& args);
  // Multiplies each run of `block` columns, a power of two up to 512, by the Hadamard matrix of this size in
  // Sylvester's order, divided by sqrt(block). The matrix is orthogonal and its own inverse.
  virtual void hadamard(Tensor x /* in, out [n, n_blocks * block], contiguous */, int block);
  // Rows of tokens, or of the batch's sources if the cache is of sources (KvShape::of_source).
  virtual void kv_write(KvCache& kv, int layer, Tensor k /* [n_tokens or n_source_rows, n_kv_heads * head_dim] */,
                        Tensor v /* as k; k itself where values are keys */);
  // In a cache of sources, a token sees the whole source of its sequence.
  virtual void attention(Tensor y /* out [n_tokens, n_heads * head_dim] */, Tensor q /* as y */, const KvCache& kv,
                         const AttentionArgs& args);
  virtual void add_positions(Tensor x /* in, out [n, dim] */, Tensor table /* [n_positions, dim]; one row: for all */);
  virtual void pool(Tensor y /* out [n_seqs, dim] */, Tensor x /* [n_tokens, dim] */, Pooling pooling);
  // Row t: for each channel, the pixels of the patch at places[t], row by row.
  virtual void cut_patches(Tensor y /* out [n_patches, 3 * patch * patch] */, const PatchArgs& args);
  // x[t] += the sum over j of factors[t][j] * table[rows[t][j]]
  virtual void add_mixed_rows(Tensor x /* in, out [n, dim] */, Tensor table /* [n_rows, dim] */,
                              Tensor rows /* i32 [n, k] */, Tensor factors /* [n, k] */);
  // y[i] = the mean of the rows of x from i * x.rows / y.rows on, as many for each i
  virtual void mean_rows(Tensor y /* out [n, dim] */, Tensor x /* [n * k, dim] */);
  virtual void gather_rows(Tensor y /* out [n_logits, dim] */, Tensor x /* [n_tokens, dim] */);
  virtual void scale(Tensor x /* in, out [n, dim] */, float factor, float softcap /* 0: none */);
  virtual void clamp(Tensor x /* in, out [n, dim] */, float low, float high);
  virtual void copy(Tensor y /* out [n, dim] */, Tensor x /* [n, dim] */);  // views of any stride
  virtual void zero(Tensor x /* out [n, dim], contiguous */);

  // ---- primitives of several ranks (across_ranks.cc): all ranks run the same ones, on tensors of the same shape ----
  virtual void all_reduce(Tensor x /* in, out [n, dim], contiguous: the sum over all ranks */);
  virtual void all_gather(Tensor y /* out f32 [n_ranks * n, dim]: the rows of rank 0, of rank 1 ... */,
                          Tensor x /* f32 [n, dim]; both contiguous */);

  // ---- primitives of experts and of attention over latents ----
  // ids and weights [n, n_used], best expert first; among equal scores, the lower expert number first. An id of -1
  // stands for an expert of another rank.
  virtual void moe_route(Tensor ids /* out, i32 */, Tensor weights /* out, f32 */, Tensor logits /* [n, n_experts] */,
                         const RouteArgs& args);
  // y[i] = x[i * x.rows / y.rows] w[ids[i]]^T + bias[ids[i]]: x has a row for each row of y, or one for each token.
  // Rows with id -1 are not computed: afterwards, they may hold anything.
  virtual void moe_matmul(Tensor y /* out [n * n_used, n_out] */, Tensor x /* [n or n * n_used, n_in] */,
                          const Weight& w, Tensor ids /* [n, n_used] */, Tensor bias /* [n_experts, n_out] or empty */);
  // residual[t] += sum over k of weights[t, k] y[t * n_used + k], without the rows of weight 0
  virtual void moe_combine(Tensor residual /* in, out [n, dim] */, Tensor y /* [n * n_used, dim] */,
                           Tensor weights /* [n, n_used] */);

  // ---- primitives of some families: their bodies are in row_ops.h ----
  virtual void scale_by_position(Tensor x /* in, out [n_tokens, dim] */, const PositionScale& args);
  // Multiplies dim / n_groups neighbouring elements by each factor.
  virtual void scale_groups(Tensor x /* in, out [n, dim] */,
                            Tensor factors /* [n, n_groups], or [1, n_groups] for all rows */, GroupFactor kind);
  virtual void xielu(Tensor x /* in, out [n, dim] */, const Xielu& args);
  // Scales each row of y to the root mean square of its row of x. m neighbouring rows of y have the same row of x.
  virtual void match_size(Tensor y /* in, out f32 [n * m, dim] */, Tensor x /* f32 [n, dim] */);
  // With stream 0 = x and m - 1 others: stream i += sum over j of coefs[i, j] * stream j, as the streams were before.
  virtual void mix_streams(Tensor x /* in, out f32 [n, dim] */, Tensor streams /* in, out f32 [n, (m - 1) * dim] */,
                           Tensor coefs /* f32 [n, m * m] */);
  // x = predicted + (1 + coefs[0]) * d, and stream i += (1 + coefs[i]) * d, where d = x - predicted.
  virtual void correct_streams(Tensor x /* in, out f32 [n, dim] */, Tensor predicted /* f32 [n, dim] */,
                               Tensor streams /* in, out f32 [n, (m - 1) * dim] */, Tensor coefs /* f32 [n, m] */);
  // x = max(0, x - cut), where cut = mean of the row + deviations * standard deviation of the row.
  virtual void keep_above(Tensor x /* in, out [n, dim] */, float deviations);

  // ---- primitives of recurrent layers ----
  virtual void gate(Tensor x /* in, out [n, dim] */, Tensor gate /* [n, dim] */);  // x *= sigmoid(gate)
  virtual void short_conv(const ShortConvArgs& args);
  virtual void delta_rule(const DeltaRuleArgs& args);
  virtual void ssm_scan(const SsmScanArgs& args);
  virtual void selective_scan(const SelectiveScanArgs& args);
  virtual void rg_lru(const RgLruArgs& args);
  virtual void kda_inputs(const KdaInputsArgs& args);
  virtual void rank_one_rule(const RankOneRuleArgs& args);
  virtual void mix_tokens(const MixTokensArgs& args);
  virtual void wkv7_inputs(const Wkv7InputsArgs& args);
  virtual void wkv7_outputs(const Wkv7OutputsArgs& args);

  // ---- fused ops: the default body defines the meaning of each ----
  virtual void qkv(const QkvArgs& args);
  virtual void gate_up(const GateUpArgs& args);
  virtual void wkv7(const Wkv7Args& args);
  // Products that do not depend on one another.
  virtual void matmuls(std::span<const Product> products);
  // residual += x w^T + bias
  virtual void matmul_add(Tensor residual /* in, out [n, n_out] */, Tensor x /* [n, n_in] */, const Weight& w,
                          Tensor bias = {});
  // normed = norm(x), y = normed w^T + bias. If norm.weight is empty, x itself is multiplied, and normed does not
  // change.
  virtual void norm_matmul(Tensor y /* out [n, n_out] */, Tensor x /* [n, n_in] */, Tensor normed /* out [n, n_in] */,
                           const NormArgs& norm, const Weight& w, Tensor bias = {});
  virtual void moe(const MoeArgs& args);
  // x = factor * (x + norm(y))
  virtual void add_normed(Tensor x /* in, out [n, dim] */, Tensor y /* [n, dim]; overwritten */, const NormArgs& norm,
                          float factor = 1);
  // y = norm(x * silu(gate)), where each row of the norm's weight is for a group of neighbours.
  virtual void gated_norm(Tensor y /* out [n, dim] */, Tensor x /* [n, dim]; overwritten */, Tensor gate /* [n, dim] */,
                          const NormArgs& norm /* weight [n_groups, dim / n_groups], without a bias */);
  // x += the sum of y over all ranks. If norms_sums(x, norm), then also normed = norm(x).
  virtual void add_reduced(Tensor x /* in, out [n, dim] */, Tensor y /* [n, dim], contiguous; overwritten */,
                           Tensor normed /* out [n, dim] */ = {}, const NormArgs& norm = {});
  // Whether add_reduced() computes this norm, because that is faster than in the op that reads the norm.
  virtual bool norms_sums(const Tensor& x /* [n, dim] */, const NormArgs& norm) const;
  // Layers of a decoder, one after another. A backend may run all layers in one kernel.
  virtual void plain_layers(const PlainLayersBlock& block);
  // A backend may compute both halves of the pair in one kernel.
  virtual void draft_input(const DraftInputBlock& block);
  // Sends the rows of x to other devices, and waits for the result.
  virtual void remote(const RemoteBlock& block);

  // ---- for the bodies of blocks (blocks/) ----
  const Batch& batch() const { return batch_; }
  // Counts for the ops of this step, including the sequences that a backend adds to pad the batch.
  struct StepSize {
    int n_tokens = 0, n_seqs = 0, n_logits = 0;
  };
  const StepSize& size() const { return size_; }
  Tensor token_rows(const Tensor& t) const { return t ? t.slice_rows(0, size_.n_tokens) : t; }
  Tensor source_rows(const Tensor& t) const { return t ? t.slice_rows(0, batch_.n_source_rows()) : t; }

 protected:
  void run_blocks(std::span<const Block> blocks);
  void run_blocks(const Program& program, BlockRange range);
  void run_blocks(const Program& program) { run_blocks(program, program.all()); }

  Communicator* ranks() const { return ranks_.get(); }
  void set_step(const Batch& batch, const StepSize& size) { batch_ = batch, size_ = size; }
  std::vector<Sampled>& drawn_rows() { return drawn_; }  // the draws of the last sample, until wait()
  // Returns norm(x), written to `to`; or x itself when norm.weight is empty.
  Tensor normed(const Tensor& x, const Tensor& to, const NormArgs& norm);
  // A buffer for an intermediate value of a default body. It grows on demand; backends that override the fused op do
  // not need it.
  Tensor scratch(int64_t rows, int64_t cols);

 private:
  void norm_across_ranks(const HeadsOfRanks& heads, const QkvArgs& args);  // across_ranks.cc

  std::shared_ptr<Communicator> ranks_;
  std::atomic<uint64_t> n_blocks_begun_{0};
  Batch batch_;
  StepSize size_;
  std::vector<int32_t> tokens_;  // the batch's tokens with drawn tokens replaced, if it has any
  std::vector<Sampled> drawn_;
  Tensor scratch_;
};

struct BackendOptions {
  std::string device = "cpu";  // "cpu", "cuda" (the first GPU), "cuda:N" or "ref"
  int n_threads = 0;           // 0: one for each core that this process may use
  std::string isa;             // cpu: "avx2", "portable" ... (cpu/isa.h); empty: the best that this machine supports
  bool small_weights = false;  // cpu: hardly more bytes than in the file, though products of some formats are slower
  std::string copies;          // cuda: f16 copies of quantized weights: "never", "always" or empty (until save_memory)
  std::string numa = "off";    // cpu: "distribute" or "isolate" (base/numa.h)
  std::string activations;     // cuda: "f16" or "f32"; empty: f16, and float8 if weights are F8_E4M3
  std::string kernels;         // cuda: "tuned" to this device and the model's sizes, or "fixed"; empty: tuned
  bool deterministic = false;  // batch-invariant: a token's bits do not depend on the other tokens of its batch
};

// Throws UsageError for a device that this build or machine does not have.
std::unique_ptr<Backend> create_backend(const BackendOptions& options);

// The device that "auto" stands for: "cuda" if there is a GPU, else "cpu", with a warning. Other names stay unchanged.
std::string chosen_device(const std::string& device);

}  // namespace ingot

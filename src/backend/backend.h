// Backend: one object per device. It owns memory and runs programs (block.h): lists of blocks, such as attention and
// feed-forward.
//
// A block's body (blocks.cc) says what it computes in ops, top to bottom. Ops come in two kinds:
//   - primitives, with a plain body that works on every backend (ref/): it computes on the host, and copies from and
//     to a device;
//   - fused ops, whose default body (fused.cc) says in primitives what they compute.
// A backend overrides what it does faster. The default body stays, as the oracle of the override. So a new backend
// needs about ten functions to be correct (docs/add-a-backend.md): those that are pure here, and nothing else.
//
// Activations are f32 rows on ref and cpu; a device may keep those between products in another type (act_dtype). A step
// is: run(program, batch), sample, wait.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/block.h"
#include "backend/kv.h"
#include "backend/sampling.h"
#include "backend/state.h"
#include "backend/tensor.h"

namespace ingot {

// What the device reaches by a short measurement, for matmuls whose weights have some format: the 100 % of `bench`.
struct Peak {
  double read_gb_s = 0;       // 10^9 bytes a second, read
  double matmul_gflop_s = 0;  // 10^9 multiplications and additions a second
  std::string matmul_kind;    // "int8", "f32", "bf16"
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu"
  virtual std::string description() const = 0;  // "cpu: 2 threads, AVX-512 VNNI BF16"

  virtual int n_threads() const { return 1; }              // host threads that compute
  virtual bool keeps_kv_as(DType) const { return true; }   // asked before anything is loaded
  virtual DType act_dtype() const { return DType::kF32; }  // of activations between products
  virtual bool is_host() const { return false; }           // its memory can be read and written here
  virtual int prompt_chunk() const { return 512; }         // tokens of a step from which on prompts gain little

  // ---- memory: at start-up only ----
  virtual Tensor alloc(DType dtype, int64_t rows, int64_t cols) = 0;
  // Copies between `rows * cols` elements that are contiguous on the host and a view of any stride.
  virtual void upload(const Tensor& to, const void* from) = 0;
  virtual void download(void* to, const Tensor& from) = 0;
  virtual size_t allocated_bytes() const = 0;  // by alloc, prepare, make_kv, make_states and reserve
  virtual size_t available_bytes() const;      // that can be taken now
  virtual size_t device_bytes() const { return available_bytes(); }  // of all the memory there is
  // The weight as products and embeddings take it. The result keeps host's codes where the backend goes on reading
  // them, and null ones where it has a copy of its own. The bodies of ref/ need codes.
  virtual Weight prepare(const Weight& host, unsigned /* WeightUse bits */) { return host; }
  // For memory plans, told from shapes alone: what prepare, make_kv and make_states take. reads_codes: a weight for
  // this use keeps host's codes, which stay in memory where the source has them.
  virtual size_t packed_bytes(const Weight& /*shape*/, unsigned /*use*/) const { return 0; }
  virtual bool reads_codes(unsigned /*use*/) const { return true; }
  virtual size_t kv_bytes(const KvShape& shape) const { return shape.bytes(); }
  virtual size_t state_bytes(const StateShape& shape) const { return shape.bytes(); }
  virtual std::unique_ptr<KvCache> make_kv(const KvShape& shape);
  virtual std::unique_ptr<StateCache> make_states(const StateShape& shape);
  // Takes all scratch for the largest step of any program; a program is prepared before its first run.
  virtual void reserve(const StepLimits& /*limits*/) {}
  virtual void prepare_program(const Program& /*program*/) {}
  virtual size_t scratch_bytes(const StepLimits& /*limits*/) const { return 0; }  // that reserve will take
  virtual size_t driver_bytes() const { return 0; }  // left to the driver: code of kernels, recorded steps

  // The kernels that can multiply `rows` rows by w: first the one that products take. use_matmul_kernel: products take
  // this one, which must be of those, until told otherwise (by ""). await_kernels: waits for the kernels that are being
  // compiled for what has run so far. For `ingot inspect --kernels`, benchmarks and tests.
  virtual std::vector<std::string> matmul_kernels(const Weight& /*w*/, int64_t /*rows*/) const { return {name()}; }
  virtual void use_matmul_kernel(const std::string& /*kernel*/) {}
  virtual void await_kernels() {}
  virtual Peak measure_peak(Format /*weights*/) { return {}; }  // takes a second or so; zeros: not known

  // ---- one step ----
  virtual void begin(const Batch& batch);  // the ops below work on this batch
  virtual void run(const Program& program,
                   const Batch& batch);            // begin, then the blocks; may record a step and replay it
  virtual bool overlaps() const { return false; }  // run and sample return before their work is done
  virtual void synchronize() {}                    // waits for the ops so far
  virtual void sample(const Tensor& logits /* [n_logits, n_vocab] */, std::span<const SampleRow> rows);
  virtual std::vector<Sampled> wait();  // what the last sample drew, in row order

  // ---- primitives ----
  virtual void embed(Tensor x /* out [n_tokens, dim] */, const Weight& table /* [n_vocab, dim] */, float scale);
  virtual void matmul(Tensor y /* out [n, n_out] */, Tensor x /* [n, n_in] */, const Weight& w, Tensor bias = {});
  virtual void norm(Tensor y /* out [n, dim] */, Tensor x /* [n, dim]; may be y */, const NormArgs& args);
  virtual void add(Tensor x /* in, out [n, dim] */, Tensor y /* [n, dim] */);
  // y = act(gate) * up
  virtual void act_mul(Tensor y /* out [n, ffn] */, Tensor gate /* [n, ffn]; may be y */, Tensor up /* [n, ffn] */,
                       Activation act);
  virtual void act(Tensor x /* in, out [n, ffn] */, Activation act);
  // angles [n_tokens, 2 * n_freq]: magnitude * cos(position * inv_freq), then the sines; for the batch's positions.
  virtual void rope_angles(Tensor angles, Tensor inv_freq /* [1, n_freq] */, float magnitude);
  virtual void rope(Tensor x /* in, out [n_tokens, n_heads * head_dim] */, int n_heads, const RopeArgs& args);
  virtual void kv_write(KvCache& kv, int layer, Tensor k /* [n_tokens, n_kv_heads * head_dim] */,
                        Tensor v /* likewise; k again where values are keys */);
  virtual void attention(Tensor y /* out [n_tokens, n_heads * head_dim] */, Tensor q, const KvCache& kv,
                         const AttentionArgs& args);
  virtual void add_positions(Tensor x /* in, out [n, dim] */, Tensor table /* [n_positions, dim]; one row: to all */);
  virtual void pool(Tensor y /* out [n_seqs, dim] */, Tensor x /* [n_tokens, dim] */, Pooling pooling);
  virtual void gather_rows(Tensor y /* out [n_logits, dim] */, Tensor x /* [n_tokens, dim] */);
  virtual void scale(Tensor x /* in, out [n, dim] */, float factor, float softcap /* 0: none */);
  virtual void copy(Tensor y /* out [n, dim] */, Tensor x /* [n, dim] */);  // of any strides

  // ---- primitives of experts and of attention over latents ----
  // ids and weights [n, n_used], the best first; of equal scores the lower number
  virtual void moe_route(Tensor ids /* out, i32 */, Tensor weights /* out, f32 */, Tensor logits /* [n, n_experts] */,
                         const RouteArgs& args);
  // y[i] = x[i * x.rows / y.rows] w[ids[i]]^T + bias[ids[i]]: x has a row for each row of y, or one for each token
  virtual void moe_matmul(Tensor y /* out [n * n_used, n_out] */, Tensor x /* [n or n * n_used, n_in] */,
                          const Weight& w, Tensor ids /* [n, n_used] */, Tensor bias /* [n_experts, n_out] or empty */);
  // residual[t] += sum over k of weights[t, k] y[t * n_used + k]
  virtual void moe_combine(Tensor residual /* in, out [n, dim] */, Tensor y /* [n * n_used, dim] */,
                           Tensor weights /* [n, n_used] */);

  // ---- primitives of recurrent layers ----
  virtual void gate(Tensor x /* in, out [n, dim] */, Tensor gate /* [n, dim] */);  // x *= sigmoid(gate)
  // Each channel becomes SiLU of the convolution of its last `width` inputs; those of earlier steps are in the state.
  virtual void short_conv(Tensor x /* in, out [n_tokens, n_channels], contiguous */,
                          Tensor weight /* [n_channels, width] */, StateCache& states, int layer);
  virtual void delta_rule(const DeltaRuleArgs& args);

  // ---- fused: the default bodies say what they mean ----
  virtual void qkv(const QkvArgs& args);
  virtual void gate_up(const GateUpArgs& args);
  // residual += x w^T + bias
  virtual void matmul_add(Tensor residual /* in, out [n, n_out] */, Tensor x /* [n, n_in] */, const Weight& w,
                          Tensor bias = {});
  // normed = norm(x), y = normed w^T + bias. Without norm.weight x is taken as it is, and normed stays as it was.
  virtual void norm_matmul(Tensor y /* out [n, n_out] */, Tensor x /* [n, n_in] */, Tensor normed /* out [n, n_in] */,
                           const NormArgs& norm, const Weight& w, Tensor bias = {});
  virtual void moe(const MoeArgs& args);
  // All layers of a dense decoder: a backend may run them as one.
  virtual void dense_layers(const DenseLayersBlock& block);

 protected:
  // The bodies of blocks (blocks.cc), in ops.
  void run_blocks(const Program& program);
  void block(const EmbedBlock& b);
  void block(const AttentionBlock& b);
  void block(const LatentAttentionBlock& b);
  void block(const DeltaBlock& b);
  void block(const FeedForwardBlock& b);
  void block(const ExpertsBlock& b);
  void block(const DenseLayersBlock& b) { dense_layers(b); }
  void block(const HeadBlock& b);
  void block(const PoolBlock& b);

  const Batch& batch() const { return batch_; }
  // What the ops of this step count: the batch, and the sequences that a backend pads it with.
  struct StepSize {
    int n_tokens = 0, n_seqs = 0, n_logits = 0;
  };
  const StepSize& size() const { return size_; }
  void set_step(const Batch& batch, const StepSize& size) { batch_ = batch, size_ = size; }
  std::vector<Sampled>& drawn_rows() { return drawn_; }  // by the last sample, until wait()
  // x after its norm, if it has one: then `to` is written.
  Tensor normed(const Tensor& x, const Tensor& to, const NormArgs& norm);
  // A buffer for a default body's intermediate. Grows when it must: only backends without the fused op come here.
  Tensor scratch(int64_t rows, int64_t cols);

 private:
  void put_embeddings(const Tensor& x);
  void join(const Join& join, const Tensor& x, const Tensor& branch, const Tensor& in, const Weight& w,
            const Tensor& bias);
  void shared_expert(const ExpertsBlock& b, const Tensor& x, const Tensor& normed);
  Tensor token_rows(const Tensor& t) const { return t ? t.slice_rows(0, size_.n_tokens) : t; }

  Batch batch_;
  StepSize size_;
  std::vector<int32_t> tokens_;  // of the batch, where some were drawn
  std::vector<Sampled> drawn_;
  Tensor scratch_;
};

struct BackendOptions {
  std::string device = "cpu";  // "cpu", "cuda" (the first GPU), "cuda:N" or "ref"
  int n_threads = 0;           // 0: as many as there are cores this process may use
  std::string isa;             // cpu: "avx2", "portable" ... (cpu/isa.h); empty: the best that this machine has
  std::string activations;     // cuda: "f16" or "f32"; empty: f16
  std::string kernels;         // cuda: "tuned" to this device and the model's sizes, or "fixed"; empty: tuned
  bool deterministic = false;  // a token's numbers are the same, bit by bit, whatever else is in its batches
};

// Throws UsageError for a device this build or machine does not have.
std::unique_ptr<Backend> create_backend(const BackendOptions& options);

}  // namespace ingot

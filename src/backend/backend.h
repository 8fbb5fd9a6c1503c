// Backend: one object per device, at the level at which a model author thinks. It owns memory and offers verbs; the model
// (model/transformer.cc) calls them top to bottom. Primitives are pure virtual; fused verbs have unfused bodies in fused.cc,
// which a backend overrides where it wins, and which stay the oracle of its override.
//
// Activations are f32 rows on ref and cpu; a device may keep those between matmuls in a narrower type. A step is: begin(batch), run(bucket, body of verbs), sample, wait.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/kv.h"
#include "backend/sampling.h"
#include "backend/state.h"
#include "backend/tensor.h"

namespace ingot {

enum class NormKind : uint8_t { kRms, kLayer };
// kClampedSwiglu is gpt-oss's: g = min(gate, 7), u = clamp(up, -7, 7), g sigmoid(1.702 g) (u + 1).
enum class Activation : uint8_t { kSilu, kGeluTanh, kGelu, kClampedSwiglu };

// Which two elements of a head turn together: (i, i + rot_dim/2), as Hugging Face and most GGUF rows have it, or
// (2i, 2i+1), as GGUF's llama row has it.
enum class RopeLayout : uint8_t { kHalfSplit, kInterleaved };

// How the rows of a sequence become one: its first, their mean, its last.
enum class Pooling : uint8_t { kCls, kMean, kLast };

struct NormArgs {
  Tensor weight;                    // [1, dim]
  Tensor bias;                      // [1, dim] or empty
  float eps = 1e-5f;
  NormKind kind = NormKind::kRms;
};

struct AttentionArgs {
  int layer = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;               // on q·k
  float softcap = 0.0f;             // s = cap * tanh(s / cap); 0: none
  int window = 0;                   // a query sees the last `window` positions, its own included; 0: all
  bool causal = true;               // false: what comes after a query too: `window` positions, its own included, or all
  Tensor sinks;                     // [1, n_heads] or empty: a score of no key that takes its share of the softmax
};

struct RopeArgs {
  Tensor angles;                    // [n_tokens, rot_dim]: cosines then sines (rope_angles); empty: no rope in this layer
  RopeLayout layout = RopeLayout::kHalfSplit;
};

struct QkvArgs {
  Tensor x;                         // [n_tokens, dim]
  const Weight* wq = nullptr;       // [n_heads * head_dim, dim]
  const Weight* wk = nullptr;       // [n_kv_heads * head_dim, dim]
  const Weight* wv = nullptr;       // [n_kv_heads * head_dim, dim]
  Tensor bq, bk, bv;                // [1, rows of the weight] or empty
  NormArgs q_norm, k_norm;          // weight [1, head_dim], over each head, or [1, rows of the weight], over all; empty weight: none
  RopeArgs rope;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  KvCache* kv = nullptr;
  int layer = 0;
  Tensor q;                         // out: [n_tokens, n_heads * head_dim], contiguous
  Tensor k, v;                      // scratch: [n_tokens, n_kv_heads * head_dim], contiguous; the keys and values go to kv
};

enum class Scoring : uint8_t { kSoftmax, kSigmoid };

// Which experts a token goes to: the n_used of the highest score, of all experts or of those in the best groups.
struct RouteArgs {
  int n_used = 1;
  Scoring scoring = Scoring::kSoftmax;
  bool normalize = false;           // the weights of a token are divided by their sum, before scale
  float scale = 1.0f;
  Tensor bias;                      // [1, n_experts] or empty: added to the scores for the choice, not in the weights
  int n_groups = 1;                 // of n_experts / n_groups neighbours; a group is as good as its best, with bias its best two
  int n_groups_used = 1;
};

// A feed-forward layer of experts (arXiv:2101.03961 and its kin). Weights are stacked: n_experts of them.
struct MoeArgs {
  Tensor residual;                  // in, out: [n, dim]
  Tensor x;                         // [n, dim]
  const Weight* w_router = nullptr; // [n_experts, dim], one matrix
  Tensor b_router;                  // [1, n_experts] or empty
  RouteArgs route;
  const Weight *w_gate = nullptr, *w_up = nullptr, *w_down = nullptr;  // n_experts of [ffn, dim], [ffn, dim], [dim, ffn]
  Tensor b_gate, b_up, b_down;      // [n_experts, n_out] or empty
  Activation act = Activation::kSilu;
  Tensor logits;                    // scratch: f32 [n, n_experts], contiguous
  Tensor ids, weights;              // scratch: i32 and f32 [n, n_used], contiguous
  Tensor gate, up, out;             // scratch: [n * n_used, ffn | ffn | dim], contiguous
};

// The gated delta rule (arXiv:2412.06464, with the heads of Qwen3-Next). Each value head keeps a matrix S, and a token does
//   S = exp(decay softplus(alpha + dt)) S;  S += k^T (sigmoid(beta) (v - k S));  y = q S
// where q and k have length 1, q divided by sqrt(key_dim) besides.
struct DeltaRuleArgs {
  Tensor y;                         // out: [n_tokens, n_heads * value_dim], contiguous
  Tensor qkv;                       // [n_tokens, n_key_heads * key_dim (q), the same (k), n_heads * value_dim (v)]; used up
  Tensor beta, alpha;               // [n_tokens, n_heads]; used up
  Tensor decay, dt;                 // [1, n_heads]; decay is negative
  int n_key_heads = 0;              // each serves n_heads / n_key_heads value heads:
  bool tiled = false;               // head h has q and k of h % n_key_heads; else neighbours share them
  StateCache* states = nullptr;     // n_heads and the dims are its shape's
  int layer = 0;                    // of the recurrent ones
};

// What the device reaches by a short measurement, for matmuls whose weights have some format: the 100 % of `bench`.
struct Peak {
  double read_gb_s = 0;        // 10^9 bytes a second, read
  double matmul_gflop_s = 0;   // 10^9 multiplications and additions a second
  std::string matmul_kind;     // "int8", "f32", "bf16"
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu"
  virtual std::string description() const = 0;  // "cpu: 2 threads, AVX-512 VNNI BF16"

  virtual int n_threads() const { return 1; }   // of the host, that compute
  // Whether it has what only some models need: experts, attention sinks, head dims over 256. Asked before anything is loaded.
  virtual bool runs_experts() const { return false; }
  virtual bool runs_recurrence() const { return false; }  // likewise recurrent layers

  virtual bool keeps_kv_as(DType dtype) const { return dtype != DType::kQ8_0; }  // asked before anything is loaded, too

  // The type of activations between matmuls; the residual stream, rope angles and logits are f32 everywhere.
  virtual DType activation_dtype() const { return DType::kF32; }

  // ---- memory: at start-up only ----
  virtual Tensor alloc(DType dtype, int64_t rows, int64_t cols) = 0;
  // The result keeps host's planes where the backend will go on reading them, and null ones where it has a copy of its own.
  virtual Weight prepare(const Weight& host, unsigned use /* WeightUse bits */) = 0;
  virtual std::unique_ptr<KvCache> make_kv(const KvShape& shape) = 0;
  virtual std::unique_ptr<StateCache> make_states(const StateShape& shape);  // only where runs_recurrence()
  virtual void reserve(const StepLimits& limits);      // takes all scratch for the largest step
  virtual size_t available_bytes() const;              // that can be taken now
  virtual size_t device_bytes() const { return available_bytes(); }  // of all the memory there is
  virtual size_t scratch_bytes(const StepLimits& /*limits*/) const { return 0; }  // that reserve and the first steps will take
  virtual size_t allocated_bytes() const = 0;          // by alloc, prepare, make_kv, make_states and reserve
  virtual void upload(const Tensor& to, const void* from) = 0;     // rows * cols elements, contiguous
  virtual void download(void* to, const Tensor& from) = 0;

  // The kernels that can multiply so many rows by w, the one that products take first; that they take this one, which must be of
  // those, until told otherwise (by ""); and a wait until those are there that are being made for what has run so far. For
  // `ingot inspect --kernels`, which times them, benchmarks and tests.
  virtual std::vector<std::string> matmul_kernels(const Weight& /*w*/, int64_t /*rows*/) const { return {name()}; }
  virtual void use_matmul_kernel(const std::string& /*kernel*/) {}
  virtual void await_kernels() {}

  virtual Peak measure_peak(Format /*weights*/) { return {}; }  // takes a second or so; zeros: not known

  // ---- one step ----
  virtual void begin(const Batch& batch) = 0;          // host planning; the verbs below work on this batch
  virtual void run(const std::function<void()>& body) { body(); }  // may record the verbs once and replay them
  virtual bool overlaps() const { return false; }      // run and sample return before their work is done
  virtual void synchronize() {}                        // waits for the verbs so far
  virtual void sample(const Tensor& logits /* [n_logits, n_vocab] */, std::span<const SampleRow> rows) = 0;
  virtual std::vector<Sampled> wait() = 0;             // what the last sample drew, in row order

  // ---- primitives ----
  virtual void embed(Tensor x /* out [n_tokens, dim] */, const Weight& table /* [n_vocab, dim] */, float scale) = 0;
  virtual void matmul(Tensor y /* out [n, n_out] */, Tensor x /* [n, n_in] */, const Weight& w, Tensor bias = {}) = 0;
  virtual void norm(Tensor y /* out [n, dim] */, Tensor x /* [n, dim]; may be y */, const NormArgs& args) = 0;
  virtual void add(Tensor x /* in, out [n, dim] */, Tensor y /* [n, dim] */) = 0;
  virtual void act_mul(Tensor y /* out [n, ffn] */, Tensor gate /* [n, ffn]; may be y */, Tensor up, Activation act) = 0;
  // angles [n_tokens, 2 * n_freq]: magnitude * cos(position * inv_freq), then the sines; for the batch's positions.
  virtual void rope_angles(Tensor angles, Tensor inv_freq /* [1, n_freq] */, float magnitude) = 0;
  virtual void rope(Tensor x /* in, out [n_tokens, n_heads * head_dim] */, int n_heads, const RopeArgs& args) = 0;
  virtual void kv_write(KvCache& kv, int layer, Tensor k,
                        Tensor v /* [n_tokens, n_kv_heads * head_dim]; k again where values are keys */) = 0;
  virtual void attention(Tensor y /* out [n_tokens, n_heads * head_dim] */, Tensor q, const KvCache& kv,
                         const AttentionArgs& args) = 0;
  virtual void act(Tensor x /* in, out [n, ffn] */, Activation act) = 0;
  virtual void add_positions(Tensor x /* in, out [n_tokens, dim] */, Tensor table /* [n_positions, dim]; one row: to all */) = 0;
  virtual void pool(Tensor y /* out [n_seqs, dim] */, Tensor x /* [n_tokens, dim] */, Pooling pooling) = 0;
  virtual void gather_rows(Tensor y /* out [n_logits, dim] */, Tensor x /* [n_tokens, dim] */) = 0;
  virtual void scale(Tensor x /* in, out */, float factor, float softcap /* 0: none */) = 0;

  // ---- primitives of models with experts or with attention over latents: only where runs_experts() ----
  virtual void copy(Tensor y /* out [n, dim] */, Tensor x /* [n, dim] */);  // whatever the strides
  // ids and weights [n, n_used], the best first; of equal scores the lower number
  virtual void moe_route(Tensor ids /* out, i32 */, Tensor weights /* out, f32 */, Tensor logits /* [n, n_experts] */, const RouteArgs& args);
  // y[i] = x[i * x.rows / y.rows] w[ids[i]]^T + bias[ids[i]]: x has a row for each row of y, or one for each token
  virtual void moe_matmul(Tensor y /* out [n * n_used, n_out] */, Tensor x /* [n or n * n_used, n_in] */, const Weight& w, Tensor ids,
                          Tensor bias /* [n_experts, n_out] or empty */);
  // residual[t] += sum over k of weights[t, k] y[t * n_used + k]
  virtual void moe_combine(Tensor residual /* in, out [n, dim] */, Tensor y /* [n * n_used, dim] */, Tensor weights /* [n, n_used] */);

  // ---- primitives of models with recurrent layers: only where runs_recurrence() ----
  virtual void gate(Tensor x /* in, out [n, dim] */, Tensor gate /* [n, dim] */);  // x *= sigmoid(gate)
  // Each channel becomes SiLU of the convolution of its last `width` inputs, those of earlier steps being in the state.
  virtual void short_conv(Tensor x /* in, out [n_tokens, n_channels], contiguous */, Tensor weight /* [n_channels, width] */,
                          StateCache& states, int layer);
  virtual void delta_rule(const DeltaRuleArgs& args);

  // ---- fused: the default bodies say what they mean ----
  virtual void qkv(const QkvArgs& args);
  // y = act(x w_gate^T + b_gate) * (x w_up^T + b_up)
  virtual void gate_up(Tensor y /* out [n, ffn] */, Tensor x /* [n, dim] */, const Weight& w_gate, const Weight& w_up,
                       Tensor bias_gate, Tensor bias_up, Activation act);
  // residual += x w^T + bias
  virtual void matmul_add(Tensor residual /* in, out [n, n_out] */, Tensor x /* [n, n_in] */, const Weight& w,
                          Tensor bias = {});
  // residual += y, then out = norm(residual)
  virtual void add_norm(Tensor out, Tensor residual, Tensor y, const NormArgs& args);
  // y = norm(x) w^T + bias
  virtual void norm_matmul(Tensor y /* out [n, n_out] */, Tensor x /* [n, n_in] */, const NormArgs& args, const Weight& w,
                           Tensor bias = {});
  // residual += the experts' answers to x, weighed
  virtual void moe(const MoeArgs& args);

 protected:
  // A buffer for a fused default's intermediate, [rows, cols] within the reserved limits.
  Tensor scratch(int64_t rows, int64_t cols) const { return scratch_.view(rows, cols); }

 private:
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

// The kernels of the CUDA backend, as plain functions that enqueue on a device's stream. Tensors are f32 or f16 unless
// said otherwise.
#pragma once
#include <driver_types.h>

#include <array>
#include <cstdint>
#include <optional>

#include "backend/cuda/matmul/packed_weight.h"
#include "backend/ops.h"

namespace ingot::cuda {

class Device;
struct DeviceLimits;

// The batch on the device: the arrays of batch.h, all ints. Their addresses are fixed, so a recorded step reads each
// new batch.
struct DeviceBatch {
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* rope_positions = nullptr;  // [kRopeAxes, axis_stride], only if a rope has several axes
  int64_t axis_stride = 0;
  const int32_t* seen_len = nullptr;  // [n_tokens], only in a step in which tokens see later ones
  const int32_t* token_seq = nullptr;  // [n_tokens]: the sequence of a token
  const int32_t* q_start = nullptr;
  const int32_t* kv_len = nullptr;
  const int32_t* logit_rows = nullptr;
  const int32_t* max_blocks = nullptr;                      // [1]: entries of a row of the table
  const int32_t* block_table = nullptr;                     // [n_seqs, *max_blocks]
  const int32_t *state_in = nullptr, *state_out = nullptr;  // [n_seqs], for models with recurrent layers
};

// An array of the cache: rows of head_dim elements.
struct KvRows {
  void* data = nullptr;
  DType dtype = DType::kF16;
  void* scales = nullptr;  // only of types with scales (attention/cache.cuh): f16, [n_rows, groups]
};

// Pages: [layer, block, key or value, kv_head, token of the block, head_dim]. If values have another type than keys,
// they have an array of their own, and both arrays are [layer, block, kv_head, token of the block, head_dim].
struct DeviceKv {
  void* data = nullptr;
  DType dtype = DType::kF16;
  int n_layers = 0, n_blocks = 0, n_kv_heads = 0, block_size = 0, head_dim = 0;
  int key_rotation = 1;  // as KvShape
  int n_parts = 2;  // of an array: keys and values; 1: the keys are also the values, or the values have their own array
  void* scales = nullptr;  // as in KvRows
  bool values_are_keys = false;
  KvRows values;  // only if their type is another

  bool has_two_types() const { return values.data != nullptr; }
  int64_t n_rows() const { return int64_t{n_parts} * n_layers * n_blocks * n_kv_heads * block_size; }  // of an array
};

// unpack.cu
// Rows [first, first + n) of w / factor as [n, n_in] halves, or of w as floats when w.f32.
void unpack_rows(void* out, const PackedWeight& w, int64_t first, int64_t n, Device& device);
// Rounds n halves, n a multiple of 8, to the 8 bits of precision that a bf16 has.
void round_halves(void* w, int64_t n, Device& device);
void embed_rows(const Tensor& x, const PackedWeight& table, const int32_t* tokens, float scale, Device& device);

// matvec.cu: y = x w^T for a few rows of x, halves.
inline constexpr int kMatvecRows = 16;
struct MatvecJob {
  const PackedWeight* w = nullptr;
  const float* bias = nullptr;
};
// A norm that a product computes itself: f32 row x to f16 row y. The product also writes y.
struct DeferredNorm {
  Tensor y, x;
  NormArgs args;
};
bool can_defer(const DeferredNorm& norm);  // an RMS norm of one row

class SpecialisedKernels;
struct QkvEnd;

struct Matvec {
  Tensor x;                            // [n, n_in] f16
  const DeferredNorm* norm = nullptr;  // if set, x is norm->y
  void* arranged = nullptr;            // scratch of matvec_scratch(x) bytes
  MatvecJob jobs[3];
  Tensor y[3];
  int n_jobs = 0;                             // share_matvec() holds for any two jobs
  bool accumulate = false;                    // y += instead of y =
  int gate = -1;                              // an Activation: y[0] = act(jobs[0]) * jobs[1]; -1: none
  bool batch_invariant = false;               // tile_matmul: a row's result does not depend on the other rows
  bool decoded = false;                       // tile_matmul: the previous kernel writes the weight
  const QkvEnd* end = nullptr;                // dot_rows: what becomes of q, k and v; y[0] is q after rope
  SpecialisedKernels* specialised = nullptr;  // may be null
};
// dot_jobs.cu: independent products of one row each, halves on 16 bytes, with dense weights that can_matvec().
inline constexpr size_t kMaxDotJobs = 8;
struct DotJob {
  const PackedWeight* w = nullptr;
  const Product* product = nullptr;
};
void dot_jobs(std::span<const DotJob> jobs, Device& device);

bool can_matvec(const PackedWeight& w);
bool share_matvec(const PackedWeight& a, const PackedWeight& b);  // whether one launch can compute both
size_t matvec_scratch(const Tensor& x);
void matvec(const Matvec& m, Device& device);

// tile_matmul.cu: the same for any number of rows, without a norm.
bool can_tile_matmul(const PackedWeight& w);
void tile_matmul(const Matvec& m, Device& device);

// warpgroup_matmul.cu: the same for more than about 32 rows of quantized weights on Hopper, without a norm.
bool can_warpgroup_matmul(const DeviceLimits& device, const PackedWeight& w);
void warpgroup_matmul(const Matvec& m, Device& device);

// dot_rows.cu: the same for one row of x and dense weights; matvec() calls it.
inline constexpr int kMaxDotColumns = 48 << 10;
void dot_rows(const Matvec& m, Device& device);

// dot_codes.cu: the same for one row of x and codes of 4 or 8 bits; matvec() calls it.
bool can_dot_codes(const PackedWeight& w);

// plain_matmul.cu: y = x w^T, or y += with accumulate, for dense weights of any size and alignment. Slow. x has the
// type of w.
void plain_matmul(const Tensor& y, const Tensor& x, const PackedWeight& w, bool accumulate, Device& device);

// streams.cu
void match_size_rows(const Tensor& y, const Tensor& x, Device& device);
void mix_stream_rows(const Tensor& x, const Tensor& streams, const Tensor& coefs, Device& device);
void correct_stream_rows(const Tensor& x, const Tensor& predicted, const Tensor& streams, const Tensor& coefs,
                         Device& device);
void keep_above_rows(const Tensor& x, float deviations, Device& device);

// rows.cu
void convert(const Tensor& y, const Tensor& x, Device& device);
// rounds: may round f16 results to the 8 bits of precision that a bf16 has (Products::rounds_input).
void norm_rows(const Tensor& y, const Tensor& x, const NormArgs& args, Device& device, bool rounds = false);
// layer_norm.cu. can_layer_norm: whether layer_norm_rows() takes these rows.
bool can_layer_norm(const Tensor& y, const Tensor& x, const NormArgs& args);
void layer_norm_rows(const Tensor& y, const Tensor& x, const NormArgs& args, Device& device);
// can_add_normed: whether add_normed_rows() takes these rows.
bool can_add_normed(const Tensor& x, const Tensor& y, const NormArgs& args);
void add_normed_rows(const Tensor& x, const Tensor& y, const NormArgs& args, float factor, Device& device);
// can_gated_norm: whether gated_norm_rows() takes these rows.
bool can_gated_norm(const Tensor& y, const Tensor& x, const Tensor& gate, const NormArgs& args);
void gated_norm_rows(const Tensor& y, const Tensor& x, const Tensor& gate, const NormArgs& args, Device& device);
void add_rows(const Tensor& x, const Tensor& y, bool y_is_one_row, Device& device);
void act_mul_rows(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act, Device& device,
                  bool rounds = false);
void scale_rows(const Tensor& x, float factor, float softcap, Device& device);
void clamp_rows(const Tensor& x, float low, float high, Device& device);
void act_rows(const Tensor& x, Activation act, const Tensor& bias, Device& device);  // bias: f32 [1, cols] or empty
void scale_by_position_rows(const Tensor& x, const PositionScale& args, const int32_t* positions, Device& device);
void scale_group_rows(const Tensor& x, const Tensor& factors /* f32 or f16 */, GroupFactor kind, Device& device);
void xielu_rows(const Tensor& x, const Xielu& args, Device& device);
void add_positions(const Tensor& x, const Tensor& table, const int32_t* positions, Device& device);    // f32
void cut_patches(const Tensor& y, const PatchArgs& args, Device& device);
// x, table, factors: f32
void add_mixed_rows(const Tensor& x, const Tensor& table, const Tensor& rows, const Tensor& factors, Device& device);
void mean_rows(const Tensor& y, const Tensor& x, Device& device);
void pool(const Tensor& y, const Tensor& x, const int32_t* q_start, Pooling pooling, Device& device);  // f32
void gather(const Tensor& y, const Tensor& x, const int32_t* rows, Device& device);

// heads.cu
void angles_of_positions(const Tensor& angles, const Tensor& inv_freq, float magnitude, const Tensor& axes,
                         const DeviceBatch& batch, Device& device);
void rope_rows(const Tensor& x, int n_heads, const RopeArgs& args, Device& device);
void hadamard_rows(const Tensor& x, int block, Device& device);
void write_kv(const DeviceKv& kv, int layer, const Tensor& k, const Tensor& v, const DeviceBatch& batch,
              Device& device);
// The rest of qkv after the products: biases, norms, rope, and the cache.
bool can_finish_qkv(const QkvArgs& args);
// The same work inside dot_rows(). Nothing if dot_rows() does not support these heads or this cache.
std::optional<QkvEnd> qkv_end(const QkvArgs& args, const DeviceKv& kv, const DeviceBatch& batch);
// q, k, v: the products. The finished q goes to args.q, the others to the cache.
void finish_qkv(const QkvArgs& args, const Tensor& q, const Tensor& k, const Tensor& v, const DeviceKv& kv,
                const DeviceBatch& batch, Device& device);

// attention/attend.cu chooses between the other attention kernels.
inline constexpr int kSplitKeys = 128;  // if a sequence's keys are split, a split has about this many keys or more
struct AttentionStep {
  static constexpr int kFewTokens = 16;
  int n_tokens = 0, n_seqs = 0, max_q_len = 0;
  std::array<int, kFewTokens + 1> n_of_len{};  // [n]: sequences with n tokens; [0]: with more than kFewTokens
  int most_kv = 0;                             // no sequence is longer
  bool batch_invariant = false;  // a token's result does not depend on the batch: keys are not split
};
// The block shape of attention/wide.cu; rows 0: not used.
struct WideShape {
  int rows = 0, n_stages = 0;
  int n_blocks = 0;  // per multiprocessor
};
// How the blocks of a kernel divide the rows and the keys of a sequence.
struct AttentionBlocks {
  int rows = 0;  // of a block; 0: the kernel does not run
  int n_row_blocks = 1, n_splits = 1;
  int split_bits = 0;  // a split has 2^split_bits keys or more
};
struct AttentionPlan {
  int n_seqs = 0, max_q_len = 0;
  AttentionBlocks few, many;  // for sequences with few rows and with many
  WideShape wide;             // of `few`; rows 0: attention/decode.cu computes them
  bool on_hopper = false;     // attention/hopper.cu computes `many`
  int n_prompt_blocks = 0;    // of attention/hopper.cu, beside those of `few`; 0: `many` first, then `few`
  bool rounds = false;        // set by the caller: y may have 8 bits of precision, as in norm_rows()
  size_t part_bytes = 0;      // size of `parts`
  void* parts = nullptr;  // scratch
};
// Elements must have at most two bytes, pages a multiple of 16 tokens, and heads 32 columns or a multiple of 8 from 64
// on.
// The next size of heads for which all kernels of attention are tuned.
int fast_head_dim(int head_dim);
bool can_attend(const DeviceKv& kv, const AttentionArgs& args, const DeviceLimits& device);
AttentionPlan plan_attention(const DeviceKv& kv, const AttentionArgs& args, const AttentionStep& step,
                             const DeviceLimits& device);
// q and y: [n_tokens, n_heads * head_dim], q f16.
void attend(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& args, const DeviceBatch& batch,
            const AttentionPlan& plan, Device& device);
// attention/naive.cu: every shape, in f32; slow.
void attend_naive(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& args,
                  const DeviceBatch& batch, Device& device, bool batch_invariant);

// argmax.cu
using Key = unsigned long long;  // logit_key.cuh: ordered by logit, then by id
inline constexpr int kMaxArgmaxBlocks = 128;  // of a row with a log-probability
struct RowArgmax {
  Key max_key;           // of the finished blocks
  unsigned n_blocks;  // finished blocks of the row
  struct Part {
    float largest, sum;  // of a block's logits; sum: of exp(logit - largest)
  } parts[kMaxArgmaxBlocks];
};
bool can_argmax_logprob(const Tensor& logits);
// best[i] and copy[i] (pinned memory) = key of the largest logit of row i, decoded by token_of() of sampling/draws.cc.
// logprobs[i] (pinned memory, or null) = its log-probability. rows[i]: `max_key` and `n_blocks` are zero before and
// after.
void argmax_rows(Key* best, Key* copy, float* logprobs, RowArgmax* rows, const Tensor& logits, Device& device);

// draw.cu: draws a token for each row, in the order of sampling.h. All pointers are device pointers.
inline constexpr int kMaxTop = 20;  // most logprobs besides the drawn token's, as in sampling.cc
struct LogitEdit {
  int32_t token = 0;
  int32_t count = 0;  // occurrences for the penalties
  float bias = 0;     // -infinity forbids the token
  float raw = 0;      // the kernel saves the unedited logit here
};
struct RowDraw {
  double u = 0;                   // in [0, 1)
  float inverse_temperature = 0;  // 0: the most likely token
  float top_p = 1;
  float log_min_p = 0;  // -infinity: off
  int32_t top_k = 0;    // 0: off
  float repetition = 1, presence = 0, frequency = 0;
  int32_t row = 0;                      // of the logits
  int32_t first_edit = 0, n_edits = 0;  // each token once
  int32_t n_top = -1;                   // top logprobs; -1: no logprobs
  bool may_forbid = false;              // by mask or bias
  const uint32_t* mask = nullptr;       // bit i: token i is allowed
};
struct RowDrawn {
  int32_t token;  // or kNoToken
  float logprob;
  int32_t n_top;
  int32_t top[kMaxTop];
  float top_logprob[kMaxTop];
};
void draw_rows(RowDrawn* drawn, const Tensor& logits /* edited */, const RowDraw* draws, int n_draws, LogitEdit* edits,
               Device& device);

// argmax.cu: upload_batch() is a kernel that reads a batch from pinned memory. It takes 5 us between two steps; a copy
// and a kernel for the tokens took 13 us. Words [first, first + n) of the batch are tokens. A token below 0 becomes the
// token that row -1 - token drew, from `keys`, or from `drawn` if `keys` is null.
struct DrawnTokens {
  int64_t first = 0, n = 0;
  const Key* keys = nullptr;
  const RowDrawn* drawn = nullptr;
};
// Changed entries of the block table, copied with the batch.
struct TableWrites {
  int32_t* table = nullptr;
  const int32_t* pairs =
      nullptr;    // [n, 2] pinned, aligned to 16 bytes: index and value; a repeated index has the same value
  int64_t n = 0;  // even
};
// A copy on the device, by the same kernel.
struct FloatCopy {
  float* to = nullptr;  // aligned to 16 bytes, as is `from`
  const float* from = nullptr;
  int64_t n = 0;  // a multiple of 4
};
void upload_batch(int32_t* to /* [n] */, const int32_t* from /* [n] pinned; both in aligned units of 16 */, int64_t n,
                  const DrawnTokens& tokens, const TableWrites& writes, const FloatCopy& copy, Device& device);

bool has_code();  // peak.cu: whether there are kernels for the current GPU, or PTX for the driver

// peak.cu: for measure_peak()
void fill_noise(const Tensor& t, Device& device);  // contiguous rows
void read_all(const void* data, size_t bytes, float* sink,
              Device& device);  // reads every byte once

}  // namespace ingot::cuda

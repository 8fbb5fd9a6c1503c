// The kernels of recurrent layers and of gates. Each instruction set has one such table, next to the table of
// kernels.h.
//
// Kernel sources include this header, so it must not define inline symbols with external linkage (see kernels/simd.h).
#pragma once
#include <stdint.h>

namespace ingot::cpu {

constexpr int kStateCols = 32;      // columns in a strip of a head's matrix: with 128 rows, 16 KiB
constexpr int kConvChannels = 64;   // channels in a part of a convolution
constexpr int kMaxConvWidth = 16;
constexpr int kMaxSelectiveDim = 256;  // elements of a channel's state

// Some channels of a sequence, in place (ShortConvArgs).
struct ConvJob {
  float* x;                    // at the first token
  int64_t x_stride;
  const float *in_gate, *out_gate;  // as x; null: none
  int64_t in_stride, out_stride;
  const float* bias;           // [n_channels]; null: none
  bool silu;
  const float* weight;         // [n_channels, width]
  int width;
  const float* before;         // [width - 1] inputs, oldest first; null: none
  float* after;                // as `before`, for the next step; may be `before`
  int64_t state_stride;
  int n_tokens;
  int n_channels;              // at most kConvChannels
};

// Some columns of a head's matrix, through all tokens of a sequence. k has length 1; q has length 1 times its scale.
struct DeltaJob {
  const float *q, *k, *v;      // at the first token
  int64_t qkv_stride;
  const float *keep, *beta;    // at the first token: factor of the old matrix, share of the correction
  int64_t gate_stride;
  const float* before;         // [key_dim, kStateCols]; null: zeros
  float* after;                // may be `before`
  float* y;
  int64_t y_stride;
  int n_tokens;
  int key_dim;
  int n_cols;                  // at most kStateCols
};

// Some columns of a head's matrix in a state-space model, through all tokens of a sequence.
struct ScanJob {
  const float *x, *b, *c;      // at the first token; y may be x
  int64_t x_stride, b_stride, c_stride;
  const float *keep, *step;    // at the first token: factor of the old matrix, factor of x
  int64_t keep_stride, step_stride;
  float skip;
  const float* before;         // [state_dim, kStateCols]; null: zeros
  float* after;                // may be `before`
  float* y;
  int64_t y_stride;
  int n_tokens;
  int state_dim;
  int n_cols;                  // at most kStateCols
};

// Some channels whose states decay element by element, through all tokens of a sequence (SelectiveScanArgs).
struct SelectiveJob {
  const float *x, *dt, *b, *c, *gate;  // at the first token; y may be x; gate: null if there is none
  int64_t x_stride, dt_stride, b_stride, c_stride, gate_stride;
  const float* decay;          // [n_cols, state_dim]
  const float *dt_bias, *skip;  // [n_cols]
  const float* before;         // [state_dim, kStateCols]; null: zeros
  float* after;                // may be `before`
  float* y;
  int64_t y_stride;
  int n_tokens;
  int state_dim;
  int n_cols;                  // at most kStateCols
};

// Some columns of a head's matrix, through all tokens of a sequence (RankOneRuleArgs).
struct RankOneJob {
  const float *q, *keep, *a, *b, *k, *v;  // at the first token
  int64_t q_stride, keep_stride, a_stride, b_stride, k_stride, v_stride;
  const float* before;         // [key_dim, kStateCols]; null: zeros
  float* after;                // may be `before`
  float* y;
  int64_t y_stride;
  int n_tokens;
  int key_dim;
  int n_cols;                  // at most kStateCols
};

// Some channels of a sequence, in place (RgLruArgs).
struct RgLruJob {
  float* x;                    // at the first token
  const float *input_gate, *decay_gate;  // as x
  int64_t x_stride, input_stride, decay_stride;
  const float* decay;          // [n_channels]
  const float* before;         // [n_channels]; null: the sequence begins
  float* after;                // may be `before`
  int n_tokens;
  int n_channels;              // at most kConvChannels
};

// Some channels of a sequence (MixTokensArgs).
struct MixJob {
  float* y;                    // at the first token
  const float* x;              // as y
  int64_t y_stride, x_stride;
  int64_t dim;                 // of all channels: the distance of two mixes in y and in mix
  const float* mix;            // [n_mixes, dim]
  int n_mixes;
  const float* before;         // [n_channels]; null: zeros
  float* after;                // may be `before`
  int n_tokens;
  int n_channels;              // at most kConvChannels
};

// A head of a token (Wkv7InputsArgs).
struct Wkv7Head {
  float *k, *keep, *b, *a, *v, *v_first;
  const float *v_gate, *k_k, *k_a;  // v_gate: null in the first layer
  int64_t n;
};

// A head of a token (Wkv7OutputsArgs).
struct Wkv7Output {
  float* y;
  const float *r, *k, *v, *gate, *r_k, *weight, *bias;
  float eps;
  int64_t n;
};

// The steps of a token's heads: step = softplus(step + bias) between low and high, and keep = exp(decay step). keep may
// be step, which is then lost.
struct StepJob {
  float *step, *keep;
  const float *bias, *decay;
  float low, high;
  int64_t n;                   // heads
};

struct RecurrenceKernels {
  void (*unit_length)(float* x, int64_t n, float factor);  // scales x to length `factor`
  void (*gate)(float* x, const float* gate, int64_t n);    // x *= sigmoid(gate)
  void (*scaled_sigmoid)(float* x, float factor, int64_t n);  // x = factor sigmoid(x)
  void (*short_conv)(const ConvJob& job);
  void (*delta_rule)(const DeltaJob& job);
  void (*ssm_scan)(const ScanJob& job);
  void (*selective_scan)(const SelectiveJob& job);
  void (*rg_lru)(const RgLruJob& job);
  void (*rank_one_rule)(const RankOneJob& job);
  void (*keep_factors)(float* x, const float* bias, float decay, int64_t n);  // x = exp(decay softplus(x + bias))
  void (*decay_steps)(const StepJob& job);
  void (*mix_tokens)(const MixJob& job);
  void (*wkv7_inputs)(const Wkv7Head& head);
  void (*wkv7_outputs)(const Wkv7Output& head);
};

}  // namespace ingot::cpu

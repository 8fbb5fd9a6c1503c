// The kernels of recurrent layers: a short convolution along each channel; the gated delta rule and the scan of
// Mamba-2 on a strip of a state matrix.
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/recurrence_kernels.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

static_assert(kStateCols % W == 0 && kConvChannels % W == 0);

void unit_length(float* x, int64_t n, float factor) {
  F squares = {};
  int64_t i = 0;
  for (; i + W <= n; i += W) squares += load(x + i) * load(x + i);
  float total = sum(squares) + 1e-6f;
  for (; i < n; ++i) total += x[i] * x[i];
  const float scale = factor / __builtin_sqrtf(total);
  for (i = 0; i + W <= n; i += W) store(x + i, load(x + i) * scale);
  for (; i < n; ++i) x[i] *= scale;
}

void gate(float* x, const float* gate, int64_t n) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(x + i, load(x + i) * sigmoid(load(gate + i)));
  float rest[2][W] = {};
  const auto n_bytes = (size_t)(n - i) * 4;
  __builtin_memcpy(rest[0], x + i, n_bytes);
  __builtin_memcpy(rest[1], gate + i, n_bytes);
  store(rest[0], load(rest[0]) * sigmoid(load(rest[1])));
  __builtin_memcpy(x + i, rest[0], n_bytes);
}

INLINE void multiply(float* x, const float* by, int n) {
  int i = 0;
  for (; i + W <= n; i += W) store(x + i, load(x + i) * load(by + i));
  for (; i < n; ++i) x[i] *= by[i];
}

// Works in place from the last token to the first, because a token's output needs the inputs before it. First, all
// inputs get their gates, and the inputs that the next step needs are copied. If `before` and `after` are the same
// buffer, the old contents are read before the new contents are written.
void short_conv(const ConvJob& job) {
  const int kept = job.width - 1, n = job.n_tokens;
  float taps[kMaxConvWidth][kConvChannels], last[kMaxConvWidth][kConvChannels], line[kConvChannels],
      bias[kConvChannels];
  if (job.n_channels < kConvChannels) {  // otherwise every lane is set below
    __builtin_memset(taps, 0, sizeof(taps));
    __builtin_memset(line, 0, sizeof(line));
  }
  __builtin_memset(bias, 0, sizeof(bias));
  if (job.bias != nullptr) __builtin_memcpy(bias, job.bias, (size_t)job.n_channels * 4);
  if (job.in_gate != nullptr)
    for (int t = 0; t < n; ++t) multiply(job.x + t * job.x_stride, job.in_gate + t * job.in_stride, job.n_channels);
  const auto input = [&](int t) {  // the input of a token of this step or of an earlier step; null: none
    return t >= 0 ? job.x + t * job.x_stride : job.before ? job.before + (t + kept) * job.state_stride : nullptr;
  };
  const auto n_bytes = (size_t)job.n_channels * 4;
  for (int c = 0; c < job.n_channels; ++c)
    for (int i = 0; i < job.width; ++i) taps[i][c] = job.weight[c * job.width + i];
  for (int i = 0; i < kept; ++i) {
    const float* p = input(n - kept + i);
    p != nullptr ? __builtin_memcpy(last[i], p, n_bytes) : __builtin_memset(last[i], 0, n_bytes);
  }
  for (int t = n - 1; t >= 0; --t) {
    F sums[kConvChannels / W];
    for (int j = 0; j < kConvChannels / W; ++j) sums[j] = load(bias + j * W);
    for (int i = 0; i < job.width; ++i) {
      const float* p = input(t - kept + i);
      if (p == nullptr) continue;
      __builtin_memcpy(line, p, n_bytes);
      for (int j = 0; j < kConvChannels / W; ++j) sums[j] += load(line + j * W) * load(taps[i] + j * W);
    }
    for (int j = 0; j < kConvChannels / W; ++j) store(line + j * W, job.silu ? sums[j] * sigmoid(sums[j]) : sums[j]);
    float* x = job.x + t * job.x_stride;
    __builtin_memcpy(x, line, n_bytes);
    if (job.out_gate != nullptr) multiply(x, job.out_gate + t * job.out_stride, job.n_channels);
  }
  for (int i = 0; i < kept; ++i) __builtin_memcpy(job.after + i * job.state_stride, last[i], n_bytes);
}

// The matrix before the first token is in `after`.
INLINE void start_strip(const float* before, float* after, int n_rows) {
  const auto n_bytes = (size_t)n_rows * kStateCols * 4;
  if (before == nullptr) {
    __builtin_memset(after, 0, n_bytes);
  } else if (before != after) {
    __builtin_memcpy(after, before, n_bytes);
  }
}

// Makes two passes over the strip for each token. The first computes the matrix's value for the key. The second updates
// the matrix and reads it with the query.
void delta_rule(const DeltaJob& job) {
  constexpr int n_vectors = kStateCols / W;
  float* s = job.after;
  start_strip(job.before, s, job.key_dim);
  float line[kStateCols] = {};
  const auto n_bytes = (size_t)job.n_cols * 4;
  for (int t = 0; t < job.n_tokens; ++t) {
    const float *q = job.q + t * job.qkv_stride, *k = job.k + t * job.qkv_stride;
    const float keep = job.keep[t * job.gate_stride], beta = job.beta[t * job.gate_stride];
    F known[n_vectors] = {}, change[n_vectors], out[n_vectors] = {};
    for (int i = 0; i < job.key_dim; ++i)
      for (int j = 0; j < n_vectors; ++j) known[j] += load(s + i * kStateCols + j * W) * k[i];
    __builtin_memcpy(line, job.v + t * job.qkv_stride, n_bytes);
    for (int j = 0; j < n_vectors; ++j) change[j] = (load(line + j * W) - known[j] * keep) * beta;
    for (int i = 0; i < job.key_dim; ++i)
      for (int j = 0; j < n_vectors; ++j) {
        float* at = s + i * kStateCols + j * W;
        const F element = load(at) * keep + change[j] * k[i];
        store(at, element);
        out[j] += element * q[i];
      }
    for (int j = 0; j < n_vectors; ++j) store(line + j * W, out[j]);
    __builtin_memcpy(job.y + t * job.y_stride, line, n_bytes);
  }
}

void ssm_scan(const ScanJob& job) {
  constexpr int n_vectors = kStateCols / W;
  float* s = job.after;
  start_strip(job.before, s, job.state_dim);
  float line[kStateCols] = {};
  const auto n_bytes = (size_t)job.n_cols * 4;
  for (int t = 0; t < job.n_tokens; ++t) {
    const float *b = job.b + t * job.b_stride, *c = job.c + t * job.c_stride;
    const float keep = job.keep[t * job.keep_stride], step = job.step[t * job.step_stride];
    __builtin_memcpy(line, job.x + t * job.x_stride, n_bytes);
    F change[n_vectors], out[n_vectors];
    for (int j = 0; j < n_vectors; ++j) {
      const F x = load(line + j * W);
      change[j] = x * step;
      out[j] = x * job.skip;
    }
    for (int i = 0; i < job.state_dim; ++i)
      for (int j = 0; j < n_vectors; ++j) {
        float* at = s + i * kStateCols + j * W;
        const F element = load(at) * keep + change[j] * b[i];
        store(at, element);
        out[j] += element * c[i];
      }
    for (int j = 0; j < n_vectors; ++j) store(line + j * W, out[j]);
    __builtin_memcpy(job.y + t * job.y_stride, line, n_bytes);
  }
}

}  // namespace

extern const RecurrenceKernels kRecurrence;
const RecurrenceKernels kRecurrence = {.unit_length = unit_length,
                                       .gate = gate,
                                       .short_conv = short_conv,
                                       .delta_rule = delta_rule,
                                       .ssm_scan = ssm_scan};

}  // namespace ingot::cpu::INGOT_ISA

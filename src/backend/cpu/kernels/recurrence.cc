// The kernels of recurrent layers: a short convolution along each channel; the gated delta rule and the scans of
// Mamba-2 and Mamba on a strip of a state matrix.
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

static_assert(kStateCols % W == 0 && kConvChannels % W == 0);

constexpr int kScanTokens = W < 8 ? 1 : W < 16 ? 2 : 4;  // that a scan of Mamba-2 takes at once

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

// The tokens t to t + n of a scan, for some vectors of the strip's columns. An element of the matrix stays in a
// register for all of these tokens.
template <int n, int n_vectors>
INLINE void scan_tokens(const ScanJob& job, int t, float* s, const float (&x)[kScanTokens][kStateCols],
                        float (&y)[kScanTokens][kStateCols], int column) {
  F change[n][n_vectors], out[n][n_vectors];
  float keep[n];
  const float *b[n], *c[n];
  for (int i = 0; i < n; ++i) {
    const float step = job.step[(t + i) * job.step_stride];
    keep[i] = job.keep[(t + i) * job.keep_stride];
    b[i] = job.b + (t + i) * job.b_stride, c[i] = job.c + (t + i) * job.c_stride;
    for (int j = 0; j < n_vectors; ++j) {
      const F v = load(x[i] + column + j * W);
      change[i][j] = v * step;
      out[i][j] = v * job.skip;
    }
  }
  for (int row = 0; row < job.state_dim; ++row)
    for (int j = 0; j < n_vectors; ++j) {
      float* at = s + row * kStateCols + column + j * W;
      F element = load(at);
      for (int i = 0; i < n; ++i) {
        element = element * keep[i] + change[i][j] * b[i][row];
        out[i][j] += element * c[i][row];
      }
      store(at, element);
    }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n_vectors; ++j) store(y[i] + column + j * W, out[i][j]);
}

void ssm_scan(const ScanJob& job) {
  constexpr int kVectors = W == 8 ? 2 : kStateCols / W;  // that leave room in the registers
  float* s = job.after;
  start_strip(job.before, s, job.state_dim);
  float x[kScanTokens][kStateCols] = {}, y[kScanTokens][kStateCols];
  const auto n_bytes = (size_t)job.n_cols * 4;
  for (int t = 0; t < job.n_tokens;) {
    const int n = job.n_tokens - t >= kScanTokens ? kScanTokens : 1;
    for (int i = 0; i < n; ++i) __builtin_memcpy(x[i], job.x + (t + i) * job.x_stride, n_bytes);
    for (int column = 0; column < kStateCols; column += kVectors * W)
      n > 1 ? scan_tokens<kScanTokens, kVectors>(job, t, s, x, y, column)
            : scan_tokens<1, kVectors>(job, t, s, x, y, column);
    for (int i = 0; i < n; ++i) __builtin_memcpy(job.y + (t + i) * job.y_stride, y[i], n_bytes);
    t += n;
  }
}

// max(x, 0) + log(1 + z), where z = exp(-|x|) is at most 1; the logarithm is the series of 2 atanh(z / (2 + z)).
INLINE F softplus(F x) {
  const F z = exp(-abs(x)), s = z / (2.0f + z), square = s * s;
  F p = square * (1.0f / 15) + 1.0f / 13;
  p = p * square + 1.0f / 11;
  p = p * square + 1.0f / 9;
  p = p * square + 1.0f / 7;
  p = p * square + 1.0f / 5;
  p = p * square + 1.0f / 3;
  p = p * square + 1.0f;
  return max(x, F{}) + 2.0f * s * p;
}

// Channels are the lanes.
void selective_scan(const SelectiveJob& job) {
  constexpr int n_vectors = kStateCols / W;
  float* s = job.after;
  start_strip(job.before, s, job.state_dim);
  float decay[kMaxSelectiveDim][kStateCols], lines[4][kStateCols] = {};  // lines: of x, dt, dt_bias, skip
  const auto n_bytes = (size_t)job.n_cols * 4;
  for (int i = 0; i < job.state_dim; ++i)
    for (int col = 0; col < kStateCols; ++col)
      decay[i][col] = col < job.n_cols ? job.decay[col * job.state_dim + i] : 0;
  __builtin_memcpy(lines[2], job.dt_bias, n_bytes);
  __builtin_memcpy(lines[3], job.skip, n_bytes);
  for (int t = 0; t < job.n_tokens; ++t) {
    const float *b = job.b + t * job.b_stride, *c = job.c + t * job.c_stride;
    __builtin_memcpy(lines[0], job.x + t * job.x_stride, n_bytes);
    __builtin_memcpy(lines[1], job.dt + t * job.dt_stride, n_bytes);
    F step[n_vectors], change[n_vectors], out[n_vectors];
    for (int j = 0; j < n_vectors; ++j) {
      const F x = load(lines[0] + j * W);
      step[j] = softplus(load(lines[1] + j * W) + load(lines[2] + j * W));
      change[j] = step[j] * x;
      out[j] = load(lines[3] + j * W) * x;
    }
    for (int i = 0; i < job.state_dim; ++i)
      for (int j = 0; j < n_vectors; ++j) {
        float* at = s + i * kStateCols + j * W;
        const F element = load(at) * exp(load(decay[i] + j * W) * step[j]) + change[j] * b[i];
        store(at, element);
        out[j] += element * c[i];
      }
    for (int j = 0; j < n_vectors; ++j) store(lines[0] + j * W, out[j]);
    __builtin_memcpy(job.y + t * job.y_stride, lines[0], n_bytes);
  }
}

// sqrt(1 - exp(x)) for x <= 0: near 0, 1 - exp(x) is the first terms of its series.
INLINE F root_of_rest(F x) {
  const F series = -x * (1.0f + x * (0.5f + x * (1.0f / 6 + x * (1.0f / 24))));
  F rest = x > -0.03f ? series : 1.0f - exp(x);
  float lanes[W];
  store(lanes, rest);
  for (float& lane : lanes) lane = __builtin_sqrtf(lane);
  return load(lanes);
}

void rg_lru(const RgLruJob& job) {
  constexpr int n_vectors = kConvChannels / W;
  float lines[5][kConvChannels] = {};  // of x, input_gate, decay_gate, decay, h
  const auto n_bytes = (size_t)job.n_channels * 4;
  __builtin_memcpy(lines[3], job.decay, n_bytes);
  if (job.before != nullptr) __builtin_memcpy(lines[4], job.before, n_bytes);
  F rate[n_vectors], h[n_vectors];
  for (int j = 0; j < n_vectors; ++j) {
    rate[j] = softplus(load(lines[3] + j * W)) * -8.0f;
    h[j] = load(lines[4] + j * W);
  }
  for (int t = 0; t < job.n_tokens; ++t) {
    float* x = job.x + t * job.x_stride;
    __builtin_memcpy(lines[0], x, n_bytes);
    __builtin_memcpy(lines[1], job.input_gate + t * job.input_stride, n_bytes);
    __builtin_memcpy(lines[2], job.decay_gate + t * job.decay_stride, n_bytes);
    for (int j = 0; j < n_vectors; ++j) {
      const F log_a = rate[j] * sigmoid(load(lines[2] + j * W)),
              gated = sigmoid(load(lines[1] + j * W)) * load(lines[0] + j * W);
      const bool is_first = t == 0 && job.before == nullptr;
      h[j] = is_first ? gated : exp(log_a) * h[j] + root_of_rest(log_a * 2.0f) * gated;
      store(lines[0] + j * W, h[j]);
    }
    __builtin_memcpy(x, lines[0], n_bytes);
  }
  for (int j = 0; j < n_vectors; ++j) store(lines[4] + j * W, h[j]);
  __builtin_memcpy(job.after, lines[4], n_bytes);
}

// As delta_rule(), with a factor for each row.
void rank_one_rule(const RankOneJob& job) {
  constexpr int n_vectors = kStateCols / W;
  float* s = job.after;
  start_strip(job.before, s, job.key_dim);
  float line[kStateCols] = {};
  const auto n_bytes = (size_t)job.n_cols * 4;
  for (int t = 0; t < job.n_tokens; ++t) {
    const float *q = job.q + t * job.q_stride, *keep = job.keep + t * job.keep_stride, *a = job.a + t * job.a_stride,
                *b = job.b + t * job.b_stride, *k = job.k + t * job.k_stride;
    F known[n_vectors] = {}, v[n_vectors], out[n_vectors] = {};
    for (int i = 0; i < job.key_dim; ++i)
      for (int j = 0; j < n_vectors; ++j) known[j] += load(s + i * kStateCols + j * W) * a[i];
    __builtin_memcpy(line, job.v + t * job.v_stride, n_bytes);
    for (int j = 0; j < n_vectors; ++j) v[j] = load(line + j * W);
    for (int i = 0; i < job.key_dim; ++i)
      for (int j = 0; j < n_vectors; ++j) {
        float* at = s + i * kStateCols + j * W;
        const F element = load(at) * keep[i] + known[j] * b[i] + v[j] * k[i];
        store(at, element);
        out[j] += element * q[i];
      }
    for (int j = 0; j < n_vectors; ++j) store(line + j * W, out[j]);
    __builtin_memcpy(job.y + t * job.y_stride, line, n_bytes);
  }
}

void keep_factors(float* x, const float* bias, float decay, int64_t n) {
  for (int64_t i = 0; i < n; i += W) {
    float rest[2][W] = {};
    const auto n_bytes = (size_t)(n - i < W ? n - i : W) * 4;
    __builtin_memcpy(rest[0], x + i, n_bytes);
    __builtin_memcpy(rest[1], bias + i, n_bytes);
    store(rest[0], exp(softplus(load(rest[0]) + load(rest[1])) * decay));
    __builtin_memcpy(x + i, rest[0], n_bytes);
  }
}

}  // namespace

extern const RecurrenceKernels kRecurrence;
const RecurrenceKernels kRecurrence = {.unit_length = unit_length,
                                       .gate = gate,
                                       .short_conv = short_conv,
                                       .delta_rule = delta_rule,
                                       .ssm_scan = ssm_scan,
                                       .selective_scan = selective_scan,
                                       .rg_lru = rg_lru,
                                       .rank_one_rule = rank_one_rule,
                                       .keep_factors = keep_factors,
                                       .mix_tokens = mix_tokens,
                                       .wkv7_inputs = wkv7_inputs,
                                       .wkv7_outputs = wkv7_outputs};

}  // namespace ingot::cpu::INGOT_ISA

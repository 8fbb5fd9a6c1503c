// The kernels of recurrent layers: the gated delta rule and the scans of Mamba-2 and Mamba on a strip of a state
// matrix, the LRU of Griffin, and what prepares their inputs.
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

static_assert(kStateCols % W == 0 && kConvChannels % W == 0);

constexpr int kScanTokens = W < 8 ? 1 : W < 16 ? 2 : 4;  // that a scan takes at once

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
  for (int64_t i = 0; i < n; i += W) store_part(x, i, n, load_part(x, i, n) * sigmoid(load_part(gate, i, n)));
}

void scaled_sigmoid(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += W) store_part(x, i, n, factor * sigmoid(load_part(x, i, n)));
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

constexpr int kStripVectors = kStateCols / W;

INLINE void load_columns(F (&v)[kStripVectors], const float* p, int n_cols) {
  for (int j = 0; j < kStripVectors; ++j) v[j] = j * W < n_cols ? load_part(p, j * W, n_cols) : F{};
}
INLINE void store_columns(float* p, int n_cols, const F (&v)[kStripVectors]) {
  for (int j = 0; j < kStripVectors && j * W < n_cols; ++j) store_part(p, j * W, n_cols, v[j]);
}

// y = k^T s, the matrix's value for a key.
INLINE void read_strip(const float* s, const float* k, int n_rows, F (&y)[kStripVectors]) {
  for (F& sum : y) sum = F{};
  for (int i = 0; i < n_rows; ++i)
    for (int j = 0; j < kStripVectors; ++j) y[j] += load(s + i * kStateCols + j * W) * k[i];
}

// A pass over the strip: element(old, i, j) is the new element of row i and vector j. The query q reads the new matrix,
// and so does the next token's key, if there is one, so that the next token needs no pass of its own for this.
template <bool has_next, class Element>
INLINE void update_strip(float* s, int n_rows, const float* q, const float* next_k, F (&out)[kStripVectors],
                         F (&known)[kStripVectors], Element&& element) {
  for (int j = 0; j < kStripVectors; ++j) out[j] = known[j] = F{};
  for (int i = 0; i < n_rows; ++i)
    for (int j = 0; j < kStripVectors; ++j) {
      float* at = s + i * kStateCols + j * W;
      const F now = element(load(at), i, j);
      store(at, now);
      out[j] += now * q[i];
      if constexpr (has_next) known[j] += now * next_k[i];
    }
}

void delta_rule(const DeltaJob& job) {
  float* s = job.after;
  start_strip(job.before, s, job.key_dim);
  F known[kStripVectors], v[kStripVectors], change[kStripVectors], out[kStripVectors];
  read_strip(s, job.k, job.key_dim, known);
  for (int t = 0; t < job.n_tokens; ++t) {
    const float *q = job.q + t * job.qkv_stride, *k = job.k + t * job.qkv_stride, *next_k = k + job.qkv_stride;
    const float keep = job.keep[t * job.gate_stride], beta = job.beta[t * job.gate_stride];
    load_columns(v, job.v + t * job.qkv_stride, job.n_cols);
    for (int j = 0; j < kStripVectors; ++j) change[j] = (v[j] - known[j] * keep) * beta;
    const auto element = [&](F old, int i, int j) { return old * keep + change[j] * k[i]; };
    if (t + 1 < job.n_tokens)
      update_strip<true>(s, job.key_dim, q, next_k, out, known, element);
    else
      update_strip<false>(s, job.key_dim, q, nullptr, out, known, element);
    store_columns(job.y + t * job.y_stride, job.n_cols, out);
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

// rows[i] has element i of each channel of the strip, times log2(e): an exponential of base 2 takes fewer instructions.
INLINE void load_decay(const SelectiveJob& job, float (&rows)[kMaxSelectiveDim][kStateCols]) {
  constexpr float kLog2E = 1.44269504f;
  for (int col = 0; col < kStateCols; col += W)
    for (int i = 0; i < job.state_dim; i += W) {
      F square[W];
      for (int c = 0; c < W; ++c)
        square[c] = col + c < job.n_cols ? load_part(job.decay + (col + c) * job.state_dim, i, job.state_dim) : F{};
      transpose(square);
      for (int k = 0; k < W && i + k < job.state_dim; ++k) store(rows[i + k] + col, square[k] * kLog2E);
    }
}

// The tokens t to t + n, for a vector of channels. An element of the state stays in a register for all of these tokens.
template <int n>
INLINE void selective_tokens(const SelectiveJob& job, int t, float* s, const float (*decay)[kStateCols], int column) {
  F step[n], change[n], out[n];
  const float *b[n], *c[n];
  const F bias = load_part(job.dt_bias, column, job.n_cols), skip = load_part(job.skip, column, job.n_cols);
  for (int i = 0; i < n; ++i) {
    const F x = load_part(job.x + (t + i) * job.x_stride, column, job.n_cols);
    step[i] = softplus(load_part(job.dt + (t + i) * job.dt_stride, column, job.n_cols) + bias);
    change[i] = step[i] * x;
    out[i] = skip * x;
    b[i] = job.b + (t + i) * job.b_stride, c[i] = job.c + (t + i) * job.c_stride;
  }
  for (int row = 0; row < job.state_dim; ++row) {
    float* at = s + row * kStateCols + column;
    const F rate = load(decay[row] + column);
    F element = load(at);
    for (int i = 0; i < n; ++i) {
      element = element * exp2(rate * step[i]) + change[i] * b[i][row];
      out[i] += element * c[i][row];
    }
    store(at, element);
  }
  for (int i = 0; i < n; ++i) {
    if (job.gate != nullptr) {
      const F gate = load_part(job.gate + (t + i) * job.gate_stride, column, job.n_cols);
      out[i] *= gate * sigmoid(gate);
    }
    store_part(job.y + (t + i) * job.y_stride, column, job.n_cols, out[i]);
  }
}

// Channels are the lanes.
void selective_scan(const SelectiveJob& job) {
  float* s = job.after;
  start_strip(job.before, s, job.state_dim);
  float decay[kMaxSelectiveDim][kStateCols];
  load_decay(job, decay);
  for (int column = 0; column < kStateCols && column < job.n_cols; column += W) {
    int t = 0;
    for (; t + kScanTokens <= job.n_tokens; t += kScanTokens) selective_tokens<kScanTokens>(job, t, s, decay, column);
    for (; t < job.n_tokens; ++t) selective_tokens<1>(job, t, s, decay, column);
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
  float* s = job.after;
  start_strip(job.before, s, job.key_dim);
  F known[kStripVectors], value[kStripVectors], v[kStripVectors], out[kStripVectors];
  read_strip(s, job.a, job.key_dim, known);
  for (int t = 0; t < job.n_tokens; ++t) {
    const float *q = job.q + t * job.q_stride, *keep = job.keep + t * job.keep_stride, *b = job.b + t * job.b_stride,
                *k = job.k + t * job.k_stride, *next_a = job.a + (t + 1) * job.a_stride;
    load_columns(v, job.v + t * job.v_stride, job.n_cols);
    for (int j = 0; j < kStripVectors; ++j) value[j] = known[j];
    const auto element = [&](F old, int i, int j) { return old * keep[i] + value[j] * b[i] + v[j] * k[i]; };
    if (t + 1 < job.n_tokens)
      update_strip<true>(s, job.key_dim, q, next_a, out, known, element);
    else
      update_strip<false>(s, job.key_dim, q, nullptr, out, known, element);
    store_columns(job.y + t * job.y_stride, job.n_cols, out);
  }
}

void keep_factors(float* x, const float* bias, float decay, int64_t n) {
  for (int64_t i = 0; i < n; i += W)
    store_part(x, i, n, exp(softplus(load_part(x, i, n) + load_part(bias, i, n)) * decay));
}

void decay_steps(const StepJob& job) {
  for (int64_t i = 0; i < job.n; i += W) {
    const F full_step = softplus(load_part(job.step, i, job.n) + load_part(job.bias, i, job.n)),
            step = max(all(job.low), min(all(job.high), full_step)), keep = exp(load_part(job.decay, i, job.n) * step);
    store_part(job.step, i, job.n, step);
    store_part(job.keep, i, job.n, keep);
  }
}

}  // namespace

extern const RecurrenceKernels kRecurrence;
const RecurrenceKernels kRecurrence = {.unit_length = unit_length,
                                       .gate = gate,
                                       .scaled_sigmoid = scaled_sigmoid,
                                       .short_conv = short_conv,
                                       .delta_rule = delta_rule,
                                       .ssm_scan = ssm_scan,
                                       .selective_scan = selective_scan,
                                       .rg_lru = rg_lru,
                                       .rank_one_rule = rank_one_rule,
                                       .keep_factors = keep_factors,
                                       .decay_steps = decay_steps,
                                       .mix_tokens = mix_tokens,
                                       .wkv7_inputs = wkv7_inputs,
                                       .wkv7_outputs = wkv7_outputs};

}  // namespace ingot::cpu::INGOT_ISA

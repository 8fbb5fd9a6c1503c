// The kernels of recurrent layers and of gates, a table for each instruction set beside that of kernels.h.
//
// This header is compiled into kernel sources, so it has no inline symbols with external linkage (see kernels/simd.h).
#pragma once
#include <stdint.h>

namespace ingot::cpu {

constexpr int kStateCols = 32;      // columns of a strip of a head's matrix: with 128 rows 16 KiB
constexpr int kConvChannels = 64;   // of a part of a convolution
constexpr int kMaxConvWidth = 16;

// Some channels of a sequence: x = silu(convolution), in place.
struct ConvJob {
  float* x;                    // of the first token
  int64_t x_stride;
  const float* weight;         // [n_channels, width]
  int width;
  const float* before;         // [width - 1] inputs, the oldest first; null: there are none
  float* after;                // the same for the next step; may be before
  int64_t state_stride;
  int n_tokens;
  int n_channels;              // up to kConvChannels
};

// Some columns of a head's matrix through all tokens of a sequence. q and k have length 1 (and q its scale).
struct DeltaJob {
  const float *q, *k, *v;      // of the first token
  int64_t qkv_stride;
  const float *keep, *beta;    // of the first token: factor of the old matrix, share of the correction
  int64_t gate_stride;
  const float* before;         // [key_dim, kStateCols]; null: zeros
  float* after;                // may be before
  float* y;
  int64_t y_stride;
  int n_tokens;
  int key_dim;
  int n_cols;                  // up to kStateCols
};

struct RecurrenceKernels {
  void (*unit_length)(float* x, int64_t n, float factor);  // to length `factor`
  void (*gate)(float* x, const float* gate, int64_t n);    // x *= sigmoid(gate)
  void (*short_conv)(const ConvJob& job);
  void (*delta_rule)(const DeltaJob& job);
};

}  // namespace ingot::cpu

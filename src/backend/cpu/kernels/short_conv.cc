// The kernel of short convolutions along each channel (ShortConvArgs).
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int kConvVectors = W < 16 ? 2 : 4;  // of a pass over the tokens: their taps and inputs stay in registers
constexpr int kPassChannels = kConvVectors * W;
static_assert(kConvChannels % kPassChannels == 0);

// taps[i][c] = weight[c][i] for the channels of a pass; channels behind the last have 0.
template <int width>
INLINE void load_taps(const ConvJob& job, int64_t first, float (&taps)[width][kPassChannels]) {
  const float* weight = job.weight + first * job.width;
  if (width == job.width && first + kPassChannels <= job.n_channels) {
    for (int c = 0; c < kPassChannels; ++c)
      for (int i = 0; i < width; ++i) taps[i][c] = weight[c * width + i];
    return;
  }
  __builtin_memset(taps, 0, sizeof(taps));
  for (int c = 0; c < kPassChannels && first + c < job.n_channels; ++c)
    for (int i = 0; i < job.width; ++i) taps[i][c] = weight[c * job.width + i];
}

// The channels from `first` on, through all tokens. `inputs` are the last ones, the oldest first. A width that is not
// known when this is compiled is at most most_taps.
template <int most_taps, bool is_known>
INLINE void convolve(const ConvJob& job, int64_t first) {
  const int kept = (is_known ? most_taps : job.width) - 1;
  const int64_t n = job.n_channels;
  float taps[most_taps][kPassChannels];
  load_taps(job, first, taps);
  F inputs[most_taps][kConvVectors] = {}, bias[kConvVectors] = {};
  for (int j = 0; j < kConvVectors && first + j * W < n; ++j) {
    if (job.bias != nullptr) bias[j] = load_part(job.bias, first + j * W, n);
    for (int i = 0; i < kept && job.before != nullptr; ++i)
      inputs[i][j] = load_part(job.before + i * job.state_stride, first + j * W, n);
  }
  for (int t = 0; t < job.n_tokens; ++t)
    for (int j = 0; j < kConvVectors; ++j) {
      const int64_t at = first + j * W;
      if (at >= n) break;
      F now = load_part(job.x + t * job.x_stride, at, n), sum = bias[j];
      if (job.in_gate != nullptr) now *= load_part(job.in_gate + t * job.in_stride, at, n);
#pragma GCC unroll 4
      for (int i = 0; i < kept; ++i) {
        sum += inputs[i][j] * load(taps[i] + j * W);
        inputs[i][j] = i + 1 < kept ? inputs[i + 1][j] : now;
      }
      sum += now * load(taps[kept] + j * W);
      if (job.silu) sum *= sigmoid(sum);
      if (job.out_gate != nullptr) sum *= load_part(job.out_gate + t * job.out_stride, at, n);
      store_part(job.x + t * job.x_stride, at, n, sum);
    }
  for (int j = 0; j < kConvVectors && first + j * W < n; ++j)
    for (int i = 0; i < kept; ++i) store_part(job.after + i * job.state_stride, first + j * W, n, inputs[i][j]);
}

}  // namespace

// If `before` and `after` are the same buffer, the old contents are read before the new contents are written.
void short_conv(const ConvJob& job) {
  for (int64_t first = 0; first < job.n_channels; first += kPassChannels) {
    if (job.width == 4)
      convolve<4, true>(job, first);
    else if (job.width == 3)
      convolve<3, true>(job, first);
    else
      convolve<kMaxConvWidth, false>(job, first);
  }
}

}  // namespace ingot::cpu::INGOT_ISA

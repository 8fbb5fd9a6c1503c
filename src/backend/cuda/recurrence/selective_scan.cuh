// Shared by the two versions of Mamba's scan: selective_scan.cu, token by token, and selective_parts.cu, for the parts
// of long sequences at once.
#pragma once
#include "backend/cuda/recurrence/recurrence.cuh"

namespace ingot::cuda::recurrence {

inline constexpr float kLog2E = 1.44269504088896341f;

// y has the type of activations. In f32, it may be x.
struct Selective {
  void* y;
  const float* x;
  float* dt;                     // selective_parts.cu stores the steps here
  const float *gate, *b, *c;     // gate may be null
  const float *decay, *dt_bias, *skip;
  int64_t y_stride, x_stride, dt_stride, gate_stride, b_stride, c_stride, decay_stride;
  bool writes_halves;            // to y
  int n_channels, state_dim;
  int fewest_in_parts;  // sequences with at least this many tokens are cut
  DeviceStates states;
  DeviceBatch batch;

  // Writes an output of the scan, with its gate; by: the gate's value
  __device__ __forceinline__ void write(int64_t token, int channel, float v, float by) const {
    if (gate != nullptr) v *= by * sigmoid(by);
    const int64_t at = token * y_stride + channel;
    if (writes_halves)
      static_cast<half*>(y)[at] = from_float<half>(v);
    else
      static_cast<float*>(y)[at] = v;
  }
};

// selective_parts.cu: for all sequences of at least kFewestInParts tokens. parts: selective_part_floats() floats.
void scan_parts(const Selective& p, float* parts, int n_seqs, int most_tokens, Device& device);

}  // namespace ingot::cuda::recurrence

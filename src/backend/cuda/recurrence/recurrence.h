// Kernels of recurrent layers (recurrence.cu, delta_chunks.cu, delta_walk.cu). States are f32; who reads and writes
// which slot is in the batch.
#pragma once
#include <driver_types.h>

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {

inline constexpr int kMostConvWidth = 16, kMostKeyDim = 256;

// A layer of all slots: inputs of the convolution, [conv_width - 1, n_channels], then for each head its matrix the
// other way round, [value_dim, key_dim], for it is used column by column.
struct DeviceStates {
  float* data = nullptr;    // slot 0
  int64_t slot_floats = 0;  // from one slot to the next
};

void gate_rows(const Tensor& x, const Tensor& gate, Device& device);  // x *= sigmoid(gate)
// Sequences of many tokens go through in parts, if there is room for conv_edge_floats() of them.
int64_t conv_edge_floats(int64_t n_channels, int width, int n_tokens, int n_seqs);
void short_conv(const Tensor& x, const Tensor& weight, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                int most_tokens, float* edges, Device& device);
// `chunks`: sequences of many tokens may go through 64 tokens at once, which is not the same to the last bit. The
// batch's sequences have fewest_tokens to most_tokens.
void delta_rule(const DeltaRuleArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                int fewest_tokens, int most_tokens, bool chunks, Device& device);

}  // namespace ingot::cuda

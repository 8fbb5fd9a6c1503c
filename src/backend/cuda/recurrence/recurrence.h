// Kernels of recurrent layers (recurrence.cu, delta_chunks.cu, delta_walk.cu, ssm_scan.cu, ssm_chunks.cu,
// selective_scan.cu, selective_parts.cu, rank_one.cu, rank_one_chunks.cu, rwkv7.cu, wkv7_token.cu,
// rg_lru.cu). States are f32. The batch contains the slots to read and write.
#pragma once
#include <driver_types.h>

#include <cstdint>

#include "backend/cuda/kernels.h"
#include "backend/ops.h"

namespace ingot::cuda {

inline constexpr int kMaxConvWidth = 16, kMaxKeyDim = 256, kMaxStateDim = 256, kMaxSelectiveDim = 64;

// One buffer in all slots: the inputs of a convolution, [conv_width - 1, n_channels], or each head's matrix, transposed
// to [value_dim, key_dim], because the kernels use the matrix column by column.
struct DeviceStates {
  float* data = nullptr;    // slot 0
  int64_t slot_floats = 0;  // from one slot to the next
};

// x *= sigmoid(gate), both [n, dim].
void gate_rows(const Tensor& x, const Tensor& gate, Device& device);
// Sequences of many tokens are cut into parts if there is room for conv_edge_floats() floats.
int64_t conv_edge_floats(int64_t n_channels, int width, int n_tokens, int n_seqs);
void short_conv(const ShortConvArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                int most_tokens, float* edges, Device& device);
// With `chunks`, sequences of many tokens may be processed 64 tokens at a time, and the result then differs in the last
// bits. The batch's sequences have fewest_tokens to most_tokens tokens.
void delta_rule(const DeltaRuleArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                int fewest_tokens, int most_tokens, bool chunks, Device& device);
// The same for Mamba-2. With `parts`, which has room for ssm_part_floats() floats unless that is 0, the chunks of few
// long sequences are processed in parts at once.
int64_t ssm_part_floats(const Device& device, const SsmScanArgs& args, int n_tokens, int n_seqs, int most_tokens);
void ssm_scan(const SsmScanArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
              int fewest_tokens, int most_tokens, bool chunks, float* parts, Device& device);
// With `parts`, which has room for rg_lru_part_floats() floats unless that is 0, long sequences are cut into parts, and
// the result then differs in the last bits.
int64_t rg_lru_part_floats(int64_t n_channels, int n_tokens, int n_seqs, int most_tokens);
void rg_lru(const RgLruArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, int most_tokens,
            float* parts, Device& device);
void kda_inputs(const KdaInputsArgs& args, Device& device);
void rank_one_rule(const RankOneRuleArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                   int most_tokens, bool chunks, Device& device);
void mix_tokens(const MixTokensArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_tokens,
                Device& device);
void wkv7_inputs(const Wkv7InputsArgs& args, Device& device);
// out: instead of y, as y; f32 or halves
void wkv7_outputs(const Wkv7OutputsArgs& args, const Tensor& out, Device& device);
// wkv7_token.cu: for sequences of one token.
bool can_step_wkv7(const Wkv7Args& args, const DeviceStates& states);
void step_wkv7(const Wkv7Args& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, Device& device);
// With `parts`, which has room for selective_part_floats() floats, sequences of at least kFewestInParts tokens are cut
// into parts, and the result then differs in the last bits.
inline constexpr int kFewestInParts = 256, kMaxPartState = 16;
int64_t selective_part_floats(int64_t n_channels, int n_tokens, int n_seqs);
void selective_scan(const SelectiveScanArgs& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                    int fewest_tokens, int most_tokens, float* parts, Device& device);

}  // namespace ingot::cuda

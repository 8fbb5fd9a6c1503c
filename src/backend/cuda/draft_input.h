// The input of a draft head for multi-token prediction, in one kernel.
#pragma once
#include "backend/blocks/draft_input.h"
#include "backend/cuda/cuda_device.h"

namespace ingot::cuda {

// The pair of a DraftInputBlock, f16 [n, 2 * dim], from the tokens of the batch, [n] on the device, and from hidden
// states, f32 [n, dim].
bool can_draft_pair(const DraftInputBlock& b, const Tensor& pair, const Tensor& hidden);
void draft_pair(const DraftInputBlock& b, const Tensor& pair, const Tensor& hidden, const int32_t* tokens,
                Device& device);

}  // namespace ingot::cuda

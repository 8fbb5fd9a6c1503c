// The recurrent verbs of RefBackend, token by token as the formulas have them, sums in double.
#pragma once
#include <vector>

#include "backend/backend.h"

namespace ingot {

// Slots of [layers][conv_width - 1 inputs of n_channels, the oldest first; n_heads matrices [key_dim, value_dim]].
class RefStates : public StateCache {
 public:
  explicit RefStates(const StateShape& s)
      : StateCache(s), layer_floats(s.conv_floats() + s.n_heads * s.head_floats()),
        data(static_cast<size_t>(s.n_slots) * s.n_layers * layer_floats) {}

  float* inputs(int slot, int layer) {
    CHECK(slot >= 0 && slot < shape.n_slots && layer >= 0 && layer < shape.n_layers);
    return &data[(int64_t{slot} * shape.n_layers + layer) * layer_floats];
  }
  float* matrix(int slot, int layer, int head) { return inputs(slot, layer) + shape.conv_floats() + head * shape.head_floats(); }

  const int64_t layer_floats;
  std::vector<float> data;
};

void ref_short_conv(const Batch& batch, Tensor x, Tensor weight, RefStates& states, int layer);
void ref_delta_rule(const Batch& batch, const DeltaRuleArgs& args);

}  // namespace ingot

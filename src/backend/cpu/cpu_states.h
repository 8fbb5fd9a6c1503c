// CpuStates. A slot holds, for each layer, the inputs of the convolution, [conv_width - 1, n_channels], and each head's
// matrix in strips of kStateCols columns: [strips, key_dim, kStateCols], with the last strip padded. The delta rule
// handles each column of a matrix separately. So a strip is a task, and stays in the first-level cache for any number
// of tokens.
#pragma once
#include "backend/cpu/memory.h"
#include "backend/cpu/recurrence_kernels.h"
#include "backend/state.h"

namespace ingot::cpu {

class CpuStates : public StateCache {
 public:
  explicit CpuStates(const StateShape& s)
      : StateCache(s),
        n_strips(n_strips_of(s)),
        strip_floats(int64_t{s.key_dim} * kStateCols),
        layer_floats(layer_floats_of(s)),
        memory(bytes_of(s)) {}

  static size_t bytes_of(const StateShape& s) {
    return static_cast<size_t>(s.n_slots) * s.n_layers * layer_floats_of(s) * sizeof(float);
  }

  float* inputs(int slot, int layer) const {
    CHECK(slot >= 0 && slot < shape.n_slots && layer >= 0 && layer < shape.n_layers);
    return memory.f32() + (int64_t{slot} * shape.n_layers + layer) * layer_floats;
  }
  float* strip(int slot, int layer, int64_t head, int64_t strip) const {
    return inputs(slot, layer) + shape.conv_floats() + (head * n_strips + strip) * strip_floats;
  }

  const int64_t n_strips, strip_floats, layer_floats;
  const Memory memory;

 private:
  static int64_t n_strips_of(const StateShape& s) { return (s.value_dim + kStateCols - 1) / kStateCols; }
  static int64_t layer_floats_of(const StateShape& s) {
    return s.conv_floats() + s.n_heads * n_strips_of(s) * s.key_dim * kStateCols;
  }
};

}  // namespace ingot::cpu

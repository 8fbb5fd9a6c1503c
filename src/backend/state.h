// The state cache: the states that recurrent layers store for a sequence in place of keys and values. Its size does not
// depend on the length of the sequence. A slot holds the state of one sequence after one of its tokens; the Batch names
// the slots that a step reads and writes. Only the backend that made the cache knows the layout of a slot.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace ingot {

struct StateShape {
  int n_slots = 0;
  int n_layers = 0;    // recurrent layers only
  int n_channels = 0;  // of the short convolution
  int conv_width = 0;  // inputs of a channel in one convolution, the token's own included; a slot holds all but one
  int n_heads = 0;     // each has a matrix [key_dim, value_dim]
  int key_dim = 0;
  int value_dim = 0;

  explicit operator bool() const { return n_layers > 0; }
  int64_t conv_floats() const { return int64_t{conv_width - 1} * n_channels; }  // of one layer in one slot
  int64_t head_floats() const { return int64_t{key_dim} * value_dim; }
  size_t slot_bytes() const {
    return n_layers > 0 ? n_layers * static_cast<size_t>(conv_floats() + n_heads * head_floats()) * sizeof(float) : 0;
  }
  size_t bytes() const { return n_slots * slot_bytes(); }
};

class StateCache {
 public:
  explicit StateCache(const StateShape& state_shape) : shape(state_shape) {}
  virtual ~StateCache() = default;
  const StateShape shape;
};

}  // namespace ingot

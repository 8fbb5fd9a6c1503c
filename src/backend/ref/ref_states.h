// RefStates: states in host memory.
#pragma once
#include <vector>

#include "backend/state.h"

namespace ingot {

// The buffers of a slot lie one after another.
class RefStates : public StateCache {
 public:
  explicit RefStates(const StateShape& s) : StateCache(s), data(s.bytes() / sizeof(float)) {
    int64_t at = 0;
    for (const StateBuffer& buffer : s.buffers) {
      CHECK(buffer.dtype == DType::kF32);
      first_.push_back(at), at += buffer.size();
    }
    slot_floats_ = at;
  }
  float* matrix(int slot, int buffer_index, int64_t i = 0) {
    CHECK(slot >= 0 && slot < shape.n_slots);
    const StateBuffer& b = buffer(buffer_index);
    const int64_t first = slot * slot_floats_ + first_[static_cast<size_t>(buffer_index)];
    return &data[static_cast<size_t>(first + i * b.rows * b.cols)];
  }
  std::vector<float> data;

 private:
  std::vector<int64_t> first_;
  int64_t slot_floats_ = 0;
};

}  // namespace ingot

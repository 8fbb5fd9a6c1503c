// CpuStates. The buffers of a slot lie one after another. A matrix whose columns are handled one by one is stored in
// strips of kStateCols columns: [strips, rows, kStateCols], with the last strip padded. So a strip is a task of an op,
// and stays in the first-level cache for any number of tokens.
#pragma once
#include <vector>

#include "backend/cpu/memory.h"
#include "backend/cpu/recurrence_kernels.h"
#include "backend/state.h"

namespace ingot::cpu {

class CpuStates : public StateCache {
 public:
  explicit CpuStates(const StateShape& s) : StateCache(s), memory(bytes_of(s)) {
    int64_t at = 0;
    for (const StateBuffer& buffer : s.buffers) {
      CHECK(buffer.dtype == DType::kF32);
      first_.push_back(at), at += floats_of(buffer);
    }
    slot_floats_ = at;
  }

  static size_t bytes_of(const StateShape& s) {
    int64_t floats = 0;
    for (const StateBuffer& buffer : s.buffers) floats += floats_of(buffer);
    return static_cast<size_t>(s.n_slots * floats) * sizeof(float);
  }
  static int64_t n_strips(const StateBuffer& buffer) { return (buffer.cols + kStateCols - 1) / kStateCols; }

  float* data(int slot, int buffer_index) const {
    CHECK(slot >= 0 && slot < shape.n_slots && buffer_index < static_cast<int>(first_.size()));
    return memory.f32() + slot * slot_floats_ + first_[static_cast<size_t>(buffer_index)];
  }
  float* strip(int slot, int buffer_index, int64_t matrix, int64_t strip) const {
    const StateBuffer& b = buffer(buffer_index);
    return data(slot, buffer_index) + (matrix * n_strips(b) + strip) * b.rows * kStateCols;
  }

  const Memory memory;

 private:
  static int64_t floats_of(const StateBuffer& b) {
    return b.by_column ? b.count * n_strips(b) * b.rows * kStateCols : b.size();
  }

  std::vector<int64_t> first_;  // of each buffer in a slot
  int64_t slot_floats_ = 0;
};

}  // namespace ingot::cpu

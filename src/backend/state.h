// The state cache: the states that layers store for a sequence in place of keys and values. Their size does not depend
// on the length of the sequence. A slot holds the states of one sequence after one of its tokens; the Batch names the
// slots that a step reads and writes. A slot is a list of buffers, each of one part of a layer, which alone knows what
// they hold. Snapshots, memory plans and the engine know only slots and sizes. Only the backend that made the cache
// knows where a buffer's numbers lie.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/tensor.h"
#include "base/check.h"

namespace ingot {

// `count` matrices [rows, cols].
struct StateBuffer {
  const char* name = "";  // for messages
  DType dtype = DType::kF32;
  int64_t count = 1, rows = 1, cols = 0;
  bool by_column = false;  // ops handle each column of a matrix on its own, so a backend may store columns apart
  int64_t size() const { return count * rows * cols; }
  size_t bytes() const { return static_cast<size_t>(size()) * dtype_bytes(dtype); }
};

struct StateShape {
  int n_slots = 0;
  std::vector<StateBuffer> buffers;  // of a slot, in order

  explicit operator bool() const { return !buffers.empty(); }
  size_t slot_bytes() const {
    size_t n = 0;
    for (const StateBuffer& buffer : buffers) n += buffer.bytes();
    return n;
  }
  size_t bytes() const { return static_cast<size_t>(n_slots) * slot_bytes(); }
};

class StateCache {
 public:
  explicit StateCache(const StateShape& state_shape) : shape(state_shape) {}
  virtual ~StateCache() = default;
  const StateBuffer& buffer(int i) const {
    CHECK(i >= 0 && i < static_cast<int>(shape.buffers.size()));
    return shape.buffers[static_cast<size_t>(i)];
  }
  const StateShape shape;
};

}  // namespace ingot

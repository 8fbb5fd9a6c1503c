// HostPool: host memory from which a backend copies fast (Backend::host_floats), used again and again, because such
// memory takes milliseconds to make. Any thread may call it; the owners of its memory may outlive the pool.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"

namespace ingot {

class HostPool {
 public:
  // max_free: the most floats that the pool keeps for later calls of take(). The backend must outlive the pool.
  HostPool(Backend& backend, size_t max_free) : backend_(backend), free_(std::make_shared<Free>()) {
    free_->max_floats = max_free;
  }

  // n floats, whose values are not defined. Throws MemoryError.
  std::shared_ptr<float[]> take(size_t n);

 private:
  struct Piece {
    std::shared_ptr<float[]> floats;
    size_t n = 0;
  };
  struct Free {
    void put(Piece piece);
    std::mutex mutex;
    std::vector<Piece> pieces;  // the oldest first
    size_t n_floats = 0, max_floats = 0;
  };
  Backend& backend_;
  const std::shared_ptr<Free> free_;
};

}  // namespace ingot

// WeightUpload: copies weights from a file to the device. Threads copy the file's pages into pinned buffers, and the
// device copies the buffers asynchronously. So reading, the bus and repacking work at the same time, and the slowest of
// them sets the loading time.
#pragma once
#include <array>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "base/threads.h"

namespace ingot::cuda {

class WeightUpload {
 public:
  WeightUpload();
  ~WeightUpload();

  // Copies to the device, in the stream's order. On return, all of `from` has been read, but the copy may still be in
  // flight.
  void copy(void* to, const void* from, size_t bytes, Device& device);

  static constexpr size_t kPiece = size_t{16} << 20;

 private:
  struct Piece {
    Memory memory;
    cudaEvent_t copied = nullptr;
  };

  ThreadPool pool_;
  std::array<Piece, 4> pieces_;
  size_t next_ = 0;
};

}  // namespace ingot::cuda

// WeightUpload: what a file has, on its way to the device. Threads copy it from the file's pages into pinned buffers,
// from which the device takes it by itself; so reading, the bus and repacking go on side by side, and the slowest of
// them is the time of loading.
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

  // To the device, in the stream's order. All of `from` has been read when it returns; it has not come yet.
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

// Sums of few numbers over the GPUs of one host, in one kernel that reads the memory of the other GPUs. For such sums,
// NCCL's time is the time of its protocol.
//
// Each block has a place in the memory of its GPU for a slice of the numbers. It copies its slice there, tells the same
// block of every other GPU, waits to be told by each, and adds the slices of all GPUs in the order of the ranks. So all
// GPUs get the same bits. A block counts its turns in device memory, so a launch can be recorded and replayed.
#pragma once
#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/tensor.h"

namespace ingot::cuda {

constexpr int kMaxPeers = 8;
constexpr int kOneShotBlocks = 128;   // fewer than any GPU has multiprocessors: all blocks run at once
constexpr int kOneShotFloats = 4096;  // the longest slice of a block
constexpr int kOneShotTurns =
    2;  // a block's places: for this turn, and for the one before, which others may still read

// What the kernel gets: the places and the flags of all ranks, as this GPU reaches them.
struct OneShotPeers {
  float* places[kMaxPeers] = {};
  uint32_t* flags[kMaxPeers] = {};  // [blocks, ranks] on each GPU: the last turn of a rank's block
  uint32_t* turns = nullptr;        // [blocks] on this GPU
  const int* stop = nullptr;        // in host memory: not 0 when a rank has failed, so that no block waits for it
  int rank = 0, n_ranks = 0;
};

// one_shot.cu: x += the sum of y over all ranks.
void one_shot(const OneShotPeers& peers, const Tensor& x, const Tensor& y, Device& device);

class OneShot {
 public:
  // All ranks call it at the same time. Null if a GPU cannot read the memory of another one.
  static std::unique_ptr<OneShot> connect(Communicator& ranks, Device& device);
  ~OneShot();

  // The sums that are faster here than with NCCL.
  bool takes(const Tensor& y) const;
  // x += the sum of y over all ranks. Both are f32.
  void add_reduced(const Tensor& x, const Tensor& y, Device& device);
  void stop();  // ends the kernels that wait for other ranks; their sums are wrong

 private:
  OneShot() = default;
  Memory memory_, stop_;
  OneShotPeers peers_;
  std::vector<void*> opened_;  // memory of other processes
};

}  // namespace ingot::cuda

// Sums of few numbers over the GPUs of one host, in one kernel that writes to the memory of the other GPUs. For such
// sums, NCCL spends its time on its protocol.
//
// Each block sends a slice of the numbers to the same block of every other GPU. It sends lines of 16 bytes: each half
// is a number and the block's turn. A GPU writes 8 bytes at once, so a number has arrived when its turn has. The block
// then adds the slices of all GPUs in rank order, so all GPUs get the same bits. A block counts its turns in device
// memory, so a launch can be recorded and replayed.
#pragma once
#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/tensor.h"

namespace ingot::cuda {

constexpr int kMaxPeers = 8;
constexpr int kOneShotBlocks = 128;  // so few that all blocks are resident at once
constexpr int kOneShotThreads = 256;
constexpr int kOneShotPass = 4 * kOneShotThreads;  // floats that a block sums at once
// Places of a block: for this turn, and for the previous turn, which this GPU may still read.
constexpr int kOneShotTurns = 2;

// Two numbers, each with the turn in which it was sent.
struct alignas(16) OneShotLine {
  uint64_t first, second;
};

// Parameters of the kernel: the lines of all ranks, as this GPU addresses them.
struct OneShotPeers {
  OneShotLine* lines[kMaxPeers] = {};  // [blocks, turns, ranks that send, lines_each] on each GPU
  uint32_t* turns = nullptr;           // [blocks] on this GPU
  const int* stop = nullptr;           // in host memory: not 0 after a rank has failed; then no block waits
  int lines_each = 0;                  // of a slice: half its numbers
  int rank = 0, n_ranks = 0;
};

// one_shot.cu: x += the sum of y over all ranks.
void one_shot(const OneShotPeers& peers, const Tensor& x, const Tensor& y, Device& device);

class OneShot {
 public:
  // All ranks call connect() at the same time. Returns null if a GPU cannot read the memory of another GPU.
  static std::unique_ptr<OneShot> connect(Communicator& ranks, Device& device);
  ~OneShot();

  // Whether the sum is faster here than with NCCL.
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

// Sums over the GPUs of one host, in one kernel that writes to the memory of the other GPUs. NCCL spends more time on
// its protocol, and needs a second kernel for the addition to the residual stream.
//
// Each block sends a slice of the numbers to the same block of other GPUs, in 16 bits each (peer_numbers.cuh). All GPUs
// add the same numbers in rank order, so all get the same bits. A block counts its turns in device memory, so a launch
// can be recorded and replayed. The kernels differ in how a block knows that numbers have arrived:
//   lines    For few numbers. Every 4 bytes are sent with the block's turn. A GPU writes 8 bytes at once, so the 4
//            bytes have arrived when their turn has.
//   slices   A block sends its slice, and then its turn. This needs half the bytes, but also a fence, which costs about
//            a microsecond. Of n > 2 GPUs, each adds its part of a slice and sends the sums to the others. So each
//            sends 2 (n - 1) / n times its numbers instead of n - 1 times.
//
// If slices are whole rows, a block can also compute the RMS norm of its sums, which the next product reads.
//
// Few words, such as the logits of one token or the tokens of a step, are gathered as lines too.
#pragma once
#include <vector_types.h>

#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/ops.h"
#include "backend/tensor.h"

namespace ingot::cuda {

constexpr int kMaxPeers = 8;
constexpr int kPeerGroup = 8;  // numbers that are encoded together
constexpr int kLineBlocks = 128, kLineThreads = 128;
constexpr int kLineSlice = kPeerGroup * kLineThreads;  // numbers of a slice that is sent as lines
constexpr int kSliceBlocks = 256, kSliceThreads = 256;
constexpr int kMaxSlice = 16384;  // numbers of the longest slice

constexpr int kGatherBlocks = 128, kGatherThreads = 128, kGatherLines = 4;  // lines of a thread
constexpr int kGatherSlice = 2 * kGatherThreads * kGatherLines;             // words of a block

// Places of a block: for this turn, and for the previous turn, which this GPU may still read.
constexpr int kPeerTurns = 2;

// Twice 4 bytes of codes, each with the turn in which they were sent.
struct alignas(16) PeerLine {
  uint64_t first, second;
};

// The memory of a GPU that other GPUs write to.
struct PeerMailbox {
  PeerLine* lines = nullptr;     // [kLineBlocks, turns, ranks that send, kLineThreads, 2]
  uint4* codes = nullptr;        // [kSliceBlocks, turns, 2 kMaxSlice / 8]: slices by sender, or parts and their sums
  uint32_t* arrived = nullptr;   // [kSliceBlocks, turns, 2 steps, ranks that send]: the turn whose codes have arrived
  PeerLine* gathered = nullptr;  // [kGatherBlocks, turns, ranks that send, kGatherThreads * kGatherLines]
};

// Parameters of the kernels.
struct Peers {
  PeerMailbox of[kMaxPeers] = {};    // of all ranks, as this GPU addresses them
  uint32_t* line_turns = nullptr;    // [kLineBlocks] on this GPU
  uint32_t* turns = nullptr;         // [kSliceBlocks] on this GPU
  uint32_t* gather_turns = nullptr;  // [kGatherBlocks] on this GPU
  const int* stop = nullptr;         // in host memory: not 0 after a rank has failed; then no block waits
  int rank = 0, n_ranks = 0;
};

// peer_sums.cu: x [rows, cols] += the sum of y [rows, cols] over all ranks. Both are f32. Then normed [rows, cols] =
// norm(x) in f16, unless norm.weight is empty. norms_sums() must be true for such a norm.
void add_peer_sums(const Peers& peers, const Tensor& x, const Tensor& y, const Tensor& normed, const NormArgs& norm,
                   Device& device);
// Whether the kernel can compute this norm, and is faster than a kernel of the norm.
bool norms_sums(const Tensor& x, const NormArgs& norm, int n_ranks);
// all [n_ranks, n]: the words of each rank. own [n], n up to kGatherBlocks * kGatherSlice.
void gather_peer_words(const Peers& peers, uint32_t* all, const uint32_t* own, int n, Device& device);
// words [n] of rank 0 replace those of the other ranks.
void share_peer_words(const Peers& peers, uint32_t* words, int n, Device& device);

class PeerSums {
 public:
  // All ranks call connect() at the same time. Returns null if a GPU cannot read the memory of another GPU.
  static std::unique_ptr<PeerSums> connect(Communicator& ranks, Device& device);
  ~PeerSums();

  // Whether the kernels support this tensor.
  bool takes(const Tensor& y) const;
  bool norms(const Tensor& x, const NormArgs& norm) const { return norms_sums(x, norm, peers_.n_ranks); }
  // As add_peer_sums().
  void add_reduced(const Tensor& x, const Tensor& y, const Tensor& normed, const NormArgs& norm, Device& device);

  static bool can_gather(int64_t n_words) { return n_words <= kGatherBlocks * kGatherSlice; }
  // all [n_ranks * rows, cols] = the rows of rank 0, of rank 1 ... Both are f32 and contiguous; own: [rows, cols].
  void gather(const Tensor& all, const Tensor& own, Device& device);
  void share(int32_t* words /* [n] of rank 0 replace those of the other ranks */, int64_t n, Device& device);
  void stop();  // ends the kernels that wait for other ranks; their sums are wrong

 private:
  PeerSums() = default;
  Memory memory_, stop_;
  Peers peers_;
  std::vector<void*> opened_;  // memory of other processes
};

}  // namespace ingot::cuda

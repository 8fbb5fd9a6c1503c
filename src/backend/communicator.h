// Communicator: how the ranks of one model speak with each other. A rank computes its share of every layer
// (model/shards.h); the sum of the shares is an all_reduce. All ranks call the same functions in the same order.
//
// Implementations: threads of one process (thread_communicator.h), processes started by MPI (cli/mpi). The data is in
// host memory. GPUs sum in their own memory with NCCL (cuda/nccl.h), and use a communicator to find each other.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace ingot {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // from 0 on; rank 0 leads
  virtual int size() const = 0;

  // Of a step. Each throws DeviceLost, which names the rank, when a rank has failed or does not come in time.
  // Every rank gets the same bits: the ranks' numbers are added in the order of the ranks.
  virtual void all_reduce(float* x /* in, out [n]: the sum over all ranks */, int64_t n) = 0;
  virtual void all_gather(void* all /* out: the bytes of rank 0, of rank 1 ... */, const void* own, size_t n_bytes) = 0;

  // Rank 0 sends a message to all others. They wait for it without a limit of time.
  virtual void send(std::span<const uint8_t> message) = 0;
  virtual std::vector<uint8_t> receive() = 0;

  // While a model is loaded: as all_gather, but waits without a limit of time.
  virtual void exchange(void* all, const void* own, size_t n_bytes) = 0;

  // Ends the calls of all ranks, in which they wait or which they begin later, with this fault.
  virtual void abort(std::exception_ptr fault) = 0;
  // Throws the fault of another rank, if there is one. For ranks that wait for something else than these calls.
  virtual void check() = 0;
  virtual std::chrono::milliseconds limit() const = 0;  // a rank that others have waited for longer has failed
};

// "rank 1 of 4", for messages.
inline std::string rank_name(int rank, int size) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size);
}

}  // namespace ingot

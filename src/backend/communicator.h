// Communicator: how the ranks of one model exchange data. A rank computes its share of every layer
// (model/config/shards.h), and an all_reduce adds the shares. All ranks call the same functions in the same order.
//
// Implementations: threads of one process (thread_communicator.h), processes started by MPI (cli/mpi). The data is in
// host memory. GPUs sum in their own memory with NCCL (cuda/nccl.h), and use a communicator to find each other.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ingot {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // from 0 on; rank 0 leads
  virtual int size() const = 0;

  // For steps. Each throws DeviceLost, which names the rank, if a rank has failed or does not arrive in time. Every
  // rank gets the same bits, because the numbers are added in rank order.
  virtual void all_reduce(float* x /* in, out [n]: the sum over all ranks */, int64_t n) = 0;
  virtual void all_gather(void* all /* out: the bytes of rank 0, of rank 1 ... */, const void* own, size_t n_bytes) = 0;

  // Rank 0 sends a message to all others. They wait for it without a time limit.
  virtual void send(std::span<const uint8_t> message) = 0;
  virtual std::vector<uint8_t> receive() = 0;

  // For loading a model: like all_gather, but without a time limit.
  virtual void exchange(void* all, const void* own, size_t n_bytes) = 0;
  // The communicator among n neighbouring ranks: the first n, the next n ... n divides size().
  virtual std::unique_ptr<Communicator> group(int n) = 0;

  // From one rank to another, in order. Beside the calls above: any thread may use a channel to or from a rank, one
  // thread at a time. take() waits without a time limit, and `message` is as long as the message passed.
  virtual void pass(int to, int channel, std::span<const uint8_t> message) = 0;
  virtual void take(int from, int channel, std::span<uint8_t> message /* out */) = 0;

  // Makes the current and later calls of all ranks throw this fault.
  virtual void abort(std::exception_ptr fault) = 0;
  // Throws the fault of another rank, if there is one. For ranks that wait for something other than these calls.
  virtual void check() = 0;
  virtual std::chrono::milliseconds limit() const = 0;  // a rank has failed if others wait for it longer
};

// "rank 1 of 4", for messages.
inline std::string rank_name(int rank, int size) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size);
}

}  // namespace ingot

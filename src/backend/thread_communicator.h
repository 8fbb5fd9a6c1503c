// Ranks that are threads of one process. They read and write each other's memory.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "backend/communicator.h"

namespace ingot {

class ThreadRanks {
 public:
  // A rank has failed if others wait for it longer than the limit.
  ThreadRanks(int n, std::chrono::milliseconds limit);

  int size() const { return static_cast<int>(places_.size()); }
  // The communicator of one rank, for one thread at a time. It keeps `ranks` alive.
  static std::unique_ptr<Communicator> communicator(std::shared_ptr<ThreadRanks> ranks, int rank);

 private:
  friend class ThreadCommunicator;
  // Waits until all ranks have called meet(). `limited`: no longer than the limit.
  void meet(int rank, bool limited);
  void abort(std::exception_ptr fault);
  void throw_fault();  // with the mutex held
  std::string missing() const;

  using Path = std::tuple<int, int, int>;  // from, to, channel
  void pass(const Path& path, std::span<const uint8_t> message);
  void take(const Path& path, std::span<uint8_t> message);

  struct Place {
    const void* data = nullptr;  // data that other ranks may read between two meetings
    size_t n_bytes = 0;
    bool is_here = false;  // for the meeting that has not ended
  };
  const std::chrono::milliseconds limit_;
  std::vector<Place> places_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int n_here_ = 0;
  std::atomic<uint64_t> n_meetings_{0};
  std::atomic<bool> has_fault_{false};
  std::exception_ptr fault_;
  std::map<Path, std::deque<std::vector<uint8_t>>> passed_;  // not taken yet
};

}  // namespace ingot

// Ranks as MPI processes. Every call starts a non-blocking operation and polls it, so a waiting rank can notice that
// another rank has failed. Twice a second, a thread sends each other rank a heartbeat with the number of collective
// calls that this rank has started. So the error message can name a rank that has died or is behind. Several threads
// call MPI at the same time (MPI_THREAD_MULTIPLE).
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/device_lost.h"
#include "base/thread_start.h"
#include "cli/mpi/mpi_calls.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBeat{500};
constexpr std::chrono::microseconds kBusy{2000};  // a rank that waits for a step yields for this time, then sleeps

void check_mpi(int status, const char* call) {
  if (status != MPI_SUCCESS) throw DeviceLost("MPI: {} failed with error {}", call, status);
}

// The heartbeat message.
struct Beat {
  int64_t n_calls = 0;        // begun among all ranks
  int64_t n_group_calls = 0;  // begun among the rank's group
  int64_t is_leaving = 0;
};

// Sends and receives heartbeats; ends all ranks if a rank stays silent.
class Pulse {
 public:
  Pulse(MPI_Comm comm, int rank, int size, milliseconds limit)
      : comm_(comm),
        rank_(rank),
        size_(size),
        limit_(limit),
        last_(size, Clock::now()),
        beats_(size),
        sent_(size),
        requests_(size, MPI_REQUEST_NULL) {
    thread_ = start_thread("the pulse of a rank", [&] { return std::thread([this] { run(); }); });
  }
  ~Pulse() {
    stop_ = true;
    thread_.join();
  }

  std::atomic<int64_t> n_calls{0}, n_group_calls{0};

  // The other rank of [first, first + n) that has started the fewest calls. `calls`: which ones count.
  int slowest(int first, int n, int64_t Beat::*calls) {
    const std::lock_guard lock(mutex_);
    int slowest = rank_ == first ? first + n - 1 : first;
    for (int r = first; r < first + n; ++r)
      if (r != rank_ && beats_[r].*calls < beats_[slowest].*calls) slowest = r;
    return slowest;
  }

 private:
  void run() {
    while (!stop_) {
      tell(false);
      for (const auto next = Clock::now() + kBeat; Clock::now() < next && !stop_;) {
        listen();
        std::this_thread::sleep_for(milliseconds(20));
      }
      look();
    }
    // No message may be in flight when MPI ends, so each rank's last heartbeat says that the rank is leaving.
    const auto end = Clock::now() + milliseconds(2000);
    const auto has_left = [](const Beat& beat) { return beat.is_leaving != 0; };
    while (Clock::now() < end && (std::ranges::count_if(beats_, has_left) < size_ - 1 ||
                                  std::ranges::count_if(sent_, has_left) < size_ - 1)) {
      tell(true);
      listen();
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  // Skips a rank that has not received the previous heartbeat yet.
  void tell(bool is_leaving) {
    for (int r = 0; r < size_; ++r) {
      int done = 1;
      if (r == rank_ || sent_[r].is_leaving) continue;
      if (requests_[r] != MPI_REQUEST_NULL) MPI_Test(&requests_[r], &done, MPI_STATUS_IGNORE);
      if (!done) continue;
      sent_[r] = {n_calls.load(), n_group_calls.load(), is_leaving ? 1 : 0};
      MPI_Isend(&sent_[r], sizeof(Beat), MPI_BYTE, r, 0, comm_, &requests_[r]);
    }
  }

  void listen() {
    for (;;) {
      int has = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &has, &status);
      if (!has) return;
      Beat beat;
      MPI_Recv(&beat, sizeof(beat), MPI_BYTE, status.MPI_SOURCE, 0, comm_, MPI_STATUS_IGNORE);
      const std::lock_guard lock(mutex_);
      last_[status.MPI_SOURCE] = Clock::now();
      beats_[status.MPI_SOURCE] = beat;
    }
  }

  // If this process itself was stopped for a while, receives heartbeats again before judging the other ranks.
  void look() {
    listen();
    const auto now = Clock::now();
    const bool was_stopped = now - last_look_ > limit_ / 2;
    last_look_ = now;
    for (int r = 0; r < size_ && !was_stopped; ++r) {
      if (r == rank_ || beats_[r].is_leaving || now - last_[r] < limit_) continue;
      std::fprintf(stderr, "ingot: %s has sent no message for %lld s: it has ended or hangs, so all ranks end\n",
                   rank_name(r, size_).c_str(),
                   static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(limit_).count()));
      std::fflush(stderr);
      MPI_Abort(MPI_COMM_WORLD, kExitLostDevice);
    }
  }

  const MPI_Comm comm_;
  const int rank_, size_;
  const milliseconds limit_;
  std::mutex mutex_;
  std::vector<Clock::time_point> last_;
  std::vector<Beat> beats_, sent_;
  std::vector<MPI_Request> requests_;
  Clock::time_point last_look_ = Clock::now();
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The fault of this process. All its calls throw the fault from then on.
class Fault {
 public:
  void set(std::exception_ptr fault) {
    const std::lock_guard lock(mutex_);
    if (!fault_) fault_ = std::move(fault), is_set_ = true;
  }
  void check() {
    if (!is_set_) return;
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(fault_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr fault_;
  std::atomic<bool> is_set_{false};
};

// What the communicators of a process share.
struct Process {
  Process(MPI_Comm pulse_comm, int rank, int n_ranks, milliseconds time_limit)
      : size(n_ranks), limit(time_limit), pulse(std::in_place, pulse_comm, rank, n_ranks, time_limit) {}
  const int size;
  const milliseconds limit;
  Fault fault;
  std::optional<Pulse> pulse;
};

// Among all ranks of the process's communicator, or among a group of them.
class MpiCommunicator final : public Communicator {
 public:
  // first: the rank, among all, of this communicator's rank 0.
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<Process> process, int first)
      : comm_(comm), process_(std::move(process)), first_(first) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  milliseconds limit() const override { return process_->limit; }

  void all_reduce(float* x, int64_t n) override {
    constexpr int64_t kPiece = 1 << 28;
    for (int64_t first = 0; first < n; first += kPiece)
      collect(true, "MPI_Iallreduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, x + first, static_cast<int>(std::min(kPiece, n - first)), MPI_FLOAT,
                              MPI_SUM, comm_, request);
      });
  }

  void all_gather(void* all, const void* own, size_t n_bytes) override { gather(all, own, n_bytes, true); }
  void exchange(void* all, const void* own, size_t n_bytes) override { gather(all, own, n_bytes, false); }

  std::unique_ptr<Communicator> group(int n) override {
    MPI_Comm comm;
    check_mpi(MPI_Comm_split(comm_, rank_ / n, rank_, &comm), "MPI_Comm_split");
    return std::make_unique<MpiCommunicator>(comm, process_, first_ + rank_ / n * n);
  }

  void send(std::span<const uint8_t> message) override {
    int64_t n = static_cast<int64_t>(message.size());
    broadcast(&n, sizeof(n), true);
    if (n > 0) broadcast(const_cast<uint8_t*>(message.data()), static_cast<size_t>(n), true);
  }

  std::vector<uint8_t> receive() override {
    int64_t n = 0;
    broadcast(&n, sizeof(n), false);
    std::vector<uint8_t> message(static_cast<size_t>(n));
    if (n > 0) broadcast(message.data(), message.size(), true);
    return message;
  }

  void pass(int to, int channel, std::span<const uint8_t> message) override {
    for_each_piece(message, [&](std::span<const uint8_t> piece) {
      finish(false, "MPI_Isend", [&](MPI_Request* request) {
        return MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, channel, comm_, request);
      });
    });
  }

  void take(int from, int channel, std::span<uint8_t> message) override {
    for_each_piece(message, [&](std::span<uint8_t> piece) {
      finish(false, "MPI_Irecv", [&](MPI_Request* request) {
        return MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, channel, comm_, request);
      });
    });
  }

  // The caller ends this process with its error (end_processes), which ends the other processes.
  void abort(std::exception_ptr fault) override { process_->fault.set(std::move(fault)); }
  void check() override { process_->fault.check(); }

  void leave() { process_->pulse.reset(); }

 private:
  template <class T, class F>
  static void for_each_piece(std::span<T> message, F&& call) {
    constexpr size_t kPiece = 1 << 30;
    for (size_t first = 0; first < message.size(); first += kPiece)
      call(message.subspan(first, std::min(kPiece, message.size() - first)));
  }

  void broadcast(void* data, size_t n_bytes, bool limited) {
    CHECK_LT(n_bytes, size_t{1} << 31);
    collect(limited, "MPI_Ibcast", [&](MPI_Request* request) {
      return MPI_Ibcast(data, static_cast<int>(n_bytes), MPI_BYTE, 0, comm_, request);
    });
  }

  void gather(void* all, const void* own, size_t n_bytes, bool limited) {
    CHECK_LT(n_bytes, size_t{1} << 31);
    const int n = static_cast<int>(n_bytes);
    collect(limited, "MPI_Iallgather",
            [&](MPI_Request* request) { return MPI_Iallgather(own, n, MPI_BYTE, all, n, MPI_BYTE, comm_, request); });
  }

  bool is_group() const { return size_ < process_->size; }

  template <class Start>
  void collect(bool limited, const char* call, Start&& start) {
    ++(is_group() ? process_->pulse->n_group_calls : process_->pulse->n_calls);
    finish(limited, call, start);
  }

  template <class Start>
  void finish(bool limited, const char* call, Start&& start) {
    check();
    MPI_Request request;
    check_mpi(start(&request), call);
    const auto begun = Clock::now();
    for (int i = 1;; ++i) {
      int done = 0;
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
      if (done) return;
      if (i % 64 != 0) continue;
      check();
      const auto waited = Clock::now() - begun;
      if (limited && waited > limit()) throw_late();
      waited < kBusy ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  [[noreturn]] void throw_late() {
    const int slowest = process_->pulse->slowest(first_, size_, is_group() ? &Beat::n_group_calls : &Beat::n_calls);
    throw DeviceLost("{} has not answered for {} s: it hangs, so all ranks end", rank_name(slowest, process_->size),
                     std::chrono::duration<double>(limit()).count());
  }

  const MPI_Comm comm_;
  const std::shared_ptr<Process> process_;
  const int first_;
  int rank_ = 0, size_ = 1;
};

// Two copies of the communicator of all processes, so that heartbeats and other messages do not meet.
std::shared_ptr<Communicator> connect_all(milliseconds limit) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm comm, pulse_comm;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &pulse_comm), "MPI_Comm_dup");
  return std::make_shared<MpiCommunicator>(comm, std::make_shared<Process>(pulse_comm, rank, size, limit), 0);
}

Processes join(milliseconds limit) {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  Processes processes;
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) {
    MPI_Finalize();
    return processes;
  }
  if (provided < MPI_THREAD_MULTIPLE)
    throw Error("this MPI does not support MPI_THREAD_MULTIPLE: install an MPI that does");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &processes.local_rank);
  MPI_Comm_size(host, &processes.n_local);
  MPI_Comm_free(&host);
  processes.ranks = connect_all(limit);
  return processes;
}

void leave(Processes& processes) {
  static_cast<MpiCommunicator&>(*processes.ranks).leave();
  MPI_Finalize();
}

void abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

std::string place() {
  char host[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(host, &length);
  return fmt::format("host {}, process {}", host, getpid());
}

}  // namespace
}  // namespace ingot

const ingot::MpiCalls* ingot_mpi_calls() {
  static constexpr ingot::MpiCalls calls = {ingot::join, ingot::leave, ingot::abort, ingot::place};
  return &calls;
}

#include "base/thread_start.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/control_group.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"

namespace ingot {
namespace {

// The workers wait here until start_workers knows how many workers to keep. Workers from n_kept on end at once.
struct Gate {
  static constexpr uint32_t kClosed = UINT32_MAX;
  WaitWord n_kept{kClosed};

  void open(int n) {
    n_kept = static_cast<uint32_t>(n);
    wake_all(n_kept);
  }
};

}  // namespace

std::string thread_limits() {
  const std::string pids = read_control_group().pids;
  return process_limit() + "; " + (pids.empty() ? "pids.max of the control group is not set" : pids);
}

void throw_thread_error(std::string_view name, const std::system_error& fault) {
  throw Error("{} could not be started: {} ({}); raise the limit or end other processes of this user", name,
              fault.code().message(), thread_limits());
}

std::thread start_std_thread(std::function<void()> body) { return std::thread(std::move(body)); }

std::vector<std::thread> start_workers(int n, std::string_view name, const std::function<void(int)>& body,
                                       const ThreadStarter& start) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(std::max(n, 0)));
  const auto gate = std::make_shared<Gate>();
  std::error_code fault;
  try {
    for (int i = 0; i < n; ++i) {
      threads.push_back(start([gate, body, i] {
        while (gate->n_kept == Gate::kClosed) wait_while(gate->n_kept, Gate::kClosed);
        if (static_cast<uint32_t>(i) < gate->n_kept) body(i);
      }));
    }
  } catch (const std::system_error& error) {
    fault = error.code();
  } catch (const std::exception&) {  // no memory
    fault = std::make_error_code(std::errc::not_enough_memory);
  }
  const int n_started = static_cast<int>(threads.size());
  if (n_started == n) {
    gate->open(n);
    return threads;
  }
  if (n_started == 0) {
    throw Error("{}: none of {} threads could be started: {} ({}); raise the limit or ask for fewer threads", name, n,
                fault.message(), thread_limits());
  }
  const int n_kept = std::max(1, n_started - 1);
  gate->open(n_kept);
  for (int i = n_kept; i < n_started; ++i) threads[static_cast<size_t>(i)].join();
  threads.resize(static_cast<size_t>(n_kept));
  // Loading may make a pool for each matrix: do not repeat the last warning.
  static std::atomic<size_t> said{0};
  const size_t line =
      std::hash<std::string_view>{}(name) ^ (static_cast<size_t>(n) << 32 | static_cast<size_t>(n_started));
  if (said.exchange(line) == line) return threads;
  try {
    log_warn("{}: thread {} of {} could not be started: {} ({}); continuing with {} threads", name, n_started + 1, n,
             fault.message(), thread_limits(), n_kept);
  } catch (const std::exception&) {  // no memory for the message: the threads matter more
  }
  return threads;
}

}  // namespace ingot

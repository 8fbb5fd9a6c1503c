// Starting threads where the system may have none left (a limit of processes, of a control group, of memory).
// std::thread then throws, and threads that run already end the program when nobody joins them. Whoever starts threads
// does it through these.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace ingot {

// The limits on threads that hold here, for messages: "RLIMIT_NPROC is 4; pids.max of the control group is 100, 98 are
// taken".
std::string thread_limits();

[[noreturn]] void throw_thread_error(std::string_view name, const std::system_error& fault);

// Returns what start() does, which starts a thread. Throws Error with the thread's name and the limits when the system
// refuses.
template <class F>
auto start_thread(std::string_view name, F&& start) {
  try {
    return start();
  } catch (const std::system_error& fault) {
    throw_thread_error(name, fault);
  }
}

// How a thread is started. Tests give one that fails.
using ThreadStarter = std::function<std::thread(std::function<void()> body)>;
std::thread start_std_thread(std::function<void()> body);

// Starts n threads that run body(0) ... body(n - 1), or fewer where the system refuses: then it warns, naming the
// thread that did not start and the limits, and lets the last one go again, for the program needs threads for other
// things too. Throws Error when not even one starts. No body runs before all threads are there, and nothing is thrown
// after one runs.
std::vector<std::thread> start_workers(int n, std::string_view name, const std::function<void(int)>& body,
                                       const ThreadStarter& start = start_std_thread);

}  // namespace ingot

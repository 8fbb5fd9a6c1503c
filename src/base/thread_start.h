// Starts threads where the system may refuse (the limit on processes, the control group's limit, memory). std::thread
// then throws, and destroying a running std::thread without a join ends the program. All code starts threads through
// these functions.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace ingot {

// The limits on threads of this process, for messages: "RLIMIT_NPROC is 4; pids.max of the control group is 100, 98 are
// taken".
std::string thread_limits();

[[noreturn]] void throw_thread_error(std::string_view name, const std::system_error& fault);

// Calls start(), which starts a thread, and returns its result. Throws Error with the thread's name and the limits when
// the system refuses.
template <class F>
auto start_thread(std::string_view name, F&& start) {
  try {
    return start();
  } catch (const std::system_error& fault) {
    throw_thread_error(name, fault);
  }
}

// How a thread is started. Tests pass a starter that fails.
using ThreadStarter = std::function<std::thread(std::function<void()> body)>;
std::thread start_std_thread(std::function<void()> body);

// Starts n threads that run body(0) ... body(n - 1), or fewer where the system refuses. In that case the function logs
// a warning with the limits and ends the last thread that did start, because the program needs threads for other things
// too. Throws Error when no thread starts. No body runs before all threads have started, and the function does not
// throw once a body runs.
std::vector<std::thread> start_workers(int n, std::string_view name, const std::function<void(int)>& body,
                                       const ThreadStarter& start = start_std_thread);

}  // namespace ingot

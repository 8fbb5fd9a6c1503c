// The terminal: progress bars on one, nothing of that when piped; and Ctrl-C, which stops the work first and the
// program second.
#pragma once
#include <signal.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace ingot {

bool stdout_is_terminal();
bool stderr_is_terminal();
// For standard error: dimmed where that is a terminal and NO_COLOR is not set
std::string faint(const std::string& text);

// From now on lines of the log go to standard error: "ingot: warning: ..."
void log_to_stderr();

// A bar on standard error with rate and time left, redrawn at most ten times a second, wiped when done. Silent unless
// standard error is a terminal, and for work that takes less than a third of a second.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar() { wipe(); }
  // kept_bytes of what is done were done before the bar began: they count for the share, not for the rate.
  void update(size_t done_bytes, size_t total_bytes, size_t kept_bytes = 0);
  void wipe();

 private:
  using Clock = std::chrono::steady_clock;
  const std::string label_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  bool visible_ = false;
};

// While one lives, Ctrl-C sets interrupted() instead of ending the program; a second Ctrl-C ends it at once with exit
// code 130. They nest.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  static bool interrupted();
  static void clear();

 private:
  struct sigaction before_;
};

}  // namespace ingot

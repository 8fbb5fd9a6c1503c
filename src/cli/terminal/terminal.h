// Progress bars, which are off without a terminal, and Ctrl-C handling: the first Ctrl-C stops the current work, the
// second the program.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "cli/terminal/console.h"

namespace ingot {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// Prints a text: on a terminal in lines of whole words that fit its columns, elsewhere as it is.
void print_lines(Stream stream, std::string_view text);
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  print_lines(Stream::kOutput, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void tell(fmt::format_string<Args...> text, Args&&... args) {
  print_lines(Stream::kErrors, fmt::format(text, std::forward<Args>(args)...));
}

// Formats text for standard error: dimmed if standard error is a terminal and NO_COLOR is not set.
std::string faint(const std::string& text);

// Sends log lines to standard error: "ingot: warning: ..."
void log_to_stderr();

// A progress bar on standard error with rate and remaining time. The bar is redrawn at most ten times a second and
// erased at the end. It fits the terminal's columns: parts are left out where there is no room. Nothing is shown if
// standard error is not a terminal, or in the first third of a second.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar() { wipe(); }
  // kept_bytes: the part of done_bytes that was done before the bar started. These bytes count in the percentage, not
  // in the rate.
  void update(size_t done_bytes, size_t total_bytes, size_t kept_bytes = 0);
  void wipe();

 private:
  using Clock = std::chrono::steady_clock;
  const std::string label_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  bool visible_ = false;
};

// The status of a long measurement: one line on standard error, cut at the terminal's edge, which the next show()
// replaces. Nothing is shown if standard error is not a terminal.
class StatusLine {
 public:
  ~StatusLine() { wipe(); }
  void show(const std::string& text);
  void wipe();

 private:
  bool visible_ = false;
};

// While an object of this class lives, Ctrl-C sets interrupted() instead of ending the program. A second Ctrl-C ends
// the program at once with exit code 130. Guards may nest.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  static bool interrupted();
  static void clear();

 private:
  void (*before_)(int);
};

}  // namespace ingot

#include "cli/terminal/terminal.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "cli/terminal/console.h"

namespace ingot {
namespace {

volatile sig_atomic_t g_interrupts = 0;

void on_interrupt(int) {
  if (g_interrupts != 0) std::_Exit(130);
  g_interrupts = 1;
}

// In the order of LogLevel: names and terminal colours.
constexpr std::pair<const char*, int> kLogNames[] = {{"debug", 36}, {"info", 32}, {"warning", 33}, {"error", 31}};

std::string coloured(int colour, const std::string& text) {
  const char* no_colour = std::getenv("NO_COLOR");
  const bool plain = !stderr_is_terminal() || (no_colour != nullptr && *no_colour != '\0');
  return plain ? text : fmt::format("\033[{}m{}\033[0m", colour, text);
}

std::string rough_time(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", std::min(seconds / 3600, 9999.0));
}

}  // namespace

// The results are cached, because progress is reported for every tensor.
bool stdin_is_terminal() {
  static const bool is_one = is_terminal(Stream::kInput);
  return is_one;
}
bool stdout_is_terminal() {
  static const bool is_one = is_terminal(Stream::kOutput);
  return is_one;
}
bool stderr_is_terminal() {
  static const bool is_one = is_terminal(Stream::kErrors);
  return is_one;
}

std::string faint(const std::string& text) { return coloured(2, text); }

void log_to_stderr() {
  set_log_sink([](LogLevel level, const std::string& line) {
    const auto [name, colour] = kLogNames[static_cast<size_t>(level)];
    const std::string whole = fmt::format("ingot: {}: {}\n", coloured(colour, name), line);
    std::fwrite(whole.data(), 1, whole.size(), stderr);
  });
}

void ProgressBar::update(size_t done_bytes, size_t total_bytes, size_t kept_bytes) {
  constexpr int kWidth = 30;
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  if (!stderr_is_terminal() || now - start_ < milliseconds(330) || now - drawn_ < milliseconds(100)) return;
  drawn_ = now;
  visible_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share =
      total_bytes == 0 ? 0.0 : std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
  const double rate = static_cast<double>(done_bytes - std::min(kept_bytes, done_bytes)) / seconds;
  const int filled = static_cast<int>(share * kWidth);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f}%  {} of {}  {}/s  {} left \033[K", label_, "", filled, "",
             kWidth - filled, share * 100, human_bytes(done_bytes), human_bytes(total_bytes),
             human_bytes(static_cast<size_t>(rate)),
             rough_time(static_cast<double>(total_bytes - std::min(done_bytes, total_bytes)) / std::max(rate, 1.0)));
  std::fflush(stderr);
}

void ProgressBar::wipe() {
  if (visible_) fmt::print(stderr, "\r\033[K");
  visible_ = false;
}

void StatusLine::show(const std::string& text) {
  if (!stderr_is_terminal()) return;
  fmt::print(stderr, "\r{}\033[K", text);
  std::fflush(stderr);
  visible_ = true;
}

void StatusLine::wipe() {
  if (visible_) fmt::print(stderr, "\r\033[K");
  visible_ = false;
}

InterruptGuard::InterruptGuard() {
  clear();
  before_ = set_interrupt_handler(on_interrupt);
}

InterruptGuard::~InterruptGuard() { set_interrupt_handler(before_); }

bool InterruptGuard::interrupted() { return g_interrupts != 0; }
void InterruptGuard::clear() { g_interrupts = 0; }

}  // namespace ingot

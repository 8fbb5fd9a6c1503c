#include "cli/terminal/terminal.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "cli/terminal/console.h"
#include "cli/terminal/wrap.h"

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

// Of a line that the next one replaces. A text in the last column would make some terminals begin a line.
int line_columns() { return std::max(1, terminal_columns(Stream::kErrors) - 1); }

// The label, a bar of up to 30 columns, and the parts for which there is room, the most important first.
std::string bar_line(std::string_view label, double share, std::span<const std::string> parts) {
  constexpr int kLeastBar = 8, kMostBar = 30, kLeastLabel = 8;
  const int columns = line_columns();
  int room = columns - std::min(text_columns(label), kLeastLabel);
  std::string said;
  for (const std::string& part : parts) {
    const int n = text_columns(part);
    if (n > room) break;
    said += part;
    room -= n;
  }
  label = within_columns(label, columns - text_columns(said));
  const int bar = std::min(kMostBar, columns - text_columns(label) - text_columns(said) - 3);
  if (bar < kLeastBar) return std::string(label) + said;
  const int filled = static_cast<int>(share * bar);
  return fmt::format("{} [{:#<{}}{:.<{}}]{}", label, "", filled, "", bar - filled, said);
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

void print_lines(Stream stream, std::string_view text) {
  WordWrap wrap([=] { return terminal_columns(stream); });
  std::string lines = wrap.add(text);
  lines += wrap.finish();
  std::fwrite(lines.data(), 1, lines.size(), stream == Stream::kErrors ? stderr : stdout);
}

std::string faint(const std::string& text) { return coloured(2, text); }

void log_to_stderr() {
  set_log_sink([](LogLevel level, const std::string& line) {
    const auto [name, colour] = kLogNames[static_cast<size_t>(level)];
    tell("ingot: {}: {}\n", coloured(colour, name), line);
  });
}

void ProgressBar::update(size_t done_bytes, size_t total_bytes, size_t kept_bytes) {
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  if (!stderr_is_terminal() || now - start_ < milliseconds(330) || now - drawn_ < milliseconds(100)) return;
  drawn_ = now;
  visible_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share =
      total_bytes == 0 ? 0.0 : std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
  const double rate = static_cast<double>(done_bytes - std::min(kept_bytes, done_bytes)) / seconds;
  const double left = static_cast<double>(total_bytes - std::min(done_bytes, total_bytes)) / std::max(rate, 1.0);
  const std::string parts[] = {fmt::format(" {:3.0f}%", share * 100), fmt::format("  {} left", rough_time(left)),
                               fmt::format("  {} of {}", human_bytes(done_bytes), human_bytes(total_bytes)),
                               fmt::format("  {}/s", human_bytes(static_cast<size_t>(rate)))};
  fmt::print(stderr, "\r{}\033[K", bar_line(label_, share, parts));
  std::fflush(stderr);
}

void ProgressBar::wipe() {
  if (visible_) fmt::print(stderr, "\r\033[K");
  visible_ = false;
}

void StatusLine::show(const std::string& text) {
  if (!stderr_is_terminal()) return;
  fmt::print(stderr, "\r{}\033[K", within_columns(text, line_columns()));
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

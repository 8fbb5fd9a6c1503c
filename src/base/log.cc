#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include "base/error.h"

namespace ingot {
namespace {

constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error", "off"};  // in the order of LogLevel

struct Log {
  std::atomic<LogLevel> level{LogLevel::kWarn};
  std::mutex mutex;
  LogSink sink;
};

Log& the_log() {
  static Log& log = *new Log;  // never destroyed: threads may log until the program ends
  return log;
}

}  // namespace

LogLevel parse_log_level(std::string_view name) {
  const auto found = std::ranges::find(kLevels, name);
  if (found == std::end(kLevels))
    throw UsageError("unknown log level '{}': use debug, info, warn, error or off", printable(name));
  return static_cast<LogLevel>(found - std::begin(kLevels));
}

void set_log_level(LogLevel level) { the_log().level = level; }

void set_log_sink(LogSink sink) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.sink = std::move(sink);
}

namespace detail {

bool log_enabled(LogLevel level) { return level >= the_log().level; }

void log_line(LogLevel level, const std::string& line) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  if (log.sink) log.sink(level, line);
}

}  // namespace detail

}  // namespace ingot

// Logging: lines go to the sink that the program sets (set_log_sink). Lines logged before that are dropped. The default
// level is warn; `--log-level` sets another level. The program's output (generated text, results) does not use the log.
#pragma once
#include <fmt/format.h>

#include <exception>
#include <functional>
#include <string>
#include <string_view>

namespace ingot {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Throws UsageError for a name other than debug, info, warn, error, off.
LogLevel parse_log_level(std::string_view name);
void set_log_level(LogLevel level);

// Called from any thread with one message at a time; a message has no line break at its end but may have some inside.
// The sink must not log, set a sink, or throw. An empty sink drops messages.
using LogSink = std::function<void(LogLevel, const std::string& line)>;
// When the call returns, the previous sink is no longer in use.
void set_log_sink(LogSink sink);

namespace detail {
bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& line);
// If memory runs out here, the line is dropped: a thread that logs its fault must not end by that.
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (const std::exception&) {
  }
}
}  // namespace detail

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  detail::log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  detail::log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  detail::log(LogLevel::kWarn, format, std::forward<Args>(args)...);
}

}  // namespace ingot

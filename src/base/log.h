// Logging: lines go where the program says (set_log_sink), and nowhere until it has. Quiet by default, `--log-level`
// raises it. Answers never go through here.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

namespace ingot {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Throws UsageError for a name other than debug, info, warn, error, off.
LogLevel parse_log_level(std::string_view name);
void set_log_level(LogLevel level);

// Gets a line (of several now and then, without a line break at its end) at a time, from any thread. It must not log,
// set a sink, or throw. An empty one drops lines.
using LogSink = std::function<void(LogLevel, const std::string& line)>;
// When it returns, the sink of before is not in use any more.
void set_log_sink(LogSink sink);

namespace detail {
bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& line);
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
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

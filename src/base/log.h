// Logging to stderr through spdlog: quiet by default, `--log-level` raises it. Answers never go through here.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ingot {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Throws UsageError for a name other than debug, info, warn, error, off.
LogLevel parse_log_level(std::string_view name);
void set_log_level(LogLevel level);

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

#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/error.h"

namespace ingot {
namespace {

// On stderr, coloured only on a terminal; warnings and worse unless told otherwise.
spdlog::logger& logger() {
  static auto instance = [] {
    auto made = spdlog::stderr_color_mt("ingot");
    made->set_pattern("ingot: %^%l%$: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

constexpr std::pair<std::string_view, spdlog::level::level_enum> kLevels[] = {  // in the order of LogLevel
    {"debug", spdlog::level::debug}, {"info", spdlog::level::info}, {"warn", spdlog::level::warn},
    {"error", spdlog::level::err},   {"off", spdlog::level::off},
};

spdlog::level::level_enum native(LogLevel level) { return kLevels[static_cast<int>(level)].second; }

}  // namespace

LogLevel parse_log_level(std::string_view name) {
  for (size_t i = 0; i < std::size(kLevels); ++i)
    if (kLevels[i].first == name) return static_cast<LogLevel>(i);
  throw UsageError("unknown log level '{}': use debug, info, warn, error or off", printable(name));
}

void set_log_level(LogLevel level) { logger().set_level(native(level)); }

namespace detail {
bool log_enabled(LogLevel level) { return logger().should_log(native(level)); }
void log_line(LogLevel level, const std::string& line) { logger().log(native(level), line); }
}  // namespace detail

}  // namespace ingot

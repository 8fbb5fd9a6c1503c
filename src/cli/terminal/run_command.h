// Runs a command to its end, without a shell. The command gets a text on standard input; its output is kept up to a
// limit. Used by chat_tools.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct CommandLimits {
  std::chrono::milliseconds time{30'000};
  size_t output_bytes = 64 << 10;
};

struct CommandResult {
  enum class End { kExit, kSignal, kTimeout, kStopped };
  End end = End::kExit;
  int code = 0;         // the exit code, or the signal's number
  std::string output;   // standard output and standard error, interleaved
  bool is_cut = false;  // the output exceeded the limit
};

// The command leads a new process group. The whole group is killed at the time limit or when stopped() returns true
// (polled about 50 times a second). Processes that it leaves behind are killed when it ends. Throws Error if the
// command cannot be started.
CommandResult run_command(const std::vector<std::string>& command, std::string_view input, const CommandLimits& limits,
                          const std::function<bool()>& stopped);

}  // namespace ingot

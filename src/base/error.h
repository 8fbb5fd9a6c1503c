// Error: an error in the user's input, a file or a request. The message says on one line what is wrong, where, and what
// to do. The command line reports an Error as a message and an exit code, the server as an OpenAI error object and a
// status.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace ingot {

class Error : public std::runtime_error {
 public:
  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// The command line itself is wrong (exit code 2, not 1).
class UsageError : public Error {
 public:
  using Error::Error;
};

// Makes text from a file or a request safe to print: control bytes and invalid UTF-8 become \xNN, and text longer than
// max_bytes is cut and ends in "...".
std::string printable(std::string_view text, size_t max_bytes = 256);

}  // namespace ingot

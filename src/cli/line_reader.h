// Reads lines that a person types: with editing and history on a terminal, without them from a pipe.
#pragma once
#include <optional>
#include <string>

namespace ingot {

class LineReader {
 public:
  LineReader();
  bool is_interactive() const { return interactive_; }
  // The next line without its newline; nullopt at the end of input.
  std::optional<std::string> read(const std::string& prompt);

 private:
  const bool interactive_;
};

}  // namespace ingot

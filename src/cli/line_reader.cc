#include "cli/line_reader.h"

#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <iostream>
#include <memory>

#include <editline/readline.h>

namespace ingot {

LineReader::LineReader() : interactive_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1) {
  if (!interactive_) return;
  std::setlocale(LC_CTYPE, "");  // makes editing work on whole characters
  ::using_history();
}

std::optional<std::string> LineReader::read(const std::string& prompt) {
  std::string line;
  if (!interactive_) {
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  const std::unique_ptr<char, decltype(&std::free)> typed(::readline(prompt.c_str()), &std::free);
  if (!typed) return std::nullopt;
  line = typed.get();
  if (!line.empty()) ::add_history(line.c_str());
  return line;
}

}  // namespace ingot

#include "cli/terminal/line_reader.h"

#include <iostream>

namespace ingot {

std::optional<std::string> LineReader::read(const std::string& prompt, const std::string& draft) {
  if (editor_) return edit(prompt, draft);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

std::optional<std::string> read_message(LineReader& reader, const std::string& prompt, const std::string& draft) {
  constexpr std::string_view kQuotes = "\"\"\"";
  std::optional<std::string> line = reader.read(prompt, draft);
  if (!line || reader.interrupted()) return line;
  const bool is_quoted = line->starts_with(kQuotes);
  std::string message = is_quoted ? line->substr(kQuotes.size()) : *line;
  const auto goes_on = [&] { return is_quoted ? !message.ends_with(kQuotes) : message.ends_with('\\'); };
  while (goes_on()) {
    if (!is_quoted) message.pop_back();
    line = reader.read("… ");
    if (!line) break;
    message += '\n' + *line;
    if (reader.interrupted()) return message;
  }
  if (is_quoted && message.ends_with(kQuotes)) message.resize(message.size() - kQuotes.size());
  if (is_quoted && message.starts_with('\n')) message.erase(0, 1);
  if (is_quoted && message.ends_with('\n')) message.pop_back();
  return message;
}

}  // namespace ingot

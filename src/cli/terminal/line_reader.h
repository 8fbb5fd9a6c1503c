// Reads the user's input lines; on a terminal, with editing and history.
#pragma once
#include <memory>
#include <optional>
#include <string>

namespace ingot {

class LineReader {
 public:
  LineReader();
  ~LineReader();
  bool is_interactive() const { return editor_ != nullptr; }
  // The next line without its newline; nullopt at the end of input. On a terminal, the line initially contains `draft`.
  std::optional<std::string> read(const std::string& prompt, const std::string& draft = {});
  // True if Ctrl-C ended the last line. The line then has the text typed so far.
  bool interrupted() const { return interrupted_; }

 private:
  struct Editor;  // libedit's on POSIX systems, the console's on Windows
  std::optional<std::string> edit(const std::string& prompt, const std::string& draft);
  std::unique_ptr<Editor> editor_;  // null without a terminal
  bool interrupted_ = false;
};

// Reads a message, which may have several lines: a line that ends with a backslash continues, and lines between two
// `"""` are one message. nullopt at the end of input. reader.interrupted() is true if Ctrl-C ended the message.
std::optional<std::string> read_message(LineReader& reader, const std::string& prompt, const std::string& draft = {});

}  // namespace ingot

// Windows provides line editing and history.
#include <windows.h>

#include <cstdio>

#include "cli/terminal/line_reader.h"
#include "cli/terminal/terminal.h"

namespace ingot {

struct LineReader::Editor {
  HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
};

LineReader::LineReader() {
  if (stdin_is_terminal() && stdout_is_terminal()) editor_ = std::make_unique<Editor>();
}

LineReader::~LineReader() = default;

// Writes the draft to the console's input, as if typed.
std::optional<std::string> LineReader::edit(const std::string& prompt, const std::string& draft) {
  InterruptGuard guard;
  std::fputs(prompt.c_str(), stdout);
  std::fflush(stdout);
  wchar_t wide[4096];
  const int n_draft =
      MultiByteToWideChar(CP_UTF8, 0, draft.data(), static_cast<int>(draft.size()), wide, std::size(wide));
  for (int i = 0; i < n_draft; ++i) {
    INPUT_RECORD key{};
    key.EventType = KEY_EVENT;
    key.Event.KeyEvent.bKeyDown = TRUE;
    key.Event.KeyEvent.wRepeatCount = 1;
    key.Event.KeyEvent.uChar.UnicodeChar = wide[i];
    DWORD n_written = 0;
    WriteConsoleInputW(editor_->input, &key, 1, &n_written);
  }
  DWORD n_read = 0;
  const bool is_read = ReadConsoleW(editor_->input, wide, std::size(wide), &n_read, nullptr) != 0;
  std::string line(size_t{3} * n_read, '\0');  // a UTF-16 unit has at most three bytes of UTF-8
  line.resize(static_cast<size_t>(WideCharToMultiByte(CP_UTF8, 0, wide, static_cast<int>(n_read), line.data(),
                                                      static_cast<int>(line.size()), nullptr, nullptr)));
  interrupted_ = InterruptGuard::interrupted();
  if (interrupted_) return line;
  constexpr char kEndOfInput = 26;  // Ctrl-Z
  if (!is_read || line.starts_with(kEndOfInput)) return std::nullopt;
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace ingot

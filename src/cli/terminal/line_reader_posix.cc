#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cwchar>
#include <string_view>

#include "cli/terminal/line_reader.h"
#include "cli/terminal/terminal.h"

namespace ingot {

constexpr const char *kBracketed = "\033[?2004h", *kPlain = "\033[?2004l";  // switch bracketed paste on and off

// An editor of libedit, with the keys of the user's ~/.editrc.
struct LineReader::Editor {
  Editor() : line(::el_init("ingot", stdin, stdout, stderr)), past(::history_init()) {
    HistEvent event;
    ::history(past, &event, H_SETSIZE, 1000);
    ::el_set(line, EL_CLIENTDATA, this);
    ::el_set(line, EL_PROMPT, &Editor::prompt_of);
    ::el_set(line, EL_EDITOR, "emacs");
    ::el_set(line, EL_HIST, ::history, past);
    ::el_set(line, EL_SIGNAL, 0);  // InterruptGuard handles Ctrl-C
    ::el_set(line, EL_GETCFN, &Editor::read_char);
    ::el_set(line, EL_ADDFN, "ingot-paste", "Insert what is pasted", &Editor::paste);
    ::el_set(line, EL_BIND, "\\e[200~", "ingot-paste", nullptr);
    ::el_source(line, nullptr);
  }
  ~Editor() {
    ::history_end(past);
    ::el_end(line);
  }

  static char* prompt_of(EditLine* line) {
    void* self = nullptr;
    ::el_get(line, EL_CLIENTDATA, &self);
    return static_cast<Editor*>(self)->prompt.data();
  }

  // A terminal brackets pasted text (kBracketed). The lines of the text belong to one message and are not commands.
  static unsigned char paste(EditLine* line, int) {
    constexpr std::wstring_view kEnd = L"\033[201~";
    std::wstring text;
    wchar_t c;
    while (!text.ends_with(kEnd)) {
      if (::el_wgetc(line, &c) != 1) return CC_ERROR;
      text += c == L'\r' ? L'\n' : c;
    }
    text.resize(text.size() - kEnd.size());
    return ::el_winsertstr(line, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  // Replaces libedit's function, which restarts a read that a signal interrupted.
  static int read_char(EditLine*, wchar_t* c) {
    constexpr int kPollMs = 50;
    std::mbstate_t state{};
    for (;;) {
      if (InterruptGuard::interrupted()) return -1;
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (::poll(&input, 1, kPollMs) <= 0) continue;
      char byte;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return static_cast<int>(n);
      const size_t used = std::mbrtowc(c, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // the character has more bytes
      if (used == static_cast<size_t>(-1)) *c = L'?';
      return 1;
    }
  }

  EditLine* const line;
  History* const past;
  std::string prompt;
};

// Editing works on whole characters. Prompts and terminals are UTF-8, also where the user's locale is "C".
static bool use_utf8() {
  for (const char* name : {"", "C.UTF-8", "en_US.UTF-8", "UTF-8"})
    if (std::setlocale(LC_CTYPE, name) != nullptr && std::string_view(::nl_langinfo(CODESET)) == "UTF-8") return true;
  return false;
}

LineReader::LineReader() {
  if (!stdin_is_terminal() || !stdout_is_terminal()) return;
  if (!use_utf8()) return;  // bytes are then read as they are, without editing
  editor_ = std::make_unique<Editor>();
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::edit(const std::string& prompt, const std::string& draft) {
  InterruptGuard guard;
  editor_->prompt = prompt;
  ::el_set(editor_->line, EL_PREP_TERM, 1);  // before the prompt, otherwise Ctrl-C may discard typed keys
  if (!draft.empty()) ::el_push(editor_->line, draft.c_str());
  std::fflush(stdout);
  int n = 0;
  std::fputs(kBracketed, stdout);
  const char* typed = ::el_gets(editor_->line, &n);
  std::fputs(kPlain, stdout);
  interrupted_ = InterruptGuard::interrupted();
  if (interrupted_) {
    const LineInfo* info = ::el_line(editor_->line);
    std::fputs("^C\n", stdout);
    return std::string(info->buffer, info->lastchar);
  }
  if (typed == nullptr || n <= 0) return std::nullopt;
  std::string line(typed, static_cast<size_t>(n));
  if (line.ends_with('\n')) line.pop_back();
  HistEvent event;
  if (!line.empty()) ::history(editor_->past, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace ingot

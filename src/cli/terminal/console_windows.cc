#include <fcntl.h>
#include <io.h>
#include <signal.h>
#include <stdio.h>
#include <windows.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>

#include "cli/terminal/console.h"

namespace ingot {
namespace {

const char* lost_text = "";
int lost_code = 1;

HANDLE handle_of(Stream stream) {
  constexpr DWORD kHandles[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
  return GetStdHandle(kHandles[static_cast<int>(stream)]);
}

LONG WINAPI on_fault(EXCEPTION_POINTERS* fault) {
  if (fault->ExceptionRecord->ExceptionCode != static_cast<DWORD>(EXCEPTION_IN_PAGE_ERROR))
    return EXCEPTION_CONTINUE_SEARCH;
  DWORD n = 0;
  WriteFile(handle_of(Stream::kErrors), lost_text, static_cast<DWORD>(std::strlen(lost_text)), &n, nullptr);
  TerminateProcess(GetCurrentProcess(), static_cast<UINT>(lost_code));
  return EXCEPTION_CONTINUE_SEARCH;
}

struct HeldSignals {
  std::mutex mutex;
  std::condition_variable came;
  std::deque<int> signals;
};
HeldSignals& held() {
  static HeldSignals& signals = *new HeldSignals;  // never destroyed: Windows may call on_hold at any time
  return signals;
}

BOOL WINAPI on_hold(DWORD event) {
  const std::lock_guard lock(held().mutex);
  held().signals.push_back(event == CTRL_C_EVENT ? SIGINT : SIGTERM);
  held().came.notify_all();
  return TRUE;
}

std::atomic<InterruptHandler> interrupt_handler{SIG_DFL};

BOOL WINAPI on_interrupt(DWORD event) {
  const InterruptHandler handler = interrupt_handler;
  if (event != CTRL_C_EVENT || handler == SIG_DFL) return FALSE;
  handler(SIGINT);
  return TRUE;
}

}  // namespace

bool is_terminal(Stream stream) {
  DWORD mode = 0;
  return GetConsoleMode(handle_of(stream), &mode) != 0;
}

int terminal_columns(Stream stream) {
  CONSOLE_SCREEN_BUFFER_INFO info;
  if (GetConsoleScreenBufferInfo(handle_of(stream), &info) == 0) return 0;
  return info.srWindow.Right - info.srWindow.Left + 1;
}

const char* keys_of_the_end() { return "Ctrl-Z and Enter"; }

void prepare_program(const char* lost_page_text, int lost_page_code) {
  lost_text = lost_page_text;
  lost_code = lost_page_code;
  AddVectoredExceptionHandler(1, on_fault);
  _fmode = _O_BINARY;
  for (std::FILE* file : {stdin, stdout, stderr}) _setmode(_fileno(file), _O_BINARY);
  setvbuf(stderr, nullptr, _IONBF, 0);
  SetConsoleCP(CP_UTF8);
  SetConsoleOutputCP(CP_UTF8);
  for (Stream stream : {Stream::kOutput, Stream::kErrors}) {  // enables escape sequences for colours and the cursor
    DWORD mode = 0;
    if (GetConsoleMode(handle_of(stream), &mode) != 0)
      SetConsoleMode(handle_of(stream), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
}

InterruptHandler set_interrupt_handler(InterruptHandler handler) {
  static const bool is_installed = SetConsoleCtrlHandler(on_interrupt, TRUE) != 0;
  static_cast<void>(is_installed);
  return interrupt_handler.exchange(handler);
}

void hold_signals() { SetConsoleCtrlHandler(on_hold, TRUE); }

int next_signal(std::chrono::milliseconds timeout) {
  std::unique_lock lock(held().mutex);
  if (!held().came.wait_for(lock, timeout, [] { return !held().signals.empty(); })) return 0;
  const int signal = held().signals.front();
  held().signals.pop_front();
  return signal;
}

}  // namespace ingot

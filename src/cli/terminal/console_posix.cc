#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "cli/terminal/console.h"

namespace ingot {
namespace {

const char* lost_text = "";
int lost_code = 1;

void on_lost_page(int) {
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, lost_text, std::strlen(lost_text));
  _exit(lost_code);
}

sigset_t held_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

}  // namespace

bool is_terminal(Stream stream) { return ::isatty(static_cast<int>(stream)) == 1; }

int terminal_columns(Stream stream) {
  winsize size{};
  if (::ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col > 0 ? size.ws_col : 80;  // a serial line does not know
}

const char* keys_of_the_end() { return "Ctrl-D"; }

void prepare_program(const char* lost_page_text, int lost_page_code) {
  lost_text = lost_page_text;
  lost_code = lost_page_code;
  signal(SIGBUS, on_lost_page);
}

InterruptHandler set_interrupt_handler(InterruptHandler handler) {
  struct sigaction action {
  }, before{};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &before);
  return before.sa_handler;
}

void hold_signals() {
  sigset_t set = held_signals();
  sigaddset(&set, SIGPIPE);  // not waited for: writes report the error
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int next_signal(std::chrono::milliseconds timeout) {
  const sigset_t set = held_signals();
#if defined(__APPLE__)  // has no sigtimedwait
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  do {
    sigset_t pending;
    int signal = 0;
    sigpending(&pending);
    for (int one : {SIGTERM, SIGINT, SIGHUP, SIGUSR1})
      if (sigismember(&pending, one) == 1) return sigwait(&set, &signal) == 0 ? signal : 0;
    usleep(5000);
  } while (std::chrono::steady_clock::now() < deadline);
  return 0;
#else
  const timespec time{.tv_sec = timeout.count() / 1000, .tv_nsec = timeout.count() % 1000 * 1'000'000};
  const int signal = sigtimedwait(&set, nullptr, &time);
  return signal > 0 ? signal : 0;
#endif
}

}  // namespace ingot

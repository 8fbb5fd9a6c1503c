#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "cli/terminal/run_command.h"

extern char** environ;

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 20;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

[[noreturn]] void throw_start(const std::string& command, int error) {
  throw Error("cannot start the command '{}': {}", printable(command), std::strerror(error));
}

// An unnamed file with the text. With a pipe, a command that does not read its input could block the program.
std::unique_ptr<std::FILE, int (*)(std::FILE*)> input_file(const std::string& command, std::string_view text) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0)
    throw_start(command, errno);
  ::fcntl(::fileno(file.get()), F_SETFD, FD_CLOEXEC);  // the command inherits the file only as standard input
  std::rewind(file.get());
  return file;
}

// Starts the command in its own process group, so only this program gets Ctrl-C, and resets the signals.
pid_t spawn(const std::vector<std::string>& command, int input, int output) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  for (int signal : {SIGINT, SIGPIPE, SIGTERM}) ::sigaddset(&defaults, signal);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) throw_start(command[0], error);
  return pid;
}

// Reads the available output. Returns false at the end of the output.
bool take_output(int fd, const CommandLimits& limits, CommandResult& result) {
  char buffer[4096];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  const size_t kept = std::min(static_cast<size_t>(n), limits.output_bytes - result.output.size());
  result.output.append(buffer, kept);
  if (kept < static_cast<size_t>(n)) result.is_cut = true;
  return n > 0;
}

void read_end(int status, CommandResult& result) {
  result.end = WIFEXITED(status) ? CommandResult::End::kExit : CommandResult::End::kSignal;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& command, std::string_view input, const CommandLimits& limits,
                          const std::function<bool()>& stopped) {
  const auto deadline = Clock::now() + limits.time;
  const auto file = input_file(command[0], input);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_start(command[0], errno);
  Fd output(ends[0]), writer(ends[1]);
  const pid_t pid = spawn(command, ::fileno(file.get()), writer.get());
  writer.close();
  CommandResult result;
  int status = 0;
  for (bool exited = false;;) {
    pollfd ready{.fd = output.get(), .events = POLLIN, .revents = 0};
    const bool has_output = ::poll(&ready, 1, kPollMs) > 0;
    if (has_output && !take_output(output.get(), limits, result)) output.close();
    exited = exited || ::waitpid(pid, &status, WNOHANG) == pid;
    if (exited && (!has_output || output.get() < 0)) {
      read_end(status, result);
      ::kill(-pid, SIGKILL);
      return result;
    }
    const bool is_stopped = stopped();
    if (!is_stopped && Clock::now() < deadline) continue;
    result.end = is_stopped ? CommandResult::End::kStopped : CommandResult::End::kTimeout;
    ::kill(-pid, SIGKILL);
    if (!exited) ::waitpid(pid, &status, 0);
    return result;
  }
}

}  // namespace ingot

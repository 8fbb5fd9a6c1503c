#include <windows.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/system_file.h"
#include "cli/terminal/run_command.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

class Handle {
 public:
  explicit Handle(HANDLE handle = nullptr) : handle_(handle) {}
  ~Handle() { close(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  HANDLE get() const { return handle_; }
  HANDLE* put() { return &handle_; }
  void close() {
    if (handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE) CloseHandle(handle_);
    handle_ = nullptr;
  }

 private:
  HANDLE handle_;
};

[[noreturn]] void throw_start(const std::string& command) {
  throw Error("cannot start the command '{}': {}", printable(command),
              std::system_category().message(static_cast<int>(GetLastError())));
}

// Quotes a word of a command line for the parser of C programs on Windows: adds quotes, and puts a backslash before
// each quote and before each backslash that precedes a quote.
std::string quoted(const std::string& word) {
  std::string text = "\"";
  size_t n_backslashes = 0;
  for (char c : word) {
    if (c == '"') text.append(n_backslashes + 1, '\\');
    n_backslashes = c == '\\' ? n_backslashes + 1 : 0;
    text += c;
  }
  return text.append(n_backslashes, '\\') + '"';
}

// A file with the text, removed when its last handle is closed. With a pipe, a command that does not read its input
// could block the program.
HANDLE input_file(const std::string& command, std::string_view text) {
  std::string name = (std::filesystem::temp_directory_path() / "ingot.XXXXXX").string();
  if (!open_temporary(name, 0600)) throw_start(command);
  SECURITY_ATTRIBUTES inherited{
      .nLength = sizeof(SECURITY_ATTRIBUTES), .lpSecurityDescriptor = nullptr, .bInheritHandle = TRUE};
  const HANDLE file = CreateFileA(name.c_str(), GENERIC_READ | GENERIC_WRITE, 0, &inherited, CREATE_ALWAYS,
                                  FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, nullptr);
  DWORD n = 0;
  if (file == INVALID_HANDLE_VALUE) throw_start(command);
  WriteFile(file, text.data(), static_cast<DWORD>(text.size()), &n, nullptr);
  SetFilePointer(file, 0, nullptr, FILE_BEGIN);
  return file;
}

struct Started {
  Handle job, process, output;
};

// Starts the command in its own job, which ends with all its processes, and in its own process group, so only this
// program gets Ctrl-C.
void start(const std::vector<std::string>& command, std::string_view text, Started& started) {
  const Handle input(input_file(command[0], text));
  SECURITY_ATTRIBUTES inherited{
      .nLength = sizeof(SECURITY_ATTRIBUTES), .lpSecurityDescriptor = nullptr, .bInheritHandle = TRUE};
  Handle writer;
  if (CreatePipe(started.output.put(), writer.put(), &inherited, 0) == 0) throw_start(command[0]);
  SetHandleInformation(started.output.get(), HANDLE_FLAG_INHERIT, 0);
  *started.job.put() = CreateJobObjectA(nullptr, nullptr);
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + quoted(word);
  STARTUPINFOA streams{};
  streams.cb = sizeof streams;
  streams.dwFlags = STARTF_USESTDHANDLES;
  streams.hStdInput = input.get();
  streams.hStdOutput = streams.hStdError = writer.get();
  PROCESS_INFORMATION made{};
  if (CreateProcessA(nullptr, line.data(), nullptr, nullptr, TRUE, CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP, nullptr,
                     nullptr, &streams, &made) == 0)
    throw_start(command[0]);
  *started.process.put() = made.hProcess;
  AssignProcessToJobObject(started.job.get(), made.hProcess);
  ResumeThread(made.hThread);
  CloseHandle(made.hThread);
}

// Reads the available output. Returns false if there is none.
bool take_output(HANDLE pipe, const CommandLimits& limits, CommandResult& result) {
  DWORD n = 0;
  if (PeekNamedPipe(pipe, nullptr, 0, nullptr, &n, nullptr) == 0 || n == 0) return false;
  char buffer[4096];
  if (ReadFile(pipe, buffer, sizeof buffer, &n, nullptr) == 0) return false;
  const size_t kept = std::min<size_t>(n, limits.output_bytes - result.output.size());
  result.output.append(buffer, kept);
  if (kept < n) result.is_cut = true;
  return true;
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& command, std::string_view input, const CommandLimits& limits,
                          const std::function<bool()>& stopped) {
  const auto deadline = Clock::now() + limits.time;
  Started started;
  start(command, input, started);
  CommandResult result;
  for (;;) {
    const bool exited = WaitForSingleObject(started.process.get(), 0) == WAIT_OBJECT_0;
    const bool has_output = take_output(started.output.get(), limits, result);
    const bool is_stopped = stopped();
    const bool is_over = Clock::now() >= deadline;
    if (has_output && !is_stopped && !is_over) continue;
    if (exited) {
      DWORD code = 0;
      GetExitCodeProcess(started.process.get(), &code);
      result.code = static_cast<int>(code);
    } else if (is_stopped || is_over) {
      result.end = is_stopped ? CommandResult::End::kStopped : CommandResult::End::kTimeout;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    TerminateJobObject(started.job.get(), 1);
    return result;
  }
}

}  // namespace ingot

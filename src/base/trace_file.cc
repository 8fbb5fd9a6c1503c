#include "base/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace ingot {
namespace {

double microseconds(TraceFile::Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

}  // namespace

TraceFile::TraceFile(const std::string& path) : file_(std::fopen(path.c_str(), "w")), path_(path) {
  if (file_ == nullptr) throw Error("cannot create the trace file '{}': {}", printable(path), std::strerror(errno));
  std::fputs("[\n", file_);
}

// The format allows a trailing comma and a missing closing bracket. A complete file is valid JSON all the same.
TraceFile::~TraceFile() {
  std::fputs("{\"name\": \"end\", \"ph\": \"M\", \"pid\": 1}\n]\n", file_);
  std::fclose(file_);
}

void TraceFile::span(const char* track, const char* name, Clock::time_point begin, Clock::time_point end,
                     const std::string& args_json) {
  std::lock_guard lock(mutex_);
  const std::string line = fmt::format(
      "{{\"name\": \"{}\", \"ph\": \"X\", \"pid\": 1, \"tid\": {}, \"ts\": {:.3f}, \"dur\": {:.3f}, \"args\": "
      "{{{}}}}},\n",
      name, track_id(track), microseconds(begin - start_), microseconds(end - begin), args_json);
  write(line);
}

// A failed write, such as on a full disk, only warns once.
void TraceFile::write(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_) == line.size() || std::exchange(failed_, true)) return;
  log_warn("cannot write the trace file {}: {}; it has gaps from here on", printable(path_), std::strerror(errno));
}

int TraceFile::track_id(const char* track) {
  const auto found = std::ranges::find(tracks_, track);
  const auto id = static_cast<int>(found - tracks_.begin()) + 1;
  if (found != tracks_.end()) return id;
  tracks_.emplace_back(track);
  write(fmt::format(
      "{{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": {}, \"args\": {{\"name\": \"{}\"}}}},\n", id,
      track));
  return id;
}

}  // namespace ingot

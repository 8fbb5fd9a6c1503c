// TraceFile: writes time spans in Chrome's trace format, one JSON object a line. Perfetto and chrome://tracing can open
// the file even if the program was killed. Thread-safe.
#pragma once
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

namespace ingot {

class TraceFile {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TraceFile(const std::string& path);  // throws Error when the file cannot be created
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // A span on a named track. args_json is "" or the members of a JSON object: "\"rows\": 3".
  void span(const char* track, const char* name, Clock::time_point begin, Clock::time_point end,
            const std::string& args_json);

 private:
  int track_id(const char* track);
  void write(const std::string& line);

  std::mutex mutex_;
  std::FILE* file_;
  const std::string path_;
  const Clock::time_point start_ = Clock::now();
  std::vector<std::string> tracks_;
  bool failed_ = false;
};

}  // namespace ingot

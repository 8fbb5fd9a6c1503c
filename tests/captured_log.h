// What is logged while one lives, a line after another. Afterwards lines are dropped, as in a program that names no
// sink.
#pragma once
#include <string>

#include "base/log.h"

namespace ingot {

class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](LogLevel, const std::string& line) { text_ += line + '\n'; });
  }
  ~CapturedLog() { set_log_sink({}); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  // Not while others may log.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace ingot

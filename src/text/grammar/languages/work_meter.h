// WorkMeter: limits the work of a grammar's machines. One meter counts the work of all parts of a grammar. Work is
// counted, not timed, so that the result does not depend on the computer.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/error.h"

namespace ingot {

// The limit of work is reached. The call has changed nothing: later calls with a higher limit give the same results.
class TooMuchWork : public Error {
 public:
  using Error::Error;
};

class WorkMeter {
 public:
  // The unit is a part of a regular expression: about 0.2 us.
  static constexpr size_t kMaxWork = size_t{1} << 19;  // of a mask or a token
  static constexpr size_t kMaxCompileWork = size_t{1} << 21;

  void limit(size_t n_parts) { left_ = n_parts; }
  size_t left() const { return left_; }

  // Throws TooMuchWork if less than n_parts is left. `advice`: the error's message.
  void spend(size_t n_parts, const char* advice = kAdvice) {
    if (n_parts > left_) throw TooMuchWork("{}", advice);
    left_ -= n_parts;
  }
  // For work that is done already.
  void count(size_t n_parts) { left_ -= std::min(left_, n_parts); }

 private:
  static constexpr const char* kAdvice =
      "the constraint needs too much work at one place: use smaller counts in nested repetitions and look-aheads, and "
      "fewer conditions on one value";
  size_t left_ = SIZE_MAX;
};

// A meter that several machines share. A copy is a new meter, because a copy of a machine does work of its own.
class SharedMeter {
 public:
  SharedMeter() = default;
  SharedMeter(const SharedMeter&) {}
  SharedMeter& operator=(const SharedMeter&) = delete;
  void share(const SharedMeter& other) { meter_ = other.meter_; }
  WorkMeter* operator->() const { return meter_.get(); }
  WorkMeter& operator*() const { return *meter_; }

 private:
  std::shared_ptr<WorkMeter> meter_ = std::make_shared<WorkMeter>();
};

}  // namespace ingot

// ReadAhead: while a thread of a pool waits for the next loop, it asks for the first bytes that the loop will read. So
// the memory also works between two loops.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace ingot {

class ReadAhead {
 public:
  static constexpr int kLine = 64;
  static constexpr int64_t kBytes = 64 << 10;  // of a thread: a small part of its second-level cache

  // Data whose units (panels of a matrix) are divided among the threads, in order.
  struct Run {
    const uint8_t* data = nullptr;
    int64_t n_units = 0, unit_bytes = 0;
  };
  static constexpr int kMaxRuns = 3;
  struct Plan {
    std::array<Run, kMaxRuns> runs{};
    int n_runs = 0;
    uint64_t number = 0;  // differs from plan to plan
  };

  // `part`: where the thread's part of each run begins, from 0 to 1. A plan that the thread already follows goes on.
  void follow(const Plan& plan, double part) {
    if (plan.number == plan_.number) return;
    plan_ = plan;
    run_ = 0;
    part_ = part;
    begin_run();
  }

  // The next cache line to ask for; null: no more.
  const uint8_t* next() {
    while (at_ >= end_) {
      if (run_ + 1 >= plan_.n_runs) return nullptr;
      ++run_;
      begin_run();
    }
    const uint8_t* line = at_;
    at_ += kLine;
    return line;
  }

 private:
  void begin_run() {
    at_ = end_ = nullptr;
    if (run_ >= plan_.n_runs) return;
    const Run& run = plan_.runs[static_cast<size_t>(run_)];
    const int64_t unit = std::min(static_cast<int64_t>(part_ * static_cast<double>(run.n_units) + 0.5), run.n_units);
    at_ = run.data + unit * run.unit_bytes;
    end_ = at_ + std::min(kBytes / plan_.n_runs, (run.n_units - unit) * run.unit_bytes);
  }

  Plan plan_;
  int run_ = 0;
  double part_ = 0;
  const uint8_t *at_ = nullptr, *end_ = nullptr;
};

}  // namespace ingot

// Watchdog: checks whether a server can still answer. Three faults make a server unhealthy: a model file was modified,
// an engine has ended (by itself or with its device), or a model makes no progress while it has work. The last two
// faults end the process, so that a supervisor can restart it. `ingot serve` calls the watchdog twice a second.
//
// A long step is no fault. A step on the CPU proceeds task by task, and a step on a GPU block by block. The watchdog
// measures the time without any of these, in each model apart and from its first step on.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>

#include "server/app.h"

namespace ingot {

inline constexpr int kExitLostEngine = 70, kExitHung = 72;

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    std::chrono::milliseconds soft{60'000};   // unhealthy when a model with work makes no progress for this long
    std::chrono::milliseconds hard{120'000};  // the process ends when a model makes no progress for this long
    Clock::time_point (*now)() = Clock::now;
  };
  explicit Watchdog(const Limits& limits) : limits_(limits) {}

  // Returns the exit code with which the process must end now, or 0. A lost engine is reported only by the next call,
  // so that waiting clients receive the error first.
  int check(App& app);

 private:
  struct State {
    uint64_t progress = 0;
    Clock::time_point moved;  // when the progress changed last, or when the model had no work
  };
  int check_progress(App& app);

  const Limits limits_;
  int lost_ = 0;  // the exit code
  std::map<const ServedModel*, State> states_;  // of the loaded models
};

}  // namespace ingot

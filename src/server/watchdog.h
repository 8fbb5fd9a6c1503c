// Watchdog: checks whether a server can still answer. Three faults make a server unhealthy: a model file was modified,
// an engine has ended (by itself or with its device), or steps do not end. The last two faults end the process, so that
// a supervisor can restart it. `ingot serve` calls the watchdog twice a second.
#pragma once
#include <chrono>
#include <cstdint>

#include "server/app.h"

namespace ingot {

inline constexpr int kExitLostEngine = 70, kExitHung = 72;

class Watchdog {
 public:
  struct Limits {
    std::chrono::milliseconds soft{60'000};   // unhealthy when no step ends for this long while there is work
    std::chrono::milliseconds hard{120'000};  // the process ends when no step ends for this long
  };
  explicit Watchdog(const Limits& limits) : limits_(limits) {}

  // Returns the exit code with which the process must end now, or 0. A lost engine is reported only by the next call,
  // so that waiting clients receive the error first.
  int check(App& app);

 private:
  using Clock = std::chrono::steady_clock;
  int check_steps(App& app);

  const Limits limits_;
  int lost_ = 0;  // the exit code
  int64_t n_steps_ = -1;
  Clock::time_point moved_ = Clock::now();
};

}  // namespace ingot

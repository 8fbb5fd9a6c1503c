// Watchdog: whether a server can still answer. A model whose file was written to, an engine that has ended, by itself
// or with its device, or whose steps do not end: each makes it unhealthy, and the last two end the process, for a
// supervisor to start it again. `ingot serve` asks it twice a second.
#pragma once
#include <chrono>
#include <cstdint>

#include "server/app.h"

namespace ingot {

inline constexpr int kExitLostEngine = 70, kExitHung = 72;

class Watchdog {
 public:
  struct Limits {
    std::chrono::milliseconds soft{60'000};   // without the end of a step while there is work: unhealthy
    std::chrono::milliseconds hard{120'000};  // the process ends
  };
  explicit Watchdog(const Limits& limits) : limits_(limits) {}

  // The exit code with which the process is to end now; 0: it is not. Of a lost engine only when asked again, so that
  // those who waited for its answers hear of it first.
  int look(App& app);

 private:
  using Clock = std::chrono::steady_clock;
  int look_at_steps(App& app);

  const Limits limits_;
  int lost_ = 0;  // the exit code
  int64_t n_steps_ = -1;
  Clock::time_point moved_ = Clock::now();
};

}  // namespace ingot

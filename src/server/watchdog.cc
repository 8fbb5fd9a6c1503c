#include "server/watchdog.h"

#include "base/device_lost.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace ingot {

int Watchdog::check(App& app) {
  if (lost_ != 0) return lost_;
  for (const auto& model : app.models()) {
    const std::string fault = model->fault();
    if (fault.empty()) continue;
    fmt::print(stderr, "ingot: the engine of {} has ended: {}; giving up\n", printable(model->id()), printable(fault));
    app.set_phase(Phase::kDead);
    lost_ = model->lost_device() ? kExitLostDevice : kExitLostEngine;
    return 0;
  }
  if (const std::string path = changed_mapped_file(); !path.empty()) {
    if (app.phase() != Phase::kReady) return 0;
    log_warn("{} was changed or truncated while in use: the server takes no more requests; start the server again",
             printable(path));
    app.set_phase(Phase::kDead);
    return 0;
  }
  return check_steps(app);
}

int Watchdog::check_steps(App& app) {
  const auto now = Clock::now();
  int64_t n_steps = 0;
  bool busy = false;
  for (const auto& model : app.models()) {
    const EngineGauges gauges = model->gauges();
    n_steps += gauges.n_steps;
    busy |= gauges.n_running + gauges.n_waiting > 0 && gauges.n_steps > 0;
  }
  if (!busy || n_steps != n_steps_) {
    if (app.phase() == Phase::kDead) app.set_phase(Phase::kReady);
    n_steps_ = n_steps;
    moved_ = now;
    return 0;
  }
  const auto still = now - moved_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(still).count();
  if (still >= limits_.hard) {
    fmt::print(stderr, "ingot: no step has ended for {} s; giving up\n", seconds);
    return kExitHung;
  }
  if (still >= limits_.soft && app.phase() == Phase::kReady) {
    log_warn("no step has ended for {} s", seconds);
    app.set_phase(Phase::kDead);
  }
  return 0;
}

}  // namespace ingot

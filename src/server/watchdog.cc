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
  return check_progress(app);
}

int Watchdog::check_progress(App& app) {
  const auto now = limits_.now();
  std::map<const ServedModel*, State> states;
  const ServedModel* slowest = nullptr;
  const auto models = app.models();  // keeps the models alive
  for (const auto& model : models) {
    const EngineGauges gauges = model->gauges();
    const auto before = states_.find(model.get());
    const bool is_still = gauges.is_working && before != states_.end() && before->second.progress == gauges.progress;
    const State& state = states[model.get()] = {gauges.progress, is_still ? before->second.moved : now};
    if (!slowest || state.moved < states[slowest].moved) slowest = model.get();
  }
  states_ = std::move(states);
  const auto still = slowest ? now - states_[slowest].moved : Clock::duration::zero();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(still).count();
  if (still == Clock::duration::zero()) {
    if (app.phase() == Phase::kDead) app.set_phase(Phase::kReady);
  } else if (still >= limits_.hard) {
    fmt::print(stderr, "ingot: {} has made no progress for {} s; giving up\n", printable(slowest->id()), seconds);
    return kExitHung;
  } else if (still >= limits_.soft && app.phase() == Phase::kReady) {
    log_warn("{} has made no progress for {} s", printable(slowest->id()), seconds);
    app.set_phase(Phase::kDead);
  }
  return 0;
}

}  // namespace ingot

#include "model/devices/device_model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/system.h"

namespace ingot {

void DeviceModel::take(std::unique_ptr<Backend> opened) {
  backend = std::move(opened);
  taken_before = backend->allocated_bytes(), free_before = backend->available_bytes();
}

DecoderCaches DeviceModel::make_caches(const DevicePlan& plan) {
  DecoderCaches caches;
  for (const KvShape& shape : plan.kv) {
    kv.push_back(shape.n_layers > 0 ? backend->make_kv(shape) : nullptr);
    caches.kv.push_back(kv.back().get());
  }
  if (plan.states) states = backend->make_states(plan.states);
  caches.states = states.get();
  return caches;
}

void DeviceModel::log_memory() const {
  const size_t free_after = std::min(backend->available_bytes(), free_before);
  log_info("{} of {}'s memory are allocated, and no more while it runs; the device has {} less free than before",
           human_bytes(backend->allocated_bytes()), name, human_bytes(free_before - free_after));
}

}  // namespace ingot

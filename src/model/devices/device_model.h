// DeviceModel: what one device holds of a model: its backend, the weights and caches of its blocks, and a program of
// these blocks. Decoders (ranks.h) and encoders (vectors/embedder.h) consist of these.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/devices/memory_plan.h"
#include "model/files/weights.h"
#include "model/program/decoder_program.h"

namespace ingot {

struct DeviceModel {
  std::string name;  // of the options
  std::unique_ptr<Backend> backend;
  size_t taken_before = 0, free_before = 0;  // bytes, before the model is loaded
  Weights weights;
  std::vector<std::unique_ptr<KvCache>> kv;  // as kv_caches(); null where the device has no layer of the cache
  std::unique_ptr<StateCache> states;        // null without recurrent layers
  std::optional<DevicePart> part;

  void take(std::unique_ptr<Backend> opened);          // notes what its memory holds before the model
  DecoderCaches make_caches(const DevicePlan& plan);
  void log_memory() const;  // after the program is allocated
};

}  // namespace ingot

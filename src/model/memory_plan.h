// The memory that a model will take, computed before any is taken: weights, KV cache, activations. The plan gives the
// default context and the size of the KV pool, and refuses a model that cannot fit, naming both numbers.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/kv.h"
#include "backend/state.h"
#include "model/config.h"
#include "model/split.h"
#include "model/weights.h"

namespace ingot {

class Backend;
struct RunnerOptions;

// What a plan needs to know of a device that runs a part of the model.
struct DeviceMemory {
  std::string name;                  // for messages
  const Backend* backend = nullptr;  // null: neither scratch nor the padding of caches is counted
  WeightBytes weights;               // of the part
  size_t available = 0;              // that the model may take
  bool fills = false;                // the KV cache may take all that is left of it; false: half
};

// One device's share of a plan. The fields mean what they mean in MemoryPlan.
struct DevicePlan {
  std::string name;
  KvShape kv;
  StateShape states;
  size_t weight_bytes = 0, borrowed_bytes = 0, kv_bytes = 0, state_bytes = 0, activation_bytes = 0;
  size_t available_bytes = 0;
  size_t total_bytes() const { return weight_bytes + kv_bytes + state_bytes + activation_bytes; }
};

// Numbers of bytes are sums over the devices.
struct MemoryPlan {
  int n_ctx = 0;  // tokens of one sequence
  KvShape kv;
  StateShape states;  // of recurrent layers: states for max_seqs sequences, and checkpoints
  int max_batch_tokens = 0;
  int max_seqs = 0;
  // All memory that holds weights: what the backend allocates for them, and embeddings that the backend reads from the
  // source's memory. The latter are pages of a mapped file: the system drops them when memory is short and reads them
  // again, which makes a model slow, so they count. A tied embedding counts twice: a copy for products, and the rows in
  // the file.
  size_t weight_bytes = 0;
  size_t borrowed_bytes = 0;    // part of weight_bytes: read from the source's memory
  size_t kv_bytes = 0;          // the backend's padding included
  size_t state_bytes = 0;       // the backend's padding included
  size_t activation_bytes = 0;  // of a step: buffers of the program's blocks and the backend's scratch
  StepLimits limits;            // of a step
  size_t available_bytes = 0;   // before the model is loaded
  std::vector<DevicePlan> devices;

  int n_checkpoints() const { return states ? states.n_slots - max_seqs : 0; }
  size_t total_bytes() const { return weight_bytes + kv_bytes + state_bytes + activation_bytes; }
  size_t allocated_bytes() const { return total_bytes() - borrowed_bytes; }  // by the backend, after loading
  std::string table() const;                                                 // a few lines for people to read
};

// Options that are 0 are chosen. The tokens of a step are the backend's prompt_chunk, or fewer (at least 512) if the
// buffers would take more than an eighth of the free memory. The context is the one the model was trained with, or the
// longest that fits. The pool holds one context for a single sequence; for several sequences, as much as fits, up to a
// context for each; where the options say how much memory to use, all that is left of that. Where every layer has a
// window, only a part of each sequence must fit, not its whole context. If several devices run the model, a number is
// the least that fits on each of them. Throws Error if the weights, or what the user asked for, do not fit.
MemoryPlan plan_memory(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                       const RunnerOptions& options);
// The same for one device.
MemoryPlan plan_memory(const Config& config, const WeightBytes& weights, size_t available_bytes,
                       const RunnerOptions& options, const Backend* backend = nullptr);

// For 1, 2, 4 ... sequences at once: the longest context that each sequence may fill, up to the model's own, until not
// even a short context fits. Empty if the weights do not fit. Leaves a twentieth of available memory free, but not on
// devices with `fills`.
std::vector<MemoryPlan> plans_that_fit(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                                       const RunnerOptions& options);
std::vector<MemoryPlan> plans_that_fit(const Config& config, const WeightBytes& weights, size_t available_bytes,
                                       const RunnerOptions& options, const Backend* backend = nullptr);

}  // namespace ingot

// Computes the memory that a model needs, before any is allocated: weights, KV cache, activations. The plan chooses the
// default context and the size of the KV pool. If a model does not fit, the error names the needed and the free bytes.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/kv.h"
#include "backend/state.h"
#include "model/config/config.h"
#include "model/config/split.h"
#include "model/files/weights.h"

namespace ingot {

class Backend;
struct RunnerOptions;

// How much of the memory that is left the KV cache may use: half, all but a twentieth of the device's, or all.
enum class Take : uint8_t { kHalf, kMost, kAll };

// The facts that a plan needs about a device that runs a part of the model.
struct DeviceMemory {
  std::string name;                  // for messages
  const Backend* backend = nullptr;  // null: neither scratch nor the padding of caches is counted
  WeightBytes weights;               // of the part
  size_t available = 0;              // that the model may use
  Take take = Take::kHalf;
};

// One device's share of a plan. The fields have the same meaning as in MemoryPlan.
struct DevicePlan {
  std::string name;
  std::vector<KvShape> kv;
  StateShape states;
  size_t weight_bytes = 0, borrowed_bytes = 0, kv_bytes = 0, state_bytes = 0, activation_bytes = 0;
  size_t available_bytes = 0;
  size_t total_bytes() const { return weight_bytes + kv_bytes + state_bytes + activation_bytes; }
};

// Numbers of bytes are sums over the devices.
struct MemoryPlan {
  int n_ctx = 0;  // tokens of one sequence
  std::vector<KvShape> kv;  // as kv_caches()
  StateShape states;  // of recurrent layers: states for max_seqs sequences, and snapshots
  int max_batch_tokens = 0;
  int max_seqs = 0;
  // All memory that holds weights: the backend's allocations, and embeddings that the backend reads from the source's
  // memory. Such embeddings are pages of a mapped file. They are counted, because a model is slow if the system drops
  // and rereads them. A tied embedding is one matrix.
  size_t weight_bytes = 0;
  size_t borrowed_bytes = 0;    // part of weight_bytes: read from the source's memory
  size_t kv_bytes = 0;          // the backend's padding included
  size_t state_bytes = 0;       // the backend's padding included
  size_t activation_bytes = 0;  // of a step: buffers of the program's blocks and the backend's scratch
  StepLimits limits;            // of a step
  size_t available_bytes = 0;   // before the model is loaded
  std::vector<DevicePlan> devices;

  int n_blocks() const { return kv.front().n_blocks; }  // for each block_size tokens of all sequences
  int n_snapshots() const { return states ? states.n_slots - max_seqs : 0; }
  size_t total_bytes() const { return weight_bytes + kv_bytes + state_bytes + activation_bytes; }
  size_t allocated_bytes() const { return total_bytes() - borrowed_bytes; }  // by the backend, after loading
  std::string table() const;                                                 // a few lines for people to read
};

constexpr int kFewSequences = 16;  // of a server on the CPU; on a GPU, the least that choose_sequences returns

// Throws Error if the backend does not keep a KV cache of these types.
void check_kv_types(const Backend& backend, KvTypes types);

// All of a limit that the user sets, and all of a GPU that is one of n_devices, because the rest of the model is on the
// others. Half of memory that other programs or models use too. Else all but a twentieth.
Take take_of(const Backend* backend, size_t n_devices, const RunnerOptions& options);

// The number of sequences at once, if the options' max_seqs is 0. On GPUs: the largest of 256, 128, 64, 32 and 16 whose
// states and snapshots take at most a quarter of what the weights leave, and for which the KV cache holds 2,048 tokens,
// or a context, of each sequence. Not more than the options' tokens of a step, which has a token of each. With a part
// of the model on the host: 16.
int choose_sequences(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                     const RunnerOptions& options);

// Chooses the options that are 0. The tokens of a step are the backend's prompt_chunk, or fewer (at least 512) if the
// buffers would use more than an eighth of the free memory. The context is the one that the model was trained with, or
// the longest that fits. For a single sequence, the pool holds one context. For several sequences, it holds as much as
// fits, up to a context for each. If the options limit the memory, the pool gets all that is left of it. If every layer
// has a window, only a part of each sequence must fit, not its whole context. If several devices run the model, each
// number is the largest that fits on all of them. Caches of layers with a window hold windows only (set_blocks). The
// devices are the first ones of the split's numbers: a process plans only for its own. Throws Error if the weights or
// the user's options do not fit.
MemoryPlan plan_memory(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                       const RunnerOptions& options);
// The same for one device.
MemoryPlan plan_memory(const Config& config, const WeightBytes& weights, size_t available_bytes,
                       const RunnerOptions& options, const Backend* backend = nullptr);

inline constexpr int kTextBlockSize = 16;  // tokens of a KV block for texts

// The plan of a model that reads texts within these limits and keeps nothing of them: its caches hold the tokens of one
// step. Throws MemoryError if the model does not fit.
DevicePlan plan_texts(const Config& config, const DeviceMemory& device, const StepLimits& limits);

// Plans for 1, 2, 4 ... sequences at once, until not even a short context fits. Each plan has the longest context that
// every sequence may fill, up to the model's own. Empty if the weights do not fit. Leaves a twentieth of available
// memory free, but not on devices with Take::kAll.
std::vector<MemoryPlan> plans_that_fit(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                                       const RunnerOptions& options);
std::vector<MemoryPlan> plans_that_fit(const Config& config, const WeightBytes& weights, size_t available_bytes,
                                       const RunnerOptions& options, const Backend* backend = nullptr);

// Bytes that a step within these limits needs on one device, without weights and caches. Measured on the list: the
// blocks' buffers, those of a draft head, and the backend's scratch (0 without a backend).
size_t step_bytes(const Config& config, const StepLimits& limits, const Backend* backend, const Split& split,
                  int device);

}  // namespace ingot

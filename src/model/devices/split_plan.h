// Chooses which device runs each block of a decoder that does not fit one device. Pure arithmetic: sizes in, split out.
//
// The devices are some GPUs, in the order of a step, and the host. The host is the last device in Split's numbers, but
// a step starts there: the host gets the first layers, as whole layers. In a model with experts, it may also get only
// the experts of some layers. Experts are most of the bytes, but a token reads few of them.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "model/config/split.h"

namespace ingot {

// The bytes of one part.
struct BlockNeeds {
  int layer = -1;         // -1: the embedding or the head
  size_t gpu_bytes = 0;   // of its weights and caches on a GPU
  size_t host_bytes = 0;  // the same on the host
  size_t read_bytes = 0;  // that a step of one token reads
  bool has_experts = false;
};

struct SplitLimits {
  std::vector<size_t> gpu_bytes;  // that each GPU has for blocks
  size_t host_bytes = 0;
};

// The user's choices. plan_split chooses the empty fields.
struct SplitWishes {
  std::optional<int> gpu_layers;    // this many layers are on GPUs, the last ones
  std::optional<int> host_experts;  // the experts of this many layers are on the host, the first ones of those on GPUs
  std::vector<int> layers_of_gpu;   // [n_gpus]; they add up to the layers on GPUs; empty: in proportion to memory
  std::vector<bool> on_host;        // [blocks]: these are on the host in any case; empty: none
};

// The fastest split that fits, by an estimate of the time of one token: bytes that the GPUs and the host read, and
// crossings between devices. Nothing if no split fits. If the wishes leave no choice, the split need not fit.
std::optional<Split> plan_split(const std::vector<BlockNeeds>& blocks, const SplitLimits& limits,
                                const SplitWishes& wishes);

// Milliseconds of that estimate.
double estimated_ms(const Split& split, const std::vector<BlockNeeds>& blocks, int n_gpus);

}  // namespace ingot

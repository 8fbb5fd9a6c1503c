// A decoder as a list of blocks (backend/block.h): embedding, layers of attention and feed-forward, and an end, which
// is either the head, for logits, or pooling, for vectors.
#pragma once
#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace ingot {

// Where a decoder keeps what it has read. The layers of each cache are numbered by themselves.
struct DecoderCaches {
  KvCache* kv = nullptr;
  StateCache* states = nullptr;  // only of models with recurrent layers
};

// The list, without an end. Its sizes come from the config alone: with weights that are not loaded yet it can be laid
// out, and not be run. n_ctx: tokens of the longest sequence, which some ropes depend on.
Program decoder_layers(const Config& config, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx);
HeadBlock head_block(const Config& config, const Weights& weights);

// What a slot of the state cache holds of this model; no layers where none is recurrent.
StateShape state_shape(const Config& config, int n_slots);

// What a step within these limits takes beside weights and caches, as measured on the list: buffers of blocks, and
// scratch of the backend (nothing without one).
size_t step_bytes(const Config& config, const StepLimits& limits, const Backend* backend);

}  // namespace ingot

// A decoder as a list of blocks (backend/block.h): embedding, layers of attention and feed-forward, and an end. The end
// is either the head (for logits) or pooling (for vectors).
#pragma once
#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace ingot {

// The caches of a decoder. Layers are numbered separately in each cache.
struct DecoderCaches {
  KvCache* kv = nullptr;
  StateCache* states = nullptr;  // null in models without recurrent layers
};

// The list without an end. All sizes come from the config, so the list can be laid out before the weights are loaded,
// but not run. n_ctx: tokens of the longest sequence; some ropes depend on n_ctx.
Program decoder_layers(const Config& config, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx);
HeadBlock head_block(const Config& config, const Weights& weights);

// Shape of the state cache for this model; no layers if the model has no recurrent layer.
StateShape state_shape(const Config& config, int n_slots);

// Bytes that a step within these limits takes besides weights and caches, measured on the list: the blocks' buffers,
// those of a draft head, and the backend's scratch (0 without a backend).
size_t step_bytes(const Config& config, const StepLimits& limits, const Backend* backend);

}  // namespace ingot

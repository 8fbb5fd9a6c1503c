// An encoder as a list of blocks (backend/block.h): every token sees all others, and the end is pooling. A batch holds
// whole texts, so keys and values are needed within one layer only, and all layers share the pages of one layer.
#pragma once
#include "model/encoder_weights.h"

namespace ingot {

// The list, without an end. `kv` has one layer.
Program encoder_layers(const EncoderConfig& config, const EncoderWeights& weights, KvCache* kv);

}  // namespace ingot

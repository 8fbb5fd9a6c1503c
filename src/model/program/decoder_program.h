// A model as a list of blocks (backend/block.h): embedding, layers of attention and feed-forward, and an
// end. The end is either the head (for logits) or pooling (for vectors). If several devices run the model, each has a
// list of its own blocks.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "backend/blocks/embed.h"
#include "backend/blocks/head.h"
#include "model/config/config.h"
#include "model/config/split.h"
#include "model/files/weights.h"

namespace ingot {

// The caches of a decoder. Layers are numbered separately in each cache.
struct DecoderCaches {
  std::vector<KvCache*> kv;      // in the order of kv_caches(); empty: the list is only laid out
  StateCache* states = nullptr;  // null in models without recurrent layers
};

// The list without an end. All sizes come from the config, so the list can be laid out before the weights are loaded,
// but not run. n_ctx: tokens of the longest sequence; some ropes depend on n_ctx.
Program decoder_layers(const Config& config, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx);
NormArgs final_norm(const Config& config, const Weights& weights);
HeadBlock head_block(const Config& config, const Weights& weights);

// The list of one device of a split. In the list of the head's device, a RemoteBlock without `run` stands for
// successive runs of other devices.
struct DevicePart {
  Program program;
  std::vector<BlockRange> runs;  // of this device, in the order of Split::runs: their blocks in the list
};
DevicePart device_part(const Config& config, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx, const Split& split, int device);

// Shape of the state cache for the part; empty if no part keeps states.
StateShape state_shape(const Config& config, int n_slots, const OwnParts& part = {});

}  // namespace ingot

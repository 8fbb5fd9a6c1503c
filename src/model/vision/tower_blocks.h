// The blocks of a vision tower with their weights, from a checkpoint of either dialect.
#pragma once
#include <memory>
#include <vector>

#include "backend/blocks/attention.h"
#include "backend/blocks/clipped.h"
#include "backend/blocks/feed_forward.h"
#include "backend/blocks/merge.h"
#include "backend/blocks/patches.h"
#include "model/vision/tower_config.h"

namespace ingot {

struct TowerBlocks {
  int head_dim = 0;  // of the blocks: that of the config, or a larger one that is faster
  PatchesBlock patches;
  std::vector<AttentionBlock> attention;       // [n_layers]
  std::vector<FeedForwardBlock> feed_forward;  // [n_layers]
  // In place of these, in towers that clip: [n_layers]
  std::vector<ClippedAttentionBlock> clipped_attention;
  std::vector<ClippedFeedForwardBlock> clipped_feed_forward;
  MergeBlock merge;
  std::vector<MergeBlock> deepstack;  // behind TowerConfig::deepstack_layers
  std::vector<std::shared_ptr<void>> kept;  // that backends may read
};

// Throws Error naming a tensor that is missing or has another shape.
TowerBlocks load_tower(const TowerConfig& config, WeightSource& source, Backend& backend);

}  // namespace ingot

// The sizes of layers that share weights (Zamba 2), as a part of the config.
#pragma once
#include <vector>

namespace ingot {

struct SharedTransformerConfig {
  int n_blocks = 0;         // sets of weights, in turn; 0: the model has no such layers
  int adapter_rank = 0;     // 0: no adapters
  bool adapts_attention = false;
  std::vector<int> layers;  // that have the part, in order
};

}  // namespace ingot

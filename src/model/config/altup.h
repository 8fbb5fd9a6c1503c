// The sizes of models with several residual streams (backend/blocks/altup.h), as a part of the config.
#pragma once
#include <vector>

namespace ingot {

struct AltUpConfig {
  int n_streams = 0;   // 0: one stream without AltUp
  bool scales_x = true;  // the layer's input is gated by scaled columns of x
  int laurel_rank = 0;
  // [n_layers]: FeedForwardBlock::deviations of each layer; not finite: none
  std::vector<float> deviations;
};

}  // namespace ingot

// The sizes of Mamba's mixers (arXiv:2312.00752), as a part of the config.
#pragma once
#include <optional>

namespace ingot {

struct Mamba1Config {
  int inner = 0;       // channels
  int state_dim = 0;   // of a channel
  int dt_rank = 0;
  int conv_width = 0;  // inputs that the short convolution sees in each channel
  bool has_norms = false;  // of dt, b and c
  float norms_eps = 0;     // of these norms; 0: the model's
  std::optional<bool> conv_bias;  // whether the checkpoint must have it; nothing: it may
};

}  // namespace ingot

// The sizes of Griffin's recurrent mixers, as a part of the config.
#pragma once

namespace ingot {

struct RgLruConfig {
  int n_heads = 0, head_dim = 0;  // of the gates' matrices
  int conv_width = 0;             // inputs that the convolution sees in each channel
};

}  // namespace ingot

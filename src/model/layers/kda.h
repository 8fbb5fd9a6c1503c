// The sizes of Kimi's delta attention, as a part of the config.
#pragma once

namespace ingot {

// These heads are not the attention's heads.
struct KdaConfig {
  int n_heads = 0, head_dim = 0;  // of keys and of values
  int conv_width = 0;             // inputs that the short convolutions see in each channel
};

}  // namespace ingot

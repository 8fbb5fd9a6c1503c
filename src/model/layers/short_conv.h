// The sizes of gated short convolutions, as a part of the config.
#pragma once
#include <cstdint>

namespace ingot {

constexpr int kMaxConvWidth = 16;

struct ShortConvConfig {
  int width = 0;              // inputs that a channel sees, its own included
  int n_channels = 0;         // the model's dim, or a rank's part of it
  int64_t first_channel = 0;  // of a rank
};

}  // namespace ingot

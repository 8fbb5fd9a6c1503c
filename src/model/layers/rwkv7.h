// The sizes of RWKV-7's mixers, as a part of the config.
#pragma once

namespace ingot {

struct Rwkv7Config {
  int head_dim = 0;  // 0: the model has no such mixers
  int decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
  float head_eps = 64e-5f;  // of the norm of each head
};

}  // namespace ingot

// The multipliers of Falcon-H1's directories, as a part of the config. GGUF files have them in their matrices
// (MatrixRow::gguf_factor).
#pragma once
#include <array>

namespace ingot {

struct Multipliers {
  bool are_folded = false;  // into the matrices of GGUF files, with those of embedding and logits
  float attention_in = 1, attention_out = 1, key = 1;
  float gate = 1, down = 1;                            // of the feed-forward
  float ssm_in = 1, ssm_out = 1;                       // of Mamba-2
  std::array<float, 5> ssm_columns = {1, 1, 1, 1, 1};  // of gates, x, b, c, dt
};

}  // namespace ingot

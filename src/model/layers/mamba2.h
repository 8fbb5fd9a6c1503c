// The sizes of Mamba-2's mixers (arXiv:2405.21060), as a part of the config.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>

namespace ingot {

// These heads are not the attention's heads.
struct Mamba2Config {
  int n_heads = 0, head_dim = 0;
  int n_groups = 1;  // of heads with the same b and c
  int state_dim = 0;
  int conv_width = 0;  // inputs that the short convolution sees in each channel
  float min_step = 0, max_step = std::numeric_limits<float>::infinity();  // of time
  std::optional<bool> has_norm;   // of the gated outputs; nothing: if the checkpoint has it
  std::optional<bool> conv_bias;  // whether the checkpoint must have it; nothing: it may

  int64_t inner() const { return int64_t{n_heads} * head_dim; }
  int64_t keys() const { return int64_t{n_groups} * state_dim; }
  int64_t n_channels() const { return inner() + 2 * keys(); }  // x, b and c
  // Of the projection: gates, x, b, c, dt.
  std::array<int64_t, 5> columns() const { return {inner(), inner(), keys(), keys(), n_heads}; }
};

}  // namespace ingot

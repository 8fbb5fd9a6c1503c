// The sizes of attention over latents (arXiv:2405.04434), as a part of the config.
#pragma once

namespace ingot {

struct Config;

// Other models have kv_rank = 0. The cache holds one latent for each token, shared by all heads: rope_dim rotated
// elements, then kv_rank others. Config's head_dim is the size of the latent, and n_kv_heads is 1.
struct LatentConfig {
  int q_rank = 0;  // of the latent from which queries are made; 0: queries have no latent
  int kv_rank = 0;
  int nope_dim = 0, rope_dim = 0;  // elements of a query's head without rope, and with rope
  int value_dim = 0;
};
// Makes the latents a part of the config, and sets the sizes that follow from them.
void set_latents(Config& config, const LatentConfig& latents);

}  // namespace ingot

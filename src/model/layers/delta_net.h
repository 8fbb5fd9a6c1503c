// The sizes of gated delta nets (arXiv:2412.06464), as a part of the config.
#pragma once
#include <cstdint>

#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"

namespace ingot {

// Other models have n_value_heads = 0. These heads are not the attention's heads.
struct DeltaConfig {
  int n_key_heads = 0, n_value_heads = 0;
  int key_dim = 0, value_dim = 0;  // of one head
  int conv_width = 0;              // inputs that the short convolution sees in each channel
  bool tiled = false;              // value head h uses key head h % n_key_heads; otherwise neighbours share one
  int64_t first_key_head = 0;      // of a rank
  float share = 1;                 // as in DeltaRuleArgs

  int all_keys() const { return n_key_heads * key_dim; }
  int all_values() const { return n_value_heads * value_dim; }
  int n_channels() const { return 2 * all_keys() + all_values(); }  // q, k and v
};

// The sizes from the keys of each dialect, and as keys of GGUF. usual: the sizes if the file has none; 0: it must.
DeltaConfig read_delta_sizes(const GgufKeys& keys);
DeltaConfig read_delta_sizes(const HfConfig& file, const DeltaConfig& usual = {});
void write_delta_sizes(const DeltaConfig& sizes, const GgufKeyWriter& keys);

}  // namespace ingot

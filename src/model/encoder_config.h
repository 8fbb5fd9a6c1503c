// Encoders: models like BERT that read a whole text at once, where every token sees all others, and give a vector for
// each token. A row of the table is an architecture. EncoderConfig is every number of a model, read once and checked.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/checkpoint.h"
#include "model/rope.h"

namespace ingot {

struct EncoderArch {
  const char* gguf_name;
  const char* hf_name;  // model_type of config.json
  Activation activation = Activation::kGelu;
  bool pre_norm = false;             // norm before attention and feed-forward; otherwise after each residual sum
  bool gated = false;                // feed-forward: act(gate) * up
  bool rope = false;                 // otherwise positions are learned
  bool positions_after_pad = false;  // in directories, position 0 is the table's row after the padding token's id
};

struct EncoderConfig {
  const EncoderArch* arch = nullptr;
  std::string name;
  int n_layers = 0, dim = 0, n_heads = 0, head_dim = 0, ffn_dim = 0, n_vocab = 0;
  int n_ctx = 0;           // tokens of the longest text
  int first_position = 0;  // the row of the position table for position 0; converters to GGUF drop the rows before it
  float norm_eps = 0;
  Activation activation = Activation::kGelu;
  float rope_theta = 10000;
  int window = 0;  // of local layers: tokens that a token sees to each side, itself included; 0: all layers are global
  float local_rope_theta = 10000;  // of local layers
  std::vector<bool> is_local;      // [n_layers]
};

std::span<const EncoderArch> all_encoder_archs();

// Nothing if the table does not have the checkpoint's architecture. Throws Error naming a key that is missing or out of
// range.
std::optional<EncoderConfig> find_encoder_config(const Checkpoint& checkpoint);

}  // namespace ingot

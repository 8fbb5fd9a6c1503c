// Config: every number of a model, read once from its checkpoint's keys and checked; nothing divides by them before that.
#pragma once
#include <optional>
#include <string>

#include "model/arch.h"
#include "model/rope.h"

namespace ingot {

class Gguf;
struct HfConfig;

struct Config {
  const Arch* arch = nullptr;
  std::string name;           // general.name, as the file has it: print with printable()
  int n_layers = 0;
  int dim = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int ffn_dim = 0;
  int n_vocab = 0;
  int n_ctx_train = 0;
  float norm_eps = 0;
  int rot_dim = 0;            // how many of a head's dimensions turn
  float rope_theta = 10000;
  RopeScaling rope_scaling;
  RopeLayout rope_layout = RopeLayout::kHalfSplit;
  int sliding_window = 0;     // 0: none
  std::optional<bool> tied_output;  // the output matrix is the embedding; nothing: when the checkpoint has none

  int q_dim() const { return n_heads * head_dim; }
  int kv_dim() const { return n_kv_heads * head_dim; }
};

// Throws Error naming the key and the value that are missing, of the wrong type or out of range.
Config config_from_gguf(const Gguf& file);
Config config_from_hf(const HfConfig& file);

}  // namespace ingot

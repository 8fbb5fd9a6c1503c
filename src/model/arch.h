// Architectures as data: a row says what the checkpoint's keys and tensors do not. Sizes come from keys; biases and q/k
// norms from which tensors exist. docs/add-a-model.md shows how to add one.
#pragma once
#include <span>
#include <string_view>

#include "backend/backend.h"

namespace ingot {

struct Arch {
  const char* gguf_name;                              // general.architecture
  const char* hf_name;                                // model_type of config.json
  RopeLayout gguf_rope = RopeLayout::kHalfSplit;      // converters permuted the rows of llama's q and k, and no others'
  RopeLayout hf_rope = RopeLayout::kHalfSplit;
  bool hf_window_opt_in = false;                      // sliding_window counts only with use_sliding_window, in config.json
  Activation activation = Activation::kSilu;
  NormKind norm = NormKind::kRms;
};

std::span<const Arch> all_archs();

// The (first) row of that name in one of the dialects. Throws Error that lists the supported names.
const Arch& find_gguf_arch(std::string_view name);
const Arch& find_hf_arch(std::string_view name);

}  // namespace ingot

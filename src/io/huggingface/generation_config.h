// The recommended sampling settings of a model: generation_config.json of a Hugging Face directory, or
// general.sampling.* of a GGUF file. If the file lacks a setting, the program's default applies. Flags override both.
// The tokens that end an answer are read elsewhere (read_hf_ends). Used by model/checkpoint.
#pragma once
#include <optional>

#include "io/huggingface/directory.h"
#include "io/metadata.h"

namespace ingot {

class GgufWriter;

struct GenerationConfig {
  std::optional<float> temperature;  // 0: greedy; "do_sample": false gives 0 too
  std::optional<int> top_k;          // 0: off
  std::optional<float> top_p, min_p, typical_p, repetition_penalty;
  std::optional<int> penalty_window;  // in GGUF files only; -1: all tokens
};

// Throws Error naming the file, the key and the value if a value has the wrong kind or is out of range.
GenerationConfig read_generation_config(const HfDirectory& directory);
GenerationConfig read_generation_config(const Metadata& metadata);

// Writes the settings as keys of a GGUF file.
void write_generation_config(const GenerationConfig& config, GgufWriter& writer);

}  // namespace ingot

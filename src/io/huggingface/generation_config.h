// The sampling settings that the makers of a model recommend: generation_config.json of a Hugging Face directory,
// general.sampling.* of a GGUF file. A setting that the file lacks stays empty, and the program's default applies; a
// flag overrides both. The tokens that end an answer are read with the tokenizer (read_hf_ends). Used by
// model/checkpoint.
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

// Throws Error naming file, key and value if a value is of the wrong kind or out of range.
GenerationConfig read_generation_config(const HfDirectory& directory);
GenerationConfig read_generation_config(const Metadata& metadata);

// Writes the settings as keys of a GGUF file.
void write_generation_config(const GenerationConfig& config, GgufWriter& writer);

}  // namespace ingot

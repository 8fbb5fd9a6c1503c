// How the makers of a model would have it sampled: generation_config.json of a Hugging Face directory,
// general.sampling.* of a GGUF file. What a file does not say stays empty, and the program's own default holds; a flag
// beats both. The tokens that end an answer are read with the tokenizer (read_hf_ends). Used by model/checkpoint.
#pragma once
#include <optional>

#include "io/huggingface/directory.h"
#include "io/metadata.h"

namespace ingot {

class GgufWriter;

struct GenerationConfig {
  std::optional<float> temperature;  // 0: greedy, which is also what "do_sample": false says
  std::optional<int> top_k;          // 0: off
  std::optional<float> top_p, min_p, typical_p, repetition_penalty;
  std::optional<int> penalty_window;  // GGUF alone; -1: everything
};

// Throw Error for a value that is of the wrong kind or out of range, naming file, key and value.
GenerationConfig read_generation_config(const HfDirectory& directory);
GenerationConfig read_generation_config(const Metadata& metadata);

// As a GGUF file has it.
void write_generation_config(const GenerationConfig& config, GgufWriter& writer);

}  // namespace ingot

// modules.json of a sentence-transformers directory lists its modules in order: the model, pooling (combines the token
// vectors of a text into one vector), then dense layers and normalizations of the pooled vector. Also reads the model's
// sentence_bert_config.json, the options for input texts. Used by model/embedder, model/classifier and
// hub/directory_files.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "io/huggingface/directory.h"

namespace ingot {

struct HfModules {
  struct Step {
    enum class Kind : uint8_t { kDense, kNormalize } kind;
    std::string folder;  // for a dense layer: the folder in the directory
  };
  // "cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"; nothing: no pooling module.
  std::optional<std::string> pooling;
  bool pools_prompt = true;                // false: the vectors of a prompt's tokens are not pooled
  std::vector<Step> after;                 // the steps after pooling
  std::optional<std::string> logit_score;  // the folder of a LogitScore (compares two answer tokens)
};
// Without modules.json all fields are empty. Throws Error if a module, the order of modules or an option is not
// supported.
HfModules read_hf_modules(const HfDirectory& directory);

// The files with the options for input texts; the first existing file is used. The names are those of
// sentence-transformers.
inline constexpr const char* kHfTextOptionFiles[] = {
    "sentence_bert_config.json",      "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json",  "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
};

struct HfTextOptions {
  std::optional<int> max_tokens;  // of a text; nothing: the model's own limit
  bool lower_case = false;        // texts are converted to lower case first
};
// Reads one of kHfTextOptionFiles, and the length in tokenizer_config.json if the first file has no length. Throws
// Error if an option is not supported.
HfTextOptions read_hf_text_options(const HfDirectory& directory);

}  // namespace ingot

// modules.json of a sentence-transformers directory: what runs, and in which order. First the model, then pooling (how
// the vectors of a text's tokens become one), then dense layers and normalizations of that vector. And the model's own
// sentence_bert_config.json: how it reads texts. Used by model/embedder, model/classifier and hub/directory_files.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "io/huggingface/directory.h"

namespace ingot {

struct HfModules {
  struct Step {
    enum class Kind : uint8_t { kDense, kNormalize } kind;
    std::string folder;  // of a dense layer: its name in the directory
  };
  // "cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"; nothing: there is no pooling.
  std::optional<std::string> pooling;
  bool pools_prompt = true;                // false: the vectors of a prompt's tokens are left out
  std::vector<Step> after;                 // pooling
  std::optional<std::string> logit_score;  // the folder of a LogitScore: the model answers with one of two tokens
};
// Without modules.json there is nothing. Throws Error for a module, an order of modules or an option that is not
// supported.
HfModules read_hf_modules(const HfDirectory& directory);

// Where a text's options stand: of these files the first that there is. The names are those of sentence-transformers.
inline constexpr const char* kHfTextOptionFiles[] = {
    "sentence_bert_config.json",      "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json",  "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
};

struct HfTextOptions {
  std::optional<int> max_tokens;  // of a text; nothing: as many as the model reads
  bool lower_case = false;        // texts become lower case before anything else
};
// One of kHfTextOptionFiles, and the length in tokenizer_config.json where the first says none. Throws Error for an
// option that is not supported.
HfTextOptions read_hf_text_options(const HfDirectory& directory);

}  // namespace ingot

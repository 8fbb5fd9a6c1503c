// The normalizer of tokenizer.json, which changes a text before all other steps. For io/huggingface/pipeline.
#pragma once
#include <string>
#include <vector>

#include "io/json.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// The steps of a "Sequence" under `list`, or the single step; empty for null.
std::vector<Json> hf_steps(const Json& root, const char* key, const char* list);

bool hf_is_type(const Json& step, std::string_view type);
bool hf_flag_or(const Json& step, const char* key, bool fallback);
[[noreturn]] void hf_refuse(const Json& step, const char* what);

// Converts the expression of {"Regex": ...} to PCRE2's syntax. Throws Error if the expression is invalid, cannot be
// converted, or may take exponential time.
std::string hf_expression(const Json& regex);

// Throws Error naming a step that is not supported.
std::vector<NormalizerStep> read_hf_normalizer(const Json& root);

}  // namespace ingot

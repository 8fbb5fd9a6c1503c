// The format of a model's answers, and the model's special tokens that this format uses.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/calls/call_format.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// The row for the model's chat template. If the template has no calls, the prompt describes tools and calls in words
// (generic_tools.h), and the row is `generic`.
const CallFormat& call_format_of_model(std::string_view chat_template);

// The special tokens in the format's texts, sorted. AnswerParser needs these tokens in the decoded answer.
std::vector<int32_t> marker_tokens(const CallFormat& format, const Tokenizer& tokenizer);

}  // namespace ingot

// Which format a model's answers have, and which of its special tokens that format reads.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/calls/call_format.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// The row for the model's chat template. A template that shows no calls gets tools and calls in words
// (generic_tools.h): that row is `generic`.
const CallFormat& call_format_of_model(std::string_view chat_template);

// The special tokens that stand in the format's texts, sorted: AnswerParser needs them in the decoded answer.
std::vector<int32_t> marker_tokens(const CallFormat& format, const Tokenizer& tokenizer);

}  // namespace ingot

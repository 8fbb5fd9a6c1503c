// The call format of a model by its chat template, and which special tokens spell the format's markers. The server and
// `ingot chat` decode answers with these tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "text/calls/call_format.h"
#include "text/chat.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// A template that shows no calls gets tools and calls in words (generic_tools.h), of which `generic` is the format.
const CallFormat& call_format_of(const ChatTemplate& chat);

// Special tokens whose text is in one of the format's texts, sorted.
std::vector<int32_t> marker_tokens(const Tokenizer& tokenizer, const CallFormat& format);

}  // namespace ingot

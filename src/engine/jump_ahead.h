// Jump-ahead: turns text that a grammar forces into tokens at once, because sampling would take one step per token. The
// engine calls forced_tokens after each token of a constrained answer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/answer_constraint.h"

namespace ingot {

inline constexpr size_t kContextTokens = 32;  // a tokenizer's cuts depend on at most this many tokens before the text

// Returns the tokens of the text that the grammar forces after `output`, the answer so far or its last kContextTokens
// tokens. The last token may change when more text is known. So the last token is left to sampling, unless the answer
// ends with that token. Returns no tokens if no text is forced, if no tokenizer is known, or if the tokenizer joins the
// start of the forced text to the last token of `output`. Throws the exceptions of the grammar.
std::vector<int32_t> forced_tokens(AnswerConstraint& constraint, std::span<const int32_t> output,
                                   const Effort& effort = kFullEffort);

}  // namespace ingot

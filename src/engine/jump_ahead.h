// Jump-ahead: text that a grammar forces becomes tokens at once. Sampling each of these tokens would take one step per
// token. The engine calls forced_tokens after each token of a constrained answer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/answer_constraint.h"

namespace ingot {

// The tokens that the tokenizer makes of the forced text after `output`, the answer so far. The last token may change
// once more text is known, so it is left out for sampling, unless the answer ends with this token. Returns no tokens if
// no text is forced, if no tokenizer is known, or if the tokenizer joins the start of the forced text to the last token
// of `output`. Passes on exceptions of the grammar.
std::vector<int32_t> forced_tokens(AnswerConstraint& constraint, std::span<const int32_t> output);

}  // namespace ingot

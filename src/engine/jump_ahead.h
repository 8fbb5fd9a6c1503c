// Jump-ahead: text that a grammar forces becomes tokens at once, where a draw of each would take a step of its own.
// Called by the engine, behind each token of a constrained answer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/answer_constraint.h"

namespace ingot {

// The tokens that the tokenizer makes of the forced text behind `output`, the answer so far. The last of them may be
// another one once more text is known, so it is left to a draw, unless the answer ends with it. Nothing where no text
// is forced, where no tokenizer is known, or where the tokenizer joins the beginning of the forced text to the output's
// last token. Throws what the grammar throws.
std::vector<int32_t> forced_tokens(AnswerConstraint& constraint, std::span<const int32_t> output);

}  // namespace ingot

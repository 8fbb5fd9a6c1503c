// ConstraintStart: where in an answer its grammar begins.
#pragma once
#include <cstdint>
#include <string>

namespace ingot {

// The grammar begins after the first token that completes `text` or that equals `token` (a control token, which has no
// text). If both are empty, the grammar begins with the first token of the answer.
struct ConstraintStart {
  std::string text;
  int32_t token = -1;
  bool is_first() const { return text.empty() && token < 0; }
};

}  // namespace ingot

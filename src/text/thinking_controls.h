// ThinkingControls: how a request can steer a model's thinking, as far as the model's chat template knows. The template
// is rendered with both values of a variable: if the results are the same, the variable does nothing.
#pragma once
#include <string>
#include <vector>

#include "text/chat.h"

namespace ingot {

struct ThinkingControls {
  std::string switch_name;           // the template's boolean variable (`enable_thinking`, `thinking`); "": none
  std::vector<std::string> efforts;  // values of `reasoning_effort` that the template tells apart
};

ThinkingControls thinking_controls(const ChatTemplate& chat);

}  // namespace ingot

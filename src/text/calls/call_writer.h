// Writes calls in a family's syntax, as the model itself would write them: for the history of a conversation whose
// chat template does not show calls.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "text/calls/call_format.h"

namespace ingot {

// calls: tool_calls in OpenAI's form, with arguments as objects. The format must have calls.
std::string written_calls(const CallFormat& format, const nlohmann::ordered_json& calls);

}  // namespace ingot

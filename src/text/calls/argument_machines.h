// The arguments of a call in syntaxes that are no JSON, as machines. They enforce the schema of the JSON that
// AnswerParser makes of the text.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "text/calls/call_format.h"
#include "text/calls/marker_spelling.h"
#include "text/grammar/automaton.h"

namespace ingot {

// `schema`: of the arguments, an object; `json`: the machine of that schema, or of a wider one. The text is what stands
// between begin_text and end_text of the format. The format must outlive the machine. Throws Error for a name of a
// parameter that the syntax cannot write.
std::unique_ptr<Automaton> make_arguments_machine(const CallFormat& format, const MarkerSpelling& spelling,
                                                  const nlohmann::ordered_json& schema,
                                                  std::unique_ptr<Automaton> json);

}  // namespace ingot

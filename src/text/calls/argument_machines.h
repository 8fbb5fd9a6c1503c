// Machines for the arguments of a call in syntaxes other than JSON. The machines enforce the schema on the JSON into
// which AnswerParser converts the text.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "text/calls/call_format.h"
#include "text/calls/marker_spelling.h"
#include "text/grammar/languages/automaton.h"

namespace ingot {

// `schema`: schema of the arguments, an object. `json`: a machine for that schema or for a wider schema. The machine
// reads the text between begin_text and end_text of the format. The format must outlive the machine. Throws Error if
// the syntax cannot write the name of a parameter.
std::unique_ptr<Automaton> make_arguments_machine(const CallFormat& format, const MarkerSpelling& spelling,
                                                  const nlohmann::ordered_json& schema,
                                                  std::unique_ptr<Automaton> json);

}  // namespace ingot

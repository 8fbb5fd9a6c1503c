// The grammar of a whole answer: reasoning, content and calls, written as AnswerParser reads them. It forces calls,
// holds calls to the schemas of their tools, and holds content to a schema where the answer has markers around it.
// Called by the server, for one of its requests.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/calls/call_format.h"
#include "text/calls/marker_spelling.h"
#include "text/grammar/model_grammars.h"

namespace ingot {

struct AnswerRules {
  enum class Calls : uint8_t { kNone, kMay, kMust };
  enum class Reasoning : uint8_t {
    kNone,    // the answer has none
    kMay,     // it may come first
    kOpen,    // the prompt has begun it
    kBehind,  // it is over, and is no part of this grammar
  };
  struct Tool {
    std::string name;
    std::string schema;  // JSON text: of the arguments
    std::string where;   // the schema is in the request, for messages
  };

  const CallFormat* format = nullptr;
  MarkerSpelling spelling;
  Reasoning reasoning = Reasoning::kNone;
  Calls calls = Calls::kNone;
  bool parallel = true;                // several calls may come, one after another
  std::vector<Tool> tools;             // that may be called
  std::optional<GrammarText> content;  // what content follows; else it is any text
  std::string content_where;           // it is in the request, for messages

  // Says all that the grammar is made of. Descriptions and other annotations of schemas are no part of it.
  std::string key() const;
};

// A tool's schema as the grammar needs it: of an object, without descriptions and other annotations. `parameters` null:
// the tool has none. Throws Error, which begins with `where`, for what is no schema of an object.
std::string arguments_schema(const nlohmann::ordered_json& parameters, const std::string& where);

// Throws Error that begins with the place in the request: "tools[3].function.parameters: ...".
std::unique_ptr<Automaton> compile_answer(const AnswerRules& rules);

}  // namespace ingot

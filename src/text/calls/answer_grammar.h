// The grammar of a whole answer: reasoning, content and calls in the form that AnswerParser reads. The grammar forces
// calls, holds calls to the schemas of their tools, and holds the content to the grammar that the request asks for. The
// server caches these grammars by AnswerRules::key().
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/calls/call_format.h"
#include "text/calls/marker_spelling.h"
#include "text/grammar/masks/model_grammars.h"

namespace ingot {

struct AnswerRules {
  enum class Calls : uint8_t { kNone, kMay, kMust };
  enum class Reasoning : uint8_t {
    kNone,    // the answer has no reasoning
    kMay,     // reasoning may come first
    kOpen,    // the prompt has begun the reasoning
    kBefore,  // the reasoning ends before this grammar begins
  };
  struct Tool {
    std::string name;
    std::string schema;  // JSON text: schema of the arguments
    std::string where;   // place of the schema in the request, for messages
  };

  const CallFormat* format = nullptr;
  MarkerSpelling spelling;
  Reasoning reasoning = Reasoning::kNone;
  Calls calls = Calls::kNone;
  bool parallel = true;                // the answer may have several calls
  std::vector<Tool> tools;             // the tools that may be called
  std::optional<GrammarText> content;  // the grammar of the content; empty: any text
  std::string content_where;           // place of `content` in the request, for messages
  bool is_lenient = false;             // a part of a tool's schema that cannot be enforced becomes a warning

  // Identifies the grammar: equal keys mean equal grammars. Descriptions and other annotations of schemas are not part
  // of the key.
  std::string key() const;
};

// A tool's schema in the form that the grammar needs: the schema of an object, without descriptions and other
// annotations. `parameters` is null if the tool has no parameters. Throws Error, which begins with `where`, if
// `parameters` is not the schema of an object.
std::string arguments_schema(const nlohmann::ordered_json& parameters, const std::string& where);

// Throws Error, which begins with the place in the request: "tools[3].function.parameters: ...". Adds warnings, which
// begin in the same way, to `warnings` unless it is null.
std::unique_ptr<Automaton> compile_answer(const AnswerRules& rules, std::vector<std::string>* warnings = nullptr);

}  // namespace ingot

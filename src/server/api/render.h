// What the render routes answer: the token ids of a prompt, as vLLM's /v1/completions/render and
// /v1/chat/completions/render give them. Routers that know which server has which prefix in its cache call these routes
// (llm-d's token producer reads `token_ids`).
#pragma once
#include "server/answers/generation.h"
#include "server/requests/request_memory.h"

namespace ingot {

// Appends {"request_id", "model", "token_ids", "features"}; `features` is for pictures, so it is null.
inline void add_rendered(AnswerText& out, const std::string& id, const ServedModel& model,
                         const std::vector<int32_t>& tokens) {
  out += "{\"request_id\":";
  out.add_json(id);
  out += ",\"model\":";
  out.add_json(model.id());
  out += ",\"token_ids\":[";
  for (size_t i = 0; i < tokens.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(tokens[i]);
  out += "],\"features\":null}";
}

}  // namespace ingot

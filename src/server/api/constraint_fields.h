// The fields that make an answer follow a schema, a regular expression, a choice or a grammar: OpenAI's
// response_format, vLLM's structured_outputs and guided_*, llama.cpp's grammar and json_schema. One of them at most;
// what cannot be enforced is refused, never ignored.
#pragma once
#include "server/api/answer_form.h"
#include "server/api/api.h"
#include "server/api/fields.h"
#include "server/generation.h"

namespace ingot {

// Compiles it into spec.constraint. Throws ApiError 400 with the keyword and its path in the schema.
void read_constraint(const ApiCall& call, const Fields& fields, GenerationSpec& spec);

// `format` of another API, which stands at `path`: {"type": "json_schema", "schema": ...}, and for OpenAI
// {"type": "json_schema", "json_schema": {"schema": ...}}.
void read_format(const ApiCall& call, const JsonValue& format, const std::string& path, GenerationSpec& spec);

// Where the prompt has begun the reasoning, the constraint holds behind its end. The constraint's warnings become the
// form's. Throws ApiError 400 for models that write their answers in channels.
void begin_behind_reasoning(const ServedModel& model, AnswerForm& form, GenerationSpec& spec);

}  // namespace ingot

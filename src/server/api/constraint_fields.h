// What an answer has to follow: a schema, a regular expression, a choice or a grammar (OpenAI's response_format, vLLM's
// structured_outputs and guided_*, llama.cpp's grammar and json_schema; one of them at most), and the schemas of tools
// that are forced or strict. What cannot be enforced is refused, never ignored.
#pragma once
#include "server/api/answer_form.h"
#include "server/api/api.h"
#include "server/api/fields.h"
#include "server/generation.h"

namespace ingot {

// Reads the fields into spec.wanted. Throws ApiError 400.
void read_constraint(const Fields& fields, GenerationSpec& spec);

// `format` of another API, which stands at `path`: {"type": "json_schema", "schema": ...}, and for OpenAI
// {"type": "json_schema", "json_schema": {"schema": ...}}.
void read_format(const JsonValue& format, const std::string& path, GenerationSpec& spec);

// Compile spec.wanted into spec.constraint. For an answer in a chat, the constraint also holds its calls to the schemas of
// their tools, and begins behind its reasoning. Warnings go to spec.constraint_warnings, and to the form. Both throw
// ApiError 400 with the keyword and its path in the schema.
void constrain_text(const ApiCall& call, GenerationSpec& spec);
void constrain_answer(const ApiCall& call, AnswerForm& form, GenerationSpec& spec);

}  // namespace ingot

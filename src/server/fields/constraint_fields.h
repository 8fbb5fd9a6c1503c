// Reads the constraint that an answer must follow: a schema, a regular expression, a choice or a grammar. The fields
// are OpenAI's response_format, vLLM's structured_outputs and guided_*, and llama.cpp's grammar and json_schema. A
// request may use one of these fields. The schemas of forced or strict tools also constrain the answer. A constraint
// that cannot be enforced is refused, never ignored.
#pragma once
#include "server/answers/api_call.h"
#include "server/answers/generation.h"
#include "server/requests/fields.h"

namespace ingot {

// Reads the fields into spec.wanted. Throws ApiError 400.
void read_constraint(const Fields& fields, GenerationSpec& spec);

// Reads the `format` of another API, found at `path`: {"type": "json_schema", "schema": ...}, or OpenAI's {"type":
// "json_schema", "json_schema": {"schema": ...}}.
void read_format(const JsonValue& format, const std::string& path, GenerationSpec& spec);

// Both functions compile spec.wanted into spec.constraint, with its warnings in spec.constraint_warnings. shape_answer
// also makes the spec split the answer in the model's form. It places the constraint in that form, and constrains calls
// to the schemas of their tools. Both throw ApiError 400 with the keyword and its path in the schema.
void constrain_text(const ApiCall& call, GenerationSpec& spec);
void shape_answer(const ApiCall& call, AnswerForm form, GenerationSpec& spec);

}  // namespace ingot

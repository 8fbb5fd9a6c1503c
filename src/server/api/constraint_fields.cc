#include "server/api/constraint_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot {
namespace {

constexpr size_t kMaxGrammarBytes = 1 << 20, kMaxChoices = 4096;

void compile_into(const ApiCall& call, GrammarKind kind, std::string text, const std::string& path,
                  GenerationSpec& spec) {
  if (spec.constraint)
    throw ApiError(400, path + " comes beside another field that says what the answer follows: send one of them", path);
  if (!call.model->writes()) throw ApiError(400, "this model makes vectors of texts and writes no answer", path);
  try {
    const GrammarText grammar{kind, std::move(text), call.model->any_order(), call.model->lenient_schemas()};
    spec.constraint = call.model->grammars().get(grammar, &spec.constraint_warnings);
  } catch (const Error& error) {
    throw ApiError(400, printable(fmt::format("{}: {}", path, error.what()), 1024), path);
  }
}

// A schema as JSON, or as a text of JSON.
void read_schema_value(const ApiCall& call, const JsonValue& schema, const std::string& path, GenerationSpec& spec) {
  if (!schema.is_object() && !schema.is_boolean() && !schema.is_string())
    refuse_value(path, "must be a JSON Schema: an object, true or false");
  std::string text = schema.is_string() ? schema.get<std::string>() : dump_json(schema);
  compile_into(call, GrammarKind::kSchema, std::move(text), path, spec);
}

// One of the four that vLLM has under two kinds of names.
void read_structure(const ApiCall& call, const Fields& fields, const char* name, std::string_view kind,
                    const std::string& path, GenerationSpec& spec) {
  const JsonValue* value = fields.find(name);
  if (!value) return;
  if (kind == "json") return read_schema_value(call, *value, path, spec);
  if (kind == "choice") {
    const auto choices = fields.strings(name, kMaxChoices, kMaxGrammarBytes);
    if (choices->empty()) fields.refuse(name, "must hold at least one text");
    return compile_into(call, GrammarKind::kRegex, regex_of_choices(*choices), path, spec);
  }
  const GrammarKind grammar = kind == "regex" ? GrammarKind::kRegex : GrammarKind::kGrammar;
  compile_into(call, grammar, *fields.string(name, kMaxGrammarBytes), path, spec);
}

void read_structured_outputs(const ApiCall& call, const JsonValue& value, GenerationSpec& spec) {
  const Fields inner(value, "structured_outputs.");
  for (const char* name : {"structural_tag", "whitespace_pattern"})
    if (inner.find(name)) inner.refuse(name, "is not supported by this server");
  for (const char* kind : {"json", "regex", "choice", "grammar"})
    read_structure(call, inner, kind, kind, fmt::format("structured_outputs.{}", kind), spec);
  if (inner.boolean("json_object").value_or(false))
    compile_into(call, GrammarKind::kSchema, R"({"type":"object"})", "structured_outputs.json_object", spec);
  if (!spec.constraint && !value.empty())
    refuse_value("structured_outputs", "must have one of json, regex, choice, grammar and json_object");
}

}  // namespace

void read_format(const ApiCall& call, const JsonValue& format, const std::string& path, GenerationSpec& spec) {
  const Fields fields(format, path + ".");
  const std::string type = fields.string("type", 64).value_or("");
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema")
    fields.refuse("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  const JsonValue* nested = fields.find("json_schema");
  const Fields inner(nested ? *nested : format, nested ? path + ".json_schema." : path + ".");
  inner.boolean("strict");
  const JsonValue* schema = inner.find("schema");
  if (!schema && type == "json_schema") inner.refuse("schema", "is missing: it is what the answer is to follow");
  const std::string where = path + (nested ? ".json_schema.schema" : ".schema");
  read_schema_value(call, schema ? *schema : JsonValue{{"type", "object"}}, schema ? where : path, spec);
}

void read_constraint(const ApiCall& call, const Fields& fields, GenerationSpec& spec) {
  if (const JsonValue* format = fields.find("response_format")) read_format(call, *format, "response_format", spec);
  if (const JsonValue* value = fields.find("structured_outputs")) read_structured_outputs(call, *value, spec);
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const std::string name = fmt::format("guided_{}", kind);
    read_structure(call, fields, name.c_str(), kind, name, spec);
  }
  read_structure(call, fields, "json_schema", "json", "json_schema", spec);
  read_structure(call, fields, "grammar", "grammar", "grammar", spec);
}

void begin_behind_reasoning(const ServedModel& model, AnswerForm& form, GenerationSpec& spec) {
  if (!spec.constraint) return;
  form.warnings.insert(form.warnings.end(), spec.constraint_warnings.begin(), spec.constraint_warnings.end());
  if (form.format->syntax == CallSyntax::kChannel) {
    throw ApiError(400, "this model writes its answers in channels, and they cannot be constrained yet");
  }
  if (!form.in_reasoning) return;
  const std::string end(form.format->think_end);
  spec.constraint_start = {end, model.tokenizer().find(end).value_or(-1)};
}

}  // namespace ingot

#include "server/fields/constraint_fields.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "server/fields/request_fields.h"

namespace ingot {
namespace {

constexpr size_t kMaxGrammarBytes = 1 << 20, kMaxChoices = 4096;

void want_grammar(GrammarKind kind, std::string text, const std::string& path, GenerationSpec& spec) {
  if (spec.wanted) throw ApiError(400, path + " is a second constraint on the answer: send only one", path);
  WantedGrammar& wanted = spec.wanted.emplace();
  wanted.text.kind = kind;
  wanted.text.text = std::move(text);
  wanted.path = path;
}

// A schema is JSON, or a string that contains JSON.
void check_schema_value(const JsonValue& schema, const std::string& path) {
  if (!schema.is_object() && !schema.is_boolean() && !schema.is_string())
    refuse_value(path, "must be a JSON Schema: an object, true or false");
}

void read_schema_value(const JsonValue& schema, const std::string& path, GenerationSpec& spec) {
  check_schema_value(schema, path);
  std::string text = schema.is_string() ? schema.get<std::string>() : dump_json(schema);
  want_grammar(GrammarKind::kSchema, std::move(text), path, spec);
}

// Reads one of the four kinds of constraints. vLLM has two sets of names for them.
void read_structure(const Fields& fields, const char* name, std::string_view kind, const std::string& path,
                    GenerationSpec& spec) {
  const JsonValue* value = fields.find(name);
  if (!value) return;
  if (kind == "json") return read_schema_value(*value, path, spec);
  if (kind == "choice") {
    const auto choices = fields.strings(name, kMaxChoices, kMaxGrammarBytes);
    if (choices->empty()) fields.refuse(name, "must hold at least one text");
    return want_grammar(GrammarKind::kRegex, regex_of_choices(*choices), path, spec);
  }
  const GrammarKind grammar = kind == "regex" ? GrammarKind::kRegex : GrammarKind::kGrammar;
  want_grammar(grammar, *fields.string(name, kMaxGrammarBytes), path, spec);
}

void read_structured_outputs(const JsonValue& value, GenerationSpec& spec) {
  const Fields inner(value, "structured_outputs.");
  for (const char* name : {"structural_tag", "whitespace_pattern"})
    if (inner.find(name)) inner.refuse(name, "is not supported by this server");
  for (const char* kind : {"json", "regex", "choice", "grammar"})
    read_structure(inner, kind, kind, fmt::format("structured_outputs.{}", kind), spec);
  if (inner.boolean("json_object").value_or(false))
    want_grammar(GrammarKind::kSchema, R"({"type":"object"})", "structured_outputs.json_object", spec);
  if (!spec.wanted && !value.empty())
    refuse_value("structured_outputs", "must have one of json, regex, choice, grammar and json_object");
}

}  // namespace

void read_format(const JsonValue& format, const std::string& path, GenerationSpec& spec) {
  const Fields fields(format, path + ".");
  const std::string type = fields.string("type", 64).value_or("");
  if (type != "text" && type != "json_object" && type != "json_schema")
    fields.refuse("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  const JsonValue* nested = fields.find("json_schema");
  const Fields inner(nested ? *nested : format, nested ? path + ".json_schema." : path + ".");
  inner.string("name", kMaxGrammarBytes);
  inner.boolean("strict");
  const JsonValue* schema = inner.find("schema");
  const std::string where = path + (nested ? ".json_schema.schema" : ".schema");
  if (schema) check_schema_value(*schema, where);
  if (type == "text") return;
  if (!schema && type == "json_schema") inner.refuse("schema", "is missing: the answer must follow a schema");
  read_schema_value(schema ? *schema : JsonValue{{"type", "object"}}, schema ? where : path, spec);
}

void read_constraint(const Fields& fields, GenerationSpec& spec) {
  if (const JsonValue* format = fields.find("response_format")) read_format(*format, "response_format", spec);
  if (const JsonValue* value = fields.find("structured_outputs")) read_structured_outputs(*value, spec);
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const std::string name = fmt::format("guided_{}", kind);
    read_structure(fields, name.c_str(), kind, name, spec);
  }
  read_structure(fields, "json_schema", "json", "json_schema", spec);
  read_structure(fields, "grammar", "grammar", "grammar", spec);
}

namespace {

// Makes an ApiError from a message that begins with a place in the request.
ApiError refusal(const Error& error, const GenerationSpec& spec) {
  const std::string what = error.what();
  const size_t colon = what.find(": ");
  const bool has_place = what.starts_with("tools") && colon != what.npos;
  return ApiError(400, printable(what, 1024), has_place ? what.substr(0, colon) : spec.wanted ? spec.wanted->path : "");
}

// The grammar of the content, with the server's options for schemas.
std::optional<WantedGrammar> wanted_grammar(const ServedModel& model, const GenerationSpec& spec) {
  std::optional<WantedGrammar> wanted = spec.wanted;
  if (!wanted) return wanted;
  if (!model.writes()) throw ApiError(400, "this model writes no answer", wanted->path);
  wanted->text.any_order = model.any_order();
  wanted->text.is_lenient = model.lenient_schemas();
  return wanted;
}

void set_constraint(PlacedConstraint placed, GenerationSpec& spec) {
  spec.constraint = std::move(placed.constraint);
  spec.constraint_start = std::move(placed.start);
  spec.constraint_warnings = std::move(placed.warnings);
}

}  // namespace

void constrain_text(const ApiCall& call, GenerationSpec& spec) {
  const std::optional<WantedGrammar> wanted = wanted_grammar(*call.model, spec);
  if (!wanted) return;
  try {
    set_constraint(call.model->answers().constrain_text(*wanted), spec);
  } catch (const Error& error) {
    throw refusal(error, spec);
  }
}

void shape_answer(const ApiCall& call, AnswerForm form, GenerationSpec& spec) {
  const std::optional<WantedGrammar> wanted = wanted_grammar(*call.model, spec);
  AnswerModel& answers = call.model->answers();
  answers.begin(spec.prompts[0], form);
  form.id_seed = random_seed();
  try {
    set_constraint(answers.constrain(form, wanted), spec);
  } catch (const Error& error) {
    throw refusal(error, spec);
  }
  form.warnings.insert(form.warnings.end(), spec.constraint_warnings.begin(), spec.constraint_warnings.end());
  spec.form = std::move(form);
}

}  // namespace ingot

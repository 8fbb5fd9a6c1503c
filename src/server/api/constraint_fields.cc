#include "server/api/constraint_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "text/calls/answer_grammar.h"

namespace ingot {
namespace {

constexpr size_t kMaxGrammarBytes = 1 << 20, kMaxChoices = 4096;

void set_constraint(GrammarKind kind, std::string text, const std::string& path, GenerationSpec& spec) {
  if (spec.wanted) throw ApiError(400, path + " is a second constraint on the answer: send only one", path);
  GenerationSpec::Wanted& wanted = spec.wanted.emplace();
  wanted.text.kind = kind;
  wanted.text.text = std::move(text);
  wanted.path = path;
}

// A schema is JSON, or a string that contains JSON.
void read_schema_value(const JsonValue& schema, const std::string& path, GenerationSpec& spec) {
  if (!schema.is_object() && !schema.is_boolean() && !schema.is_string())
    refuse_value(path, "must be a JSON Schema: an object, true or false");
  std::string text = schema.is_string() ? schema.get<std::string>() : dump_json(schema);
  set_constraint(GrammarKind::kSchema, std::move(text), path, spec);
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
    return set_constraint(GrammarKind::kRegex, regex_of_choices(*choices), path, spec);
  }
  const GrammarKind grammar = kind == "regex" ? GrammarKind::kRegex : GrammarKind::kGrammar;
  set_constraint(grammar, *fields.string(name, kMaxGrammarBytes), path, spec);
}

void read_structured_outputs(const JsonValue& value, GenerationSpec& spec) {
  const Fields inner(value, "structured_outputs.");
  for (const char* name : {"structural_tag", "whitespace_pattern"})
    if (inner.find(name)) inner.refuse(name, "is not supported by this server");
  for (const char* kind : {"json", "regex", "choice", "grammar"})
    read_structure(inner, kind, kind, fmt::format("structured_outputs.{}", kind), spec);
  if (inner.boolean("json_object").value_or(false))
    set_constraint(GrammarKind::kSchema, R"({"type":"object"})", "structured_outputs.json_object", spec);
  if (!spec.wanted && !value.empty())
    refuse_value("structured_outputs", "must have one of json, regex, choice, grammar and json_object");
}

}  // namespace

void read_format(const JsonValue& format, const std::string& path, GenerationSpec& spec) {
  const Fields fields(format, path + ".");
  const std::string type = fields.string("type", 64).value_or("");
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema")
    fields.refuse("type", "must be \"text\", \"json_object\" or \"json_schema\"");
  const JsonValue* nested = fields.find("json_schema");
  const Fields inner(nested ? *nested : format, nested ? path + ".json_schema." : path + ".");
  inner.boolean("strict");
  const JsonValue* schema = inner.find("schema");
  if (!schema && type == "json_schema") inner.refuse("schema", "is missing: the answer must follow a schema");
  const std::string where = path + (nested ? ".json_schema.schema" : ".schema");
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

// Makes an ApiError from a message that may begin with a place in the request.
ApiError refusal(const Error& error, const std::string& fallback) {
  const std::string what = error.what();
  const size_t colon = what.find(": ");
  const bool has_place = what.starts_with("tools") && colon != what.npos;
  return ApiError(400, printable(what, 1024), has_place ? what.substr(0, colon) : fallback);
}

void check_writes(const ServedModel& model, const std::string& path) {
  if (!model.writes()) throw ApiError(400, "this model embeds texts and writes no answer", path);
}

MarkerSpelling spelling_of(const ServedModel& model) {
  const Tokenizer& tokenizer = model.tokenizer();
  std::vector<MarkerSpelling::Token> tokens;
  for (const int32_t id : model.marker_tokens())
    if (id < model.info().n_vocab) tokens.push_back({std::string(tokenizer.token_text(id)), tokenizer.is_end(id)});
  return MarkerSpelling(std::move(tokens));
}

// Whether reasoning may or must precede the grammar. The end of the prompt shows whether reasoning is open or closed.
// Otherwise, reasoning is allowed if the model's template supports it.
AnswerRules::Reasoning reasoning_of(const ServedModel& model, const AnswerForm& form) {
  using enum AnswerRules::Reasoning;
  const CallFormat& format = *form.format;
  if (form.in_reasoning) return format.syntax == CallSyntax::kChannel || format.call_ends_reasoning ? kOpen : kBefore;
  const bool knows = model.chat().source().find(trim(format.think_begin)) != std::string::npos;
  return knows && !form.closed_reasoning ? kMay : kNone;
}

// Throws Error for a tool name that the parser of the call format cannot read.
void check_name(const CallFormat& format, const CallableTool& tool) {
  const auto is_plain = [&](char c) {
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
           ((c == '/' || c == ':') && format.syntax != CallSyntax::kPython);
  };
  if (!std::ranges::all_of(tool.name, is_plain))
    throw Error("tools: the calls of this model ({}) cannot name the function '{}': use letters, digits, _, - and .",
                format.name, printable(tool.name, 64));
}

// The grammar of the content, with the server's options for schemas.
GrammarText content_rule(const ServedModel& model, const GenerationSpec& spec) {
  GrammarText grammar = spec.wanted->text;
  grammar.any_order = model.any_order();
  grammar.is_lenient = model.lenient_schemas();
  return grammar;
}

AnswerRules rules_of(const ServedModel& model, const AnswerForm& form, const GenerationSpec& spec) {
  AnswerRules rules{.format = form.format, .spelling = spelling_of(model), .reasoning = reasoning_of(model, form)};
  rules.parallel = form.parallel_calls;
  rules.is_lenient = model.lenient_schemas();
  if (spec.wanted) rules.content = content_rule(model, spec), rules.content_where = spec.wanted->path;
  const bool is_forced = form.choice == ToolChoice::kRequired;
  if (form.format->syntax == CallSyntax::kNone) return rules;
  if (!form.callable.empty()) rules.calls = is_forced ? AnswerRules::Calls::kMust : AnswerRules::Calls::kMay;
  for (const CallableTool& tool : form.callable) {
    check_name(*form.format, tool);
    const bool is_held = is_forced || tool.strict;
    rules.tools.push_back({.name = tool.name, .schema = R"({"type":"object"})", .where = tool.where});
    if (is_held) rules.tools.back().schema = arguments_schema(tool.parameters, tool.where);
  }
  return rules;
}

// Whether the grammar covers only the content, and nothing may precede or surround the content.
bool is_plain(const AnswerRules& rules) {
  const bool excludes_reasoning =
      rules.reasoning == AnswerRules::Reasoning::kNone || rules.reasoning == AnswerRules::Reasoning::kBefore;
  return rules.calls == AnswerRules::Calls::kNone && excludes_reasoning && rules.format->answer_begin.empty();
}

}  // namespace

void constrain_text(const ApiCall& call, GenerationSpec& spec) {
  if (!spec.wanted) return;
  check_writes(*call.model, spec.wanted->path);
  try {
    spec.constraint = call.model->grammars().get(content_rule(*call.model, spec), &spec.constraint_warnings);
  } catch (const Error& error) {
    throw ApiError(400, printable(fmt::format("{}: {}", spec.wanted->path, error.what()), 1024), spec.wanted->path);
  }
}

void constrain_answer(const ApiCall& call, AnswerForm& form, GenerationSpec& spec) {
  const bool is_forced = form.choice == ToolChoice::kRequired;
  const bool is_held = is_forced || form.limits_tools ||
                       std::ranges::any_of(form.callable, [](const auto& tool) { return tool.strict; });
  if (!spec.wanted && !is_held) return;
  ServedModel& model = *call.model;
  if (is_held && form.format->syntax == CallSyntax::kNone)
    throw ApiError(
        400, fmt::format("the call format of this model, {}, does not support tool calls", form.format->name), "tools");
  try {
    const AnswerRules rules = rules_of(model, form, spec);
    if (rules.reasoning == AnswerRules::Reasoning::kBefore) {
      const std::string end(trim(form.format->think_end));
      spec.constraint_start = {end, model.tokenizer().find(end).value_or(-1)};
    }
    const auto make = [&](std::vector<std::string>* warnings) { return compile_answer(rules, warnings); };
    if (is_plain(rules))
      constrain_text(call, spec);
    else
      spec.constraint = model.grammars().get(rules.key(), make, &spec.constraint_warnings);
  } catch (const Error& error) {
    throw refusal(error, spec.wanted ? spec.wanted->path : "tools");
  }
  form.warnings.insert(form.warnings.end(), spec.constraint_warnings.begin(), spec.constraint_warnings.end());
}

}  // namespace ingot

#include "text/answers/answer_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "text/calls/answer_grammar.h"
#include "text/calls/model_format.h"

namespace ingot {
namespace {

constexpr size_t kPromptEnd = 16;   // tokens that may spell the markers at the end of a prompt
constexpr size_t kTurnBegin = 64;   // tokens that may spell the begin of a turn, with closed reasoning after it

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

// Whether reasoning may or must precede the grammar. The end of the prompt shows whether reasoning is open or closed.
// Otherwise, reasoning is allowed if the model's template supports it, or if the content is free (`is_free`): a model
// that nothing else holds may write what the parser reads.
AnswerRules::Reasoning reasoning_of(const ChatTemplate& chat, const AnswerForm& form, bool is_free) {
  using enum AnswerRules::Reasoning;
  const CallFormat& format = *form.format;
  if (form.in_reasoning) return format.syntax == CallSyntax::kChannel || format.call_ends_reasoning ? kOpen : kBefore;
  const bool knows = chat.source().find(trim(format.think_begin)) != std::string::npos;
  return (knows || is_free) && !form.closed_reasoning ? kMay : kNone;
}

bool forces_call(const AnswerForm& form) { return form.choice == ToolChoice::kRequired; }

bool holds_calls(const AnswerForm& form) {
  return forces_call(form) || form.limits_tools || std::ranges::any_of(form.callable, [](const auto& tool) {
    return tool.strict;
  });
}

void add_tools(const AnswerForm& form, AnswerRules& rules) {
  if (form.format->syntax == CallSyntax::kNone) return;
  if (!form.callable.empty()) rules.calls = forces_call(form) ? AnswerRules::Calls::kMust : AnswerRules::Calls::kMay;
  for (const CallableTool& tool : form.callable) {
    check_name(*form.format, tool);
    rules.tools.push_back({.name = tool.name, .schema = R"({"type":"object"})", .where = tool.where});
    if (forces_call(form) || tool.strict) rules.tools.back().schema = arguments_schema(tool.parameters, tool.where);
  }
}

// Whether the grammar covers only the content, and nothing may precede or surround the content.
bool is_plain(const AnswerRules& rules) {
  const bool excludes_reasoning =
      rules.reasoning == AnswerRules::Reasoning::kNone || rules.reasoning == AnswerRules::Reasoning::kBefore;
  return rules.calls == AnswerRules::Calls::kNone && excludes_reasoning && rules.format->answer_begin.empty();
}

MarkerSpelling spelling_of(const Tokenizer& tokenizer, std::span<const int32_t> markers, int32_t n_tokens) {
  std::vector<MarkerSpelling::Token> tokens;
  for (const int32_t id : markers)
    if (id < n_tokens) tokens.push_back({std::string(tokenizer.token_text(id)), tokenizer.is_end(id)});
  return MarkerSpelling(std::move(tokens));
}

// The format by which answers are read: that of the template, unless the options name one.
const CallFormat& format_of(const ChatTemplate& chat, const AnswerModel::Options& options) {
  return options.format ? *options.format : call_format_of_model(chat.source());
}

}  // namespace

AnswerModel::AnswerModel(const Tokenizer& tokenizer, const ChatTemplate& chat, int32_t n_tokens, Options options)
    : tokenizer_(tokenizer),
      chat_(chat),
      n_tokens_(n_tokens),
      format_(format_of(chat, options)),
      lenient_schemas_(options.lenient_schemas),
      marker_tokens_(ingot::marker_tokens(format_, tokenizer)),
      grammars_(tokenizer, n_tokens, options.max_constraint_bytes) {}

std::string AnswerModel::end_of(std::span<const int32_t> prompt, size_t n_tokens) const {
  return tokenizer_.decode(prompt.last(std::min(prompt.size(), n_tokens)));
}

void AnswerModel::begin(std::span<const int32_t> prompt, AnswerForm& form) const {
  const std::string end = end_of(prompt, kPromptEnd);
  form.format = &format_;
  form.in_reasoning = opens_reasoning(format_, end);
  form.closed_reasoning = trim(end).ends_with(trim(format_.think_end));
}

bool AnswerModel::is_chat(std::span<const int32_t> prompt) const {
  const std::string_view begin = trim(chat_.answer_prefix());
  const std::string_view line = trim(begin.substr(0, begin.find('\n')));
  return !line.empty() && end_of(prompt, kTurnBegin).find(line) != std::string::npos;
}

PlacedConstraint AnswerModel::constrain(AnswerForm& form, const std::optional<WantedGrammar>& wanted) {
  if (!wanted && !holds_calls(form)) return {};
  if (holds_calls(form) && form.format->syntax == CallSyntax::kNone)
    throw Error("tools: the call format of this model, {}, does not support tool calls", form.format->name);
  AnswerRules rules{.format = form.format,
                    .spelling = spelling_of(tokenizer_, marker_tokens_, n_tokens_),
                    .reasoning = reasoning_of(chat_, form, !wanted && !forces_call(form)),
                    .parallel = form.parallel_calls,
                    .is_lenient = lenient_schemas_};
  add_tools(form, rules);
  form.constrains_calls = rules.calls != AnswerRules::Calls::kNone;
  if (wanted) rules.content = wanted->text, rules.content_where = wanted->path;
  PlacedConstraint placed;
  if (wanted && is_plain(rules)) placed = constrain_text(*wanted);
  if (rules.reasoning == AnswerRules::Reasoning::kBefore) {
    const std::string end(trim(form.format->think_end));
    placed.start = {end, tokenizer_.find(end).value_or(-1)};
  }
  if (placed.constraint) return placed;
  const auto make = [&](std::vector<std::string>* warnings) { return compile_answer(rules, warnings); };
  placed.constraint = grammars_.get(rules.key(), make, &placed.warnings);
  return placed;
}

PlacedConstraint AnswerModel::constrain_text(const WantedGrammar& wanted) {
  PlacedConstraint placed;
  try {
    placed.constraint = grammars_.get(wanted.text, &placed.warnings);
  } catch (const Error& error) {
    throw Error("{}: {}", wanted.path, error.what());
  }
  return placed;
}

}  // namespace ingot

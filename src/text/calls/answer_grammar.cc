#include "text/calls/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "text/calls/argument_machines.h"
#include "text/calls/value_reader.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using Part = Grammar::Part;

constexpr int kMaxNumberedCalls = 8;  // each call with a number in its text needs its own grammar part
constexpr int kMaxBlanks = 8;         // blanks between the parts of an answer

constexpr std::string_view kChannelMarks[] = {"<|start|>", "<|channel|>", "<|message|>",
                                              "<|end|>",   "<|call|>",    "<|return|>"};

class AnswerGrammar {
 public:
  AnswerGrammar(const AnswerRules& rules, std::vector<std::string>* warnings)
      : rules_(rules), row_(*rules.format), warnings_(warnings) {}

  Grammar build() {
    g_.set_root(row_.syntax == CallSyntax::kChannel ? channels() : answer());
    return std::move(g_);
  }

 private:
  // Texts such as answer_begin become terminals. Text after a token that ends the answer is left out.
  Part text(std::string_view marker) { return g_.literal(rules_.spelling.spell(marker).bytes); }
  bool ends_answer(std::string_view marker) const { return rules_.spelling.spell(marker).ends_answer; }
  Part optional(Part part) { return g_.repeat(part, 0, 1); }
  Part blanks() { return g_.regex(fmt::format("[ \\t\\r\\n]{{0,{}}}", kMaxBlanks)); }

  Part answer();
  Part thought();
  Part any_content();
  Part content_between(Part content);
  Part channels();
  Part channel_message(std::string_view header, Part body);
  Part plain_text(std::vector<std::string_view> without, const std::vector<std::string_view>& not_first = {});
  std::vector<std::string_view> openers() const;

  Part calls();
  Part call(int index);
  Part arguments(const AnswerRules::Tool& tool);
  Part further_calls(int index);
  Part content_machine();
  std::unique_ptr<Automaton> compile_at(const std::string& where, const GrammarText& grammar);

  const AnswerRules& rules_;
  const CallFormat& row_;
  std::vector<std::string>* warnings_;
  Grammar g_;
  std::vector<Part> arguments_;  // per tool
};

// Any text that contains none of `without` and does not begin, after white space, with one of `not_first`. The texts
// are trimmed, as in the parser.
Part AnswerGrammar::plain_text(std::vector<std::string_view> without, const std::vector<std::string_view>& not_first) {
  RegularLanguages& l = g_.languages();
  using Language = Grammar::Language;
  const Language any = RegularLanguages::kAnything;
  std::vector<Language> never, first, parts{l.any_text()};
  for (const std::string_view one : without)
    if (!trim(one).empty()) never.push_back(l.literal(trim(one)));
  for (const std::string_view one : not_first)
    if (!trim(one).empty()) first.push_back(l.literal(trim(one)));
  if (!never.empty()) parts.push_back(l.complement(l.concat(any, l.concat(l.any_of(std::move(never)), any))));
  ByteSet blank;
  for (const char c : std::string_view(" \t\r\n")) blank.set(static_cast<uint8_t>(c));
  const Language blanks = l.repeat(l.bytes(blank), 0, Grammar::kNoLimit);
  if (!first.empty()) parts.push_back(l.complement(l.concat(blanks, l.concat(l.any_of(std::move(first)), any))));
  return g_.language(l.all_of(std::move(parts)));
}

// The markers at which the parser begins a call.
std::vector<std::string_view> AnswerGrammar::openers() const {
  std::vector<std::string_view> markers = {row_.list_begin, row_.call_begin, row_.other_begin};
  if (row_.bare_name) markers.push_back(row_.name_begin);
  return markers;
}

// ---- Answers without channels

Part AnswerGrammar::answer() {
  using enum AnswerRules::Reasoning;
  const Part content = rules_.content ? content_machine() : any_content();
  std::vector<Part> forms;
  if (rules_.calls != AnswerRules::Calls::kMust) {
    forms.push_back(content);
    if (!trim(row_.answer_begin).empty()) forms.push_back(content_between(content));
  }
  if (rules_.calls != AnswerRules::Calls::kNone) {
    const bool may_lead = rules_.calls == AnswerRules::Calls::kMay && !rules_.content && !row_.unmarked;
    const Part marked = row_.unmarked && !row_.other_begin.empty()
                            ? g_.sequence({optional(text(row_.other_begin)), calls(), optional(text(row_.other_end))})
                            : calls();
    forms.push_back(may_lead ? g_.sequence({content, marked}) : marked);
  }
  const Part rest = g_.choice(std::move(forms));
  const Part after_reasoning = g_.sequence({blanks(), rest});
  switch (rules_.reasoning) {
    case kBefore: return after_reasoning;
    case kOpen: return g_.sequence({thought(), after_reasoning});
    case kMay: return g_.choice({rest, g_.sequence({text(row_.think_begin), thought(), after_reasoning})});
    default: return rest;
  }
}

// The rest of the reasoning, with its end marker.
Part AnswerGrammar::thought() {
  std::vector<std::string_view> without = {row_.think_end};
  if (row_.call_ends_reasoning) {
    const auto more = openers();
    without.insert(without.end(), more.begin(), more.end());
  }
  return g_.sequence({plain_text(std::move(without)), text(trim(row_.think_end))});
}

Part AnswerGrammar::any_content() {
  const bool calls = rules_.calls != AnswerRules::Calls::kNone;
  std::vector<std::string_view> without = calls ? openers() : std::vector<std::string_view>();
  without.push_back(row_.answer_end);
  std::vector<std::string_view> not_first = {row_.think_begin, row_.header, row_.answer_begin};
  if (calls && row_.unmarked) not_first.push_back(row_.syntax == CallSyntax::kPython ? "[" : "{");
  return plain_text(std::move(without), not_first);
}

Part AnswerGrammar::content_between(Part content) {
  const Part end = text(trim(row_.answer_end));
  return g_.sequence({text(trim(row_.answer_begin)), content, ends_answer(row_.answer_end) ? optional(end) : end});
}

Part AnswerGrammar::content_machine() { return g_.embed(compile_at(rules_.content_where, *rules_.content)); }

// Errors and warnings begin with `where`, the grammar's place in the request.
std::unique_ptr<Automaton> AnswerGrammar::compile_at(const std::string& where, const GrammarText& grammar) {
  std::vector<std::string> new_warnings;
  try {
    auto machine = compile(grammar, &new_warnings);
    for (const std::string& warning : new_warnings)
      if (warnings_) warnings_->push_back(where + ": " + warning);
    return machine;
  } catch (const Error& error) {
    throw Error("{}: {}", where, error.what());
  }
}

// ---- Answers in channels (answer_channels.cc): reasoning messages, then one message with content or calls

Part AnswerGrammar::channel_message(std::string_view header, Part body) {
  return g_.sequence({text(header), body, text(row_.think_end), text(row_.header)});
}

Part AnswerGrammar::channels() {
  using enum AnswerRules::Reasoning;
  const std::vector<std::string_view> marks(std::begin(kChannelMarks), std::end(kChannelMarks));
  const Part body = plain_text(marks);
  const bool can_go_on = !ends_answer(row_.think_end);
  std::vector<Part> before, forms;
  if (can_go_on) before.push_back(channel_message(row_.think_begin, body));
  const bool may_speak = rules_.calls == AnswerRules::Calls::kMay && !rules_.content;
  if (can_go_on && may_speak) before.push_back(channel_message("<|channel|>commentary<|message|>", body));
  if (rules_.calls != AnswerRules::Calls::kMust)
    forms.push_back(g_.sequence(
        {text(row_.answer_begin), rules_.content ? content_machine() : body, optional(text(row_.answer_end))}));
  if (rules_.calls != AnswerRules::Calls::kNone) forms.push_back(calls());
  Part rest = g_.choice(std::move(forms));
  if (!before.empty()) rest = g_.sequence({g_.repeat(g_.choice(std::move(before)), 0, Grammar::kNoLimit), rest});
  return rules_.reasoning == kOpen ? g_.sequence({channel_message("", body), rest}) : rest;
}

// ---- Calls

Part AnswerGrammar::calls() {
  for (const AnswerRules::Tool& tool : rules_.tools) arguments_.push_back(arguments(tool));
  const std::string begin = std::string(row_.list_begin) + (row_.array ? "[" : "");
  const std::string end = row_.close_text() + (row_.array ? "]" : "") + std::string(row_.list_end);
  std::vector<Part> parts = {text(begin + row_.call_prefix(0)), call(0)};
  if (rules_.parallel && !ends_answer(row_.close_text())) parts.push_back(further_calls(1));
  parts.push_back(text(end));
  return g_.sequence(std::move(parts));
}

Part AnswerGrammar::further_calls(int index) {
  const bool is_numbered = row_.call_prefix(0) != row_.call_prefix(1) || row_.call_suffix(0) != row_.call_suffix(1);
  const Part between = text(row_.close_text() + std::string(row_.separator) + row_.call_prefix(index));
  std::vector<Part> one = {between, call(index)};
  if (!is_numbered) return g_.repeat(g_.sequence(std::move(one)), 0, Grammar::kNoLimit);
  if (index + 1 < kMaxNumberedCalls) one.push_back(further_calls(index + 1));
  return optional(g_.sequence(std::move(one)));
}

// The text from the function's name to the end of the arguments.
Part AnswerGrammar::call(int index) {
  std::vector<Part> tools;
  for (size_t i = 0; i < rules_.tools.size(); ++i) {
    std::string name;
    append_json_escaped(name, rules_.tools[i].name);
    tools.push_back(g_.sequence({text(name + row_.call_suffix(index)), arguments_[i]}));
  }
  return g_.choice(std::move(tools));
}

Part AnswerGrammar::arguments(const AnswerRules::Tool& tool) {
  auto machine = compile_at(tool.where, {.text = tool.schema, .is_lenient = rules_.is_lenient});
  try {
    return g_.embed(make_arguments_machine(row_, rules_.spelling, Json::parse(tool.schema), std::move(machine)));
  } catch (const Error& error) {
    throw Error("{}: {}", tool.where, error.what());
  }
}

// ---- Schemas

bool is_annotation(std::string_view key) {
  constexpr std::string_view kKeys[] = {"description", "title",      "examples", "example",  "default",
                                        "$comment",    "deprecated", "readOnly", "writeOnly"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

// holds_names(): the value is an object of schemas by name. holds_values(): the value contains no schema. The value of
// any other keyword is a schema or a list of schemas.
bool holds_names(std::string_view key) {
  return key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions" ||
         key == "dependentSchemas" || key == "dependencies";
}
bool holds_values(std::string_view key) {
  return key == "enum" || key == "const" || key == "required" || key == "dependentRequired";
}

Json without_annotations(const Json& schema) {
  if (schema.is_array()) {
    Json out = Json::array();
    for (const Json& one : schema) out.push_back(without_annotations(one));
    return out;
  }
  if (!schema.is_object()) return schema;
  Json out = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (is_annotation(key)) continue;
    if (!holds_names(key) || !value.is_object()) {
      out[key] = holds_values(key) ? value : without_annotations(value);
      continue;
    }
    out[key] = Json::object();
    for (const auto& [name, inner] : value.items()) out[key][name] = without_annotations(inner);
  }
  return out;
}

}  // namespace

std::string arguments_schema(const Json& parameters, const std::string& where) {
  if (parameters.is_null()) return R"({"type":"object","additionalProperties":false})";
  if (parameters == true) return R"({"type":"object"})";
  if (!parameters.is_object()) throw Error("{}: must be a JSON Schema of an object", where);
  Json schema = without_annotations(parameters);
  const auto type = schema.find("type");
  const bool is_list = type != schema.end() && type->is_array();
  const bool allows =
      type == schema.end() || *type == "object" || (is_list && std::ranges::find(*type, Json("object")) != type->end());
  if (!allows) throw Error("{}: type: the arguments of a function are an object, so it must be \"object\"", where);
  schema["type"] = "object";
  return schema.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string AnswerRules::key() const {
  Json json = {{"format", format->name},
               {"spelling", spelling.key()},
               {"reasoning", static_cast<int>(reasoning)},
               {"calls", static_cast<int>(calls)},
               {"parallel", parallel},
               {"lenient", is_lenient},
               {"tools", Json::array()}};
  for (const Tool& tool : tools) json["tools"].push_back({tool.name, tool.schema});
  if (content)
    json["content"] = {static_cast<int>(content->kind), content->any_order, content->is_lenient, content->text};
  return "answer " + json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::unique_ptr<Automaton> compile_answer(const AnswerRules& rules, std::vector<std::string>* warnings) {
  if (rules.calls != AnswerRules::Calls::kNone && rules.tools.empty())
    throw Error("tools: the request has no callable tool");
  return compile_grammar(AnswerGrammar(rules, warnings).build());
}

}  // namespace ingot

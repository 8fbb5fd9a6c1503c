// /v1/responses: OpenAI's newer API, without its memory: every request brings its whole conversation, and nothing is
// stored.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "server/api/api.h"
#include "server/api/constraint_fields.h"
#include "server/api/reasoning.h"
#include "server/api/request_fields.h"

namespace ingot {
namespace {

constexpr auto kTextTypes = {"input_text", "output_text", "text"};

void append_item(const JsonValue& item, const std::string& where, JsonValue& messages) {
  if (!item.is_object()) refuse_value(where, "must be an object");
  const std::string type = item.contains("type") ? string_member(item, "type", where) : "message";
  if (type == "message") {
    const auto content = item.find("content");
    if (content == item.end()) refuse_value(where + ".content", "is missing");
    const std::string& role = string_member(item, "role", where);
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      refuse_value(where + ".role", "must be user, assistant, system or developer");
    messages.push_back({{"role", role}, {"content", content_text(*content, where + ".content", kTextTypes)}});
  } else if (type == "function_call") {
    const JsonValue function = {{"name", string_member(item, "name", where)},
                                {"arguments", string_member(item, "arguments", where)}};
    const JsonValue call = {
        {"id", string_member(item, "call_id", where)}, {"type", "function"}, {"function", function}};
    const bool joins = !messages.empty() && messages.back()["role"] == "assistant";
    if (!joins) messages.push_back({{"role", "assistant"}, {"content", ""}});
    messages.back()["tool_calls"].push_back(call);
  } else if (type == "function_call_output") {
    const auto output = item.find("output");
    if (output == item.end()) refuse_value(where + ".output", "is missing");
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", string_member(item, "call_id", where)},
                        {"content", content_text(*output, where + ".output", kTextTypes)}});
  } else if (type != "reasoning") {
    refuse_value(where + ".type", "must be message, function_call, function_call_output or reasoning");
  }
}

// Functions stand flat there, and in an object of their own in a chat.
JsonValue read_tools(const Fields& fields) {
  JsonValue tools;
  const JsonValue* given = fields.find("tools");
  bool shown = true;
  if (const JsonValue* choice = fields.find("tool_choice")) {
    if (!choice->is_string() || (*choice != "auto" && *choice != "none"))
      fields.refuse("tool_choice", "must be \"auto\" or \"none\": forced calls are not supported by this server yet");
    if (*choice == "none") shown = false;
  }
  if (!given) return tools;
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const JsonValue& tool = (*given)[i];
    if (!tool.is_object()) refuse_value(where, "must be an object");
    if (string_member(tool, "type", where) != "function")
      refuse_value(where + ".type", "must be \"function\": this server has no tools of its own");
    JsonValue function = {{"name", string_member(tool, "name", where)}};
    if (tool.contains("description") && !tool["description"].is_null())
      function["description"] = string_member(tool, "description", where);
    function["parameters"] = tool.value("parameters", JsonValue::object());
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return shown ? tools : JsonValue();
}

std::vector<int32_t> read_prompt(const Fields& fields, const ServedModel& model) {
  JsonValue messages = JsonValue::array();
  if (const auto instructions = fields.string("instructions", 16 << 20))
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  const JsonValue& input = fields.at("input");
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
  } else if (input.is_array()) {
    for (size_t i = 0; i < input.size(); ++i) append_item(input[i], fmt::format("input[{}]", i), messages);
  } else {
    fields.refuse("input", fmt::format("must be a string or an array of items, not {}", input.type_name()));
  }
  JsonValue variables = JsonValue::object();
  if (const JsonValue* reasoning = fields.find("reasoning"))
    if (const auto effort = Fields(*reasoning, "reasoning.").string("effort", 64))
      variables["reasoning_effort"] = *effort;
  return chat_prompt(model, std::move(messages), read_tools(fields), variables, "input");
}

// An item of the output: what the model thinks, or what it says. Both have one part of text, and events that differ in
// names.
struct Item {
  bool is_thought = false;
  std::string id, text;

  JsonValue part() const {
    if (is_thought) return {{"type", "reasoning_text"}, {"text", text}};
    return {
        {"type", "output_text"}, {"text", text}, {"annotations", JsonValue::array()}, {"logprobs", JsonValue::array()}};
  }
  JsonValue json(const char* state, bool with_part) const {
    JsonValue item = {{"id", id}, {"type", is_thought ? "reasoning" : "message"}, {"status", state}};
    if (is_thought) item["summary"] = JsonValue::array();
    if (!is_thought) item["role"] = "assistant";
    item["content"] = JsonValue::array();
    if (with_part) item["content"].push_back(part());
    return item;
  }
  std::string event(const char* what) const {
    return fmt::format("response.{}.{}", is_thought ? "reasoning_text" : "output_text", what);
  }
};

class ResponsesWriter final : public AnswerWriter {
 public:
  // `echo`: the request's own settings, which the answer repeats.
  ResponsesWriter(std::string model, JsonValue echo, bool thinking)
      : model_(std::move(model)), echo_(std::move(echo)), splitter_(thinking), counter_(thinking) {}

  void begin(const Totals&, std::string& out) override {
    const JsonValue response = object("in_progress", JsonValue::array(), nullptr);
    event(out, "response.created", {{"response", response}});
    event(out, "response.in_progress", {{"response", response}});
  }
  void delta(int, const Delta& d, std::string& out) override {
    count_thoughts(d.tokens);
    parts(splitter_.push(d.text), out);
  }
  void choice_end(int, const ChoiceEnd& end, std::string& out) override {
    end_ = end;
    parts(splitter_.flush(), out);
    if (items_.empty() || items_.back().is_thought) open(false, out);  // there always is a message
    close(out, item_status());
  }
  void end(const Totals& totals, std::string& out) override {
    const std::string type = std::string("response.") + status();
    event(out, type, {{"response", complete(totals)}});
  }
  std::string whole(const std::vector<ChoiceResult>& choices, const Totals& totals) override {
    const ChoiceResult& one = choices.front();
    end_ = one.end;
    count_thoughts(one.whole.tokens);
    ReasoningSplitter::Parts all = splitter_.split(one.whole.text);
    if (const std::string_view thought = thought_of(all.thought); !thought.empty()) add(true, std::string(thought));
    add(false, std::move(all.said));
    return dump_json(complete(totals));
  }
  std::string error_event(const ApiError& e) const override {
    const JsonValue json = {{"type", "error"},
                            {"code", e.type()},
                            {"message", e.what()},
                            {"param", nullptr},
                            {"sequence_number", sequence_}};
    return "event: error\ndata: " + dump_json(json) + "\n\n";
  }

 private:
  const char* status() const {
    return !end_.failure.empty() ? "failed" : std::string_view(end_.reason) == "length" ? "incomplete" : "completed";
  }
  const char* item_status() const { return end_.failure.empty() ? status() : "incomplete"; }

  void add(bool is_thought, std::string text) {
    items_.push_back({is_thought, random_id(is_thought ? "rs_" : "msg_"), std::move(text)});
  }
  void open(bool is_thought, std::string& out) {
    if (!items_.empty()) close(out, "completed");
    add(is_thought, "");
    event(out, "response.output_item.added",
          {{"output_index", index()}, {"item", items_.back().json("in_progress", false)}});
    event(out, "response.content_part.added", place({{"part", items_.back().part()}}));
  }
  void close(std::string& out, const char* state) {
    const Item& item = items_.back();
    JsonValue text = {{"text", item.text}};
    if (!item.is_thought) text["logprobs"] = JsonValue::array();
    event(out, item.event("done"), place(std::move(text)));
    event(out, "response.content_part.done", place({{"part", item.part()}}));
    event(out, "response.output_item.done", {{"output_index", index()}, {"item", item.json(state, true)}});
  }
  void part(bool is_thought, std::string_view text, std::string& out) {
    const bool is_open = !items_.empty() && items_.back().is_thought == is_thought;
    if (is_thought && !is_open) text = thought_of(text);
    if (text.empty()) return;
    if (!is_open) open(is_thought, out);
    items_.back().text += text;
    JsonValue delta = {{"delta", text}};
    if (!is_thought) delta["logprobs"] = JsonValue::array();
    event(out, items_.back().event("delta"), place(std::move(delta)));
  }
  void parts(const ReasoningSplitter::Parts& parts, std::string& out) {
    part(true, parts.thought, out);
    part(false, parts.said, out);
  }

  // Tokens up to the first that says something.
  void count_thoughts(const std::vector<TokenText>& tokens) {
    for (const TokenText& token : tokens) {
      const ReasoningSplitter::Parts now = counter_.push(token.bytes);
      has_thought_ |= !now.thought.empty();
      has_said_ |= !now.said.empty();
      n_before_said_ += !has_said_;
    }
  }

  int index() const { return static_cast<int>(items_.size()) - 1; }
  JsonValue place(JsonValue json) const {
    json["item_id"] = items_.back().id;
    json["output_index"] = index();
    json["content_index"] = 0;
    return json;
  }
  JsonValue object(const char* state, JsonValue output, JsonValue usage) const {
    JsonValue json = {{"id", id_},        {"object", "response"},          {"created_at", created_}, {"status", state},
                      {"error", nullptr}, {"incomplete_details", nullptr}, {"model", model_}};
    json["output"] = std::move(output);
    json["usage"] = std::move(usage);
    for (const auto& [name, value] : echo_.items()) json[name] = value;
    return json;
  }
  JsonValue complete(const Totals& t) const {
    const JsonValue usage = {{"input_tokens", t.prompt_tokens},
                             {"input_tokens_details", {{"cached_tokens", t.cached_tokens}}},
                             {"output_tokens", t.completion_tokens},
                             {"output_tokens_details", {{"reasoning_tokens", has_thought_ ? n_before_said_ : 0}}},
                             {"total_tokens", t.prompt_tokens + t.completion_tokens}};
    JsonValue output = JsonValue::array();
    for (const Item& item : items_) output.push_back(item.json(item.is_thought ? "completed" : item_status(), true));
    JsonValue json = object(status(), std::move(output), usage);
    if (std::string_view(end_.reason) == "length") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (!end_.failure.empty()) json["error"] = {{"code", "server_error"}, {"message", end_.failure}};
    return json;
  }
  void event(std::string& out, const std::string& type, JsonValue json) {
    JsonValue whole = {{"type", type}, {"sequence_number", sequence_++}};
    for (auto& [name, value] : json.items()) whole[name] = std::move(value);
    out += fmt::format("event: {}\n", type);
    append_event(out, whole);
  }

  const std::string id_ = random_id("resp_"), model_;
  const int64_t created_ = std::time(nullptr);
  const JsonValue echo_;
  ReasoningSplitter splitter_, counter_;
  std::vector<Item> items_;
  ChoiceEnd end_;
  bool has_thought_ = false, has_said_ = false;
  int n_before_said_ = 0;
  int sequence_ = 0;
};

JsonValue echo_of(const Fields& fields, const GenerationSpec& spec) {
  const auto or_else = [&](const char* name, JsonValue otherwise) {
    return fields.find(name) ? *fields.find(name) : otherwise;
  };
  return {{"instructions", or_else("instructions", nullptr)},
          {"max_output_tokens", spec.max_tokens > 0 ? JsonValue(spec.max_tokens) : JsonValue()},
          {"metadata", or_else("metadata", JsonValue::object())},
          {"parallel_tool_calls", true},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
          {"store", false},
          {"temperature", spec.sampling.temperature},
          {"text", or_else("text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", or_else("tool_choice", "auto")},
          {"tools", or_else("tools", JsonValue::array())},
          {"top_p", spec.sampling.top_p},
          {"truncation", "disabled"},
          {"user", or_else("user", nullptr)}};
}

}  // namespace

std::unique_ptr<AnswerWriter> responses_writer(std::string model, JsonValue settings, bool thinking) {
  return std::make_unique<ResponsesWriter>(std::move(model), std::move(settings), thinking);
}

void answer_responses(const ApiCall& call) {
  const Fields fields(call.body);
  ServedModel& model = *call.model;
  GenerationSpec spec;
  spec.stream = fields.boolean("stream").value_or(false);
  read_sampling(call, fields, spec);
  if (const JsonValue* text = fields.find("text")) {
    const Fields inner(*text, "text.");
    if (const JsonValue* format = inner.find("format")) read_format(call, *format, "text.format", spec);
  }
  read_max_tokens(fields, {"max_output_tokens"}, spec);
  ServedModel::Ticket ticket = admit(model, 1);
  spec.prompts = {read_prompt(fields, model)};
  check_prompt(model, spec.prompts[0], spec.max_tokens, "input");
  spec.wants_tokens = true;  // to count the thoughts
  const bool thinking = prompt_opens_thought(model, spec.prompts[0]);
  begin_behind_thought(model, thinking, spec);
  auto writer = responses_writer(model.id(), echo_of(fields, spec), thinking);
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer, std::move(writer),
                       call.responder);
}

}  // namespace ingot

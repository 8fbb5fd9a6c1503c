// /v1/responses: OpenAI's newer API, without its memory: every request brings its whole conversation, and nothing is stored.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "server/api.h"
#include "server/request_fields.h"

namespace ingot {
namespace {

constexpr auto kTextTypes = {"input_text", "output_text", "text"};

void append_item(const JsonValue& item, const std::string& where, JsonValue& messages) {
  if (!item.is_object()) refuse_value(where, "must be an object");
  const std::string type = item.contains("type") ? string_member(item, "type", where) : "message";
  if (type == "message") {
    const auto content = item.find("content");
    if (content == item.end()) refuse_value(where + ".content", "is missing");
    messages.push_back(
        {{"role", string_member(item, "role", where)}, {"content", text_of(*content, where + ".content", kTextTypes)}});
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
                        {"content", text_of(*output, where + ".output", kTextTypes)}});
  } else if (type != "reasoning") {
    refuse_value(where + ".type", "must be message, function_call, function_call_output or reasoning");
  }
}

// Functions stand flat there, and in an object of their own in a chat.
JsonValue read_tools(const Fields& fields) {
  JsonValue tools;
  const JsonValue* given = fields.find("tools");
  if (const JsonValue* choice = fields.find("tool_choice")) {
    if (!choice->is_string() || (*choice != "auto" && *choice != "none"))
      fields.refuse("tool_choice", "must be \"auto\" or \"none\": forced calls are not supported by this server yet");
    if (*choice == "none") given = nullptr;
  }
  if (!given) return tools;
  if (!given->is_array()) fields.refuse("tools", "must be an array");
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
  return tools;
}

std::vector<int32_t> read_prompt(const Fields& fields, const ServedModel& model) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"})
    if (fields.find(name))
      fields.refuse(name, "is not supported: this server keeps nothing, so send the whole conversation as input");
  if (fields.boolean("background").value_or(false))
    fields.refuse("background", "is not supported: this server keeps nothing");
  if (fields.string("truncation", 64).value_or("disabled") != "disabled")
    fields.refuse("truncation", "must be \"disabled\": nothing is cut silently here");
  if (const JsonValue* text = fields.find("text")) {
    const Fields inner(*text, "text.");
    if (const JsonValue* format = inner.find("format");
        format && Fields(*format, "text.format.").string("type", 64).value_or("") != "text")
      throw ApiError(400, "text.format.type must be \"text\": constrained output is not supported by this server yet",
                     "text.format.type");
  }
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

class ResponsesWriter final : public AnswerWriter {
 public:
  // `echo`: the request's own settings, which the answer repeats.
  ResponsesWriter(std::string model, JsonValue echo) : model_(std::move(model)), echo_(std::move(echo)) {}

  void begin(std::string& out) override {
    const JsonValue response = object("in_progress", JsonValue::array(), nullptr);
    event(out, "response.created", {{"response", response}});
    event(out, "response.in_progress", {{"response", response}});
    event(out, "response.output_item.added", {{"output_index", 0}, {"item", item("in_progress", JsonValue::array())}});
    event(out, "response.content_part.added", place({{"part", part("")}}));
  }
  void delta(int, const Delta& d, std::string& out) override {
    if (d.text.empty()) return;
    text_ += d.text;
    event(out, "response.output_text.delta", place({{"delta", d.text}, {"logprobs", JsonValue::array()}}));
  }
  void choice_end(int, const ChoiceEnd& end, std::string& out) override {
    end_ = end;
    event(out, "response.output_text.done", place({{"text", text_}, {"logprobs", JsonValue::array()}}));
    event(out, "response.content_part.done", place({{"part", part(text_)}}));
    event(out, "response.output_item.done",
          {{"output_index", 0}, {"item", item(status(), JsonValue::array({part(text_)}))}});
  }
  void end(const Totals& totals, std::string& out) override {
    const std::string type = std::string("response.") + status();
    event(out, type.c_str(), {{"response", complete(totals)}});
  }
  std::string whole(const std::vector<ChoiceResult>& choices, const Totals& totals) override {
    text_ = choices.front().whole.text;
    end_ = choices.front().end;
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
  const char* status() const { return std::string_view(end_.reason) == "length" ? "incomplete" : "completed"; }
  static JsonValue part(const std::string& text) {
    return {
        {"type", "output_text"}, {"text", text}, {"annotations", JsonValue::array()}, {"logprobs", JsonValue::array()}};
  }
  JsonValue item(const char* state, JsonValue content) const {
    return {{"id", item_id_},
            {"type", "message"},
            {"status", state},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }
  JsonValue place(JsonValue json) const {
    json["item_id"] = item_id_;
    json["output_index"] = 0;
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
                             {"output_tokens_details", {{"reasoning_tokens", 0}}},
                             {"total_tokens", t.prompt_tokens + t.completion_tokens}};
    JsonValue json = object(status(), JsonValue::array({item(status(), JsonValue::array({part(text_)}))}), usage);
    if (std::string_view(end_.reason) == "length") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    return json;
  }
  void event(std::string& out, const char* type, JsonValue json) {
    JsonValue whole = {{"type", type}, {"sequence_number", sequence_++}};
    for (auto& [name, value] : json.items()) whole[name] = std::move(value);
    out += fmt::format("event: {}\n", type);
    append_event(out, whole);
  }

  const std::string id_ = random_id("resp_"), item_id_ = random_id("msg_"), model_;
  const int64_t created_ = std::time(nullptr);
  const JsonValue echo_;
  std::string text_;
  ChoiceEnd end_;
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
          {"text", {{"format", {{"type", "text"}}}}},
          {"tool_choice", or_else("tool_choice", "auto")},
          {"tools", or_else("tools", JsonValue::array())},
          {"top_p", spec.sampling.top_p},
          {"truncation", "disabled"},
          {"user", or_else("user", nullptr)}};
}

}  // namespace

void answer_responses(const ApiCall& call) {
  const JsonValue body = parse_request_json(call.request.body);
  const Fields fields(body);
  ServedModel& model = *call.model;
  GenerationSpec spec;
  spec.stream = fields.boolean("stream").value_or(false);
  read_sampling(call, fields, spec);
  if (const JsonValue* metadata = fields.find("metadata"); metadata && !metadata->is_object())
    fields.refuse("metadata", "must be an object");
  spec.max_tokens = read_max_tokens(fields, {"max_output_tokens"});
  ServedModel::Ticket ticket = admit(model, 1);
  spec.prompts = {read_prompt(fields, model)};
  check_prompt(model, spec.prompts[0], spec.max_tokens, "input");
  auto writer = std::make_unique<ResponsesWriter>(model.id(), echo_of(fields, spec));
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.stream_workers, std::move(writer),
                       call.responder);
}

}  // namespace ingot

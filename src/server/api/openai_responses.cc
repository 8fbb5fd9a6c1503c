// /v1/responses: OpenAI's newer API. The server stores nothing, so each request contains its whole conversation.
#include <fmt/format.h>

#include <chrono>

#include "base/json.h"
#include "server/api/api.h"
#include "server/fields/constraint_fields.h"
#include "server/fields/request_fields.h"
#include "server/fields/tool_fields.h"

namespace ingot {
namespace {

constexpr auto kTextTypes = {"input_text", "output_text", "text"};

// The assistant message to which the next call belongs. Adds an empty message if the last one is not an assistant's.
JsonValue& open_turn(JsonValue& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  return messages.back();
}

// Reasoning precedes its message or call. Encrypted reasoning is skipped, because it cannot be read.
void append_reasoning(const JsonValue& item, const std::string& where, JsonValue& messages) {
  const auto content = item.find("content");
  if (content == item.end() || content->is_null()) return;
  const std::string text = content_text(*content, where + ".content", {"reasoning_text", "text"});
  if (!text.empty()) messages.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", text}});
}

void append_item(const JsonValue& item, const std::string& where, JsonValue& messages) {
  if (!item.is_object()) refuse_value(where, "must be an object");
  const std::string type = item.contains("type") ? string_member(item, "type", where) : "message";
  if (type == "message") {
    const auto content = item.find("content");
    if (content == item.end()) refuse_value(where + ".content", "is missing");
    const std::string& role = string_member(item, "role", where);
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      refuse_value(where + ".role", "must be user, assistant, system or developer");
    JsonValue text = content_with_media(*content, where + ".content", kTextTypes);
    const bool joins = role == "assistant" && !messages.empty() && messages.back().contains("reasoning_content") &&
                       messages.back()["content"] == "";
    if (joins)
      messages.back()["content"] = std::move(text);
    else
      messages.push_back({{"role", role}, {"content", std::move(text)}});
  } else if (type == "function_call") {
    const JsonValue function = {{"name", string_member(item, "name", where)},
                                {"arguments", string_member(item, "arguments", where)}};
    const JsonValue call = {
        {"id", string_member(item, "call_id", where)}, {"type", "function"}, {"function", function}};
    open_turn(messages)["tool_calls"].push_back(call);
  } else if (type == "function_call_output") {
    const auto output = item.find("output");
    if (output == item.end()) refuse_value(where + ".output", "is missing");
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", string_member(item, "call_id", where)},
                        {"content", content_with_media(*output, where + ".output", kTextTypes)}});
  } else if (type == "reasoning") {
    append_reasoning(item, where, messages);
  } else {
    refuse_value(where + ".type", "must be message, function_call, function_call_output or reasoning");
  }
}

ChatPrompt read_prompt(const ApiCall& call, const Fields& fields, AnswerForm& form) {
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
  read_tools(fields, ToolStyle::kResponses, form);
  return chat_prompt(call, std::move(messages), form, variables, "input");
}

// An item of the output: reasoning, a message or a call. Reasoning and messages each have one text part and differ only
// in the names of their events.
struct Item {
  enum class Kind : uint8_t { kReasoning, kMessage, kCall };
  Kind kind = Kind::kMessage;
  std::string id, text;  // for a call: its arguments
  std::string call_id = {}, name = {};
  bool whole = true;

  JsonValue part() const {
    if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {
        {"type", "output_text"}, {"text", text}, {"annotations", JsonValue::array()}, {"logprobs", JsonValue::array()}};
  }
  JsonValue json(const char* state, bool is_done) const {
    if (kind == Kind::kCall)
      return {{"id", id},
              {"type", "function_call"},
              {"status", !whole    ? "incomplete"
                         : is_done ? "completed"
                                   : state},
              {"call_id", call_id},
              {"name", name},
              {"arguments", is_done ? text : ""}};
    JsonValue item = {{"id", id}, {"type", kind == Kind::kReasoning ? "reasoning" : "message"}, {"status", state}};
    if (kind == Kind::kReasoning) item["summary"] = JsonValue::array();
    if (kind == Kind::kMessage) item["role"] = "assistant";
    item["content"] = JsonValue::array();
    if (is_done) item["content"].push_back(part());
    return item;
  }
  std::string event(const char* what) const {
    constexpr const char* kNames[] = {"reasoning_text", "output_text", "function_call_arguments"};
    return fmt::format("response.{}.{}", kNames[static_cast<size_t>(kind)], what);
  }
};

class ResponsesWriter final : public AnswerWriter {
 public:
  // `echo`: settings of the request, which the answer repeats.
  ResponsesWriter(std::string model, JsonValue echo) : model_(std::move(model)), echo_(std::move(echo)) {}

  void begin(const Totals&, std::string& out) override {
    const JsonValue response = object("in_progress", JsonValue::array(), nullptr);
    event(out, "response.created", {{"response", response}});
    event(out, "response.in_progress", {{"response", response}});
  }
  void delta(int, const Delta& d, std::string& out) override {
    count_reasoning(d.tokens);
    add(d.events, &out);
  }
  void choice_end(int, const ChoiceEnd& end, std::string& out) override { finish(end, &out); }
  void end(const Totals& totals, std::string& out) override {
    const std::string type = std::string("response.") + status();
    event(out, type, {{"response", complete(totals)}});
  }
  std::string whole(const std::vector<ChoiceResult>& choices, const Totals& totals) override {
    const ChoiceResult& one = choices.front();
    count_reasoning(one.whole.tokens);
    add(one.whole.events, nullptr);
    finish(one.end, nullptr);
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

  // The functions below add to the items. In a stream, `out` is set and gets the events.
  void open(Item item, std::string* out) {
    close(out, "completed");
    items_.push_back(std::move(item));
    is_open_ = true;
    if (!out) return;
    const Item& opened = items_.back();
    event(*out, "response.output_item.added", {{"output_index", index()}, {"item", opened.json("in_progress", false)}});
    if (opened.kind != Item::Kind::kCall) event(*out, "response.content_part.added", place({{"part", opened.part()}}));
  }
  void close(std::string* out, const char* state) {
    if (!std::exchange(is_open_, false) || !out) return;
    const Item& item = items_.back();
    if (item.kind == Item::Kind::kCall) {
      event(*out, item.event("done"), place({{"name", item.name}, {"arguments", item.text}}));
    } else {
      JsonValue text = {{"text", item.text}};
      if (item.kind == Item::Kind::kMessage) text["logprobs"] = JsonValue::array();
      event(*out, item.event("done"), place(std::move(text)));
      event(*out, "response.content_part.done", place({{"part", item.part()}}));
    }
    event(*out, "response.output_item.done", {{"output_index", index()}, {"item", item.json(state, true)}});
  }
  void more(const std::string& text, std::string* out) {
    Item& item = items_.back();
    item.text += text;
    if (!out || text.empty()) return;
    JsonValue delta = {{"delta", text}};
    if (item.kind == Item::Kind::kMessage) delta["logprobs"] = JsonValue::array();
    event(*out, item.event("delta"), place(std::move(delta)));
  }
  void add_text(Item::Kind kind, const char* prefix, const std::string& text, std::string* out) {
    if (!is_open_ || items_.back().kind != kind) open({.kind = kind, .id = random_id(prefix), .text = ""}, out);
    more(text, out);
  }
  void add(const AnswerEvents& events, std::string* out) {
    using Kind = AnswerEvent::Kind;
    for (const AnswerEvent& e : events) {
      if (e.kind == Kind::kReasoning) add_text(Item::Kind::kReasoning, "rs_", e.text, out);
      if (e.kind == Kind::kContent) add_text(Item::Kind::kMessage, "msg_", e.text, out);
      if (e.kind == Kind::kCallBegin)
        open({.kind = Item::Kind::kCall, .id = random_id("fc_"), .text = "", .call_id = e.id, .name = e.text}, out);
      if (e.kind == Kind::kCallArguments) more(e.text, out);
      if (e.kind != Kind::kCallEnd) continue;
      items_.back().whole = e.whole;
      close(out, "completed");
    }
  }
  void finish(const ChoiceEnd& end, std::string* out) {
    end_ = end;
    const bool has_answer = !items_.empty() && items_.back().kind != Item::Kind::kReasoning;
    if (!has_answer) add_text(Item::Kind::kMessage, "msg_", "", out);
    close(out, item_status());
  }

  // Counts the tokens before the first token that adds content or a call.
  void count_reasoning(const std::vector<TokenText>& tokens) {
    for (const TokenText& token : tokens) {
      const bool is_reasoning = token.part == AnswerEvent::Kind::kReasoning;
      has_reasoning_ |= is_reasoning;
      has_said_ |= !is_reasoning && token.part != AnswerEvent::Kind::kMarkup;
      n_before_said_ += !has_said_;
    }
  }

  int index() const { return static_cast<int>(items_.size()) - 1; }
  JsonValue place(JsonValue json) const {
    json["item_id"] = items_.back().id;
    json["output_index"] = index();
    if (items_.back().kind != Item::Kind::kCall) json["content_index"] = 0;
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
    JsonValue usage = {{"input_tokens", t.prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", t.cached_tokens}}},
                       {"output_tokens", t.completion_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", has_reasoning_ ? n_before_said_ : 0}}},
                       {"total_tokens", t.prompt_tokens + t.completion_tokens}};
    add_clamped(usage, t);
    JsonValue output = JsonValue::array();
    // Only the last item may be incomplete.
    for (const Item& item : items_)
      output.push_back(item.json(&item == &items_.back() ? item_status() : "completed", true));
    JsonValue json = object(status(), std::move(output), std::move(usage));
    if (!end_.warnings.empty()) json["warnings"] = end_.warnings;
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
  std::vector<Item> items_;
  ChoiceEnd end_;
  bool is_open_ = false;  // the last item is still open
  bool has_reasoning_ = false, has_said_ = false;
  int n_before_said_ = 0;
  int sequence_ = 0;
};

JsonValue echo_of(const Fields& fields, const GenerationSpec& spec, const AnswerForm& form) {
  const auto or_else = [&](const char* name, JsonValue otherwise) {
    return fields.find(name) ? *fields.find(name) : otherwise;
  };
  return {{"instructions", or_else("instructions", nullptr)},
          {"max_output_tokens", spec.max_tokens > 0 ? JsonValue(spec.max_tokens) : JsonValue()},
          {"metadata", or_else("metadata", JsonValue::object())},
          {"parallel_tool_calls", form.parallel_calls},
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

void answer_responses(const ApiCall& call) {
  const Fields fields(call.body);
  ServedModel& model = *call.model;
  GenerationSpec spec;
  spec.stream = fields.boolean("stream").value_or(false);
  read_sampling(call, fields, spec);
  if (const JsonValue* text = fields.find("text")) {
    const Fields inner(*text, "text.");
    if (const JsonValue* format = inner.find("format")) read_format(*format, "text.format", spec);
  }
  read_max_tokens(fields, {"max_output_tokens"}, spec);
  ServedModel::Ticket ticket = admit(model, 1);
  AnswerForm form;
  ChatPrompt prompt = read_prompt(call, fields, form);
  spec.prompts = {prompt.tokens};
  truncate_prompts(fields, model, spec);
  check_prompt(model, spec.prompts[0], "input", prompt.media);
  encode_media(call, prompt, spec);
  spec.wants_tokens = true;  // to count the tokens of the reasoning
  JsonValue echo = echo_of(fields, spec, form);
  shape_answer(call, std::move(form), spec);
  auto writer = std::make_unique<ResponsesWriter>(model.id(), std::move(echo));
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer, std::move(writer), call.responder);
}

}  // namespace ingot

// /v1/messages and /v1/messages/count_tokens: Anthropic's API, whose messages become OpenAI's for the model's template.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/api/api.h"
#include "server/api/constraint_fields.h"
#include "server/api/reasoning.h"
#include "server/api/request_fields.h"

namespace ingot {
namespace {

// One message of Anthropic's is one or several of OpenAI's: results of tools are messages of their own.
void append_message(const JsonValue& message, const std::string& where, JsonValue& out) {
  if (!message.is_object()) refuse_value(where, "must be an object");
  const std::string& role = string_member(message, "role", where);
  if (role != "user" && role != "assistant") refuse_value(where + ".role", "must be \"user\" or \"assistant\"");
  const auto content = message.find("content");
  if (content == message.end()) refuse_value(where + ".content", "is missing");
  if (content->is_string()) return out.push_back({{"role", role}, {"content", *content}});
  if (!content->is_array()) refuse_value(where + ".content", "must be a string or an array of blocks");
  JsonValue own = {{"role", role}, {"content", ""}};
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string here = fmt::format("{}.content[{}]", where, i);
    const JsonValue& block = (*content)[i];
    if (!block.is_object()) refuse_value(here, "must be an object");
    const std::string& type = string_member(block, "type", here);
    if (type == "text") {
      text += (text.empty() ? "" : "\n") + string_member(block, "text", here);
    } else if (type == "thinking") {
      own["reasoning_content"] = string_member(block, "thinking", here);
    } else if (type == "redacted_thinking") {
      continue;
    } else if (type == "tool_use") {
      const auto input = block.find("input");
      if (input == block.end() || !input->is_object()) refuse_value(here + ".input", "must be an object");
      const JsonValue function = {{"name", string_member(block, "name", here)}, {"arguments", dump_json(*input)}};
      own["tool_calls"].push_back(
          {{"id", string_member(block, "id", here)}, {"type", "function"}, {"function", function}});
    } else if (type == "tool_result") {
      const auto result = block.find("content");
      out.push_back(
          {{"role", "tool"},
           {"tool_call_id", string_member(block, "tool_use_id", here)},
           {"content",
            result == block.end() || result->is_null() ? "" : content_text(*result, here + ".content", {"text"})}});
    } else {
      refuse_value(here + ".type", "must be text, thinking, tool_use or tool_result: this model reads text only");
    }
  }
  own["content"] = text;
  if (!text.empty() || own.contains("tool_calls")) out.push_back(std::move(own));
}

JsonValue read_tools(const Fields& fields) {
  JsonValue tools;
  const JsonValue* given = fields.find("tools");
  bool shown = true;
  if (const JsonValue* choice = fields.find("tool_choice")) {
    const std::string type = Fields(*choice, "tool_choice.").string("type", 64).value_or("");
    if (type == "none") shown = false;
    if (type == "any" || type == "tool")
      fields.refuse("tool_choice", "that forces a call is not supported by this server yet: use auto or none");
    if (type != "auto" && type != "none") fields.refuse("tool_choice", "must have the type auto, any, tool or none");
  }
  if (!given) return tools;
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const JsonValue& tool = (*given)[i];
    if (!tool.is_object()) refuse_value(where, "must be an object");
    if (tool.contains("type") && !tool["type"].is_null() && string_member(tool, "type", where) != "custom")
      refuse_value(where + ".type", "must be \"custom\": this server has no tools of its own");
    JsonValue function = {{"name", string_member(tool, "name", where)}};
    if (tool.contains("description")) function["description"] = string_member(tool, "description", where);
    function["parameters"] = tool.value("input_schema", JsonValue::object());
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return shown ? tools : JsonValue();
}

// What the template is told of thinking. "adaptive" leaves it to the model.
JsonValue read_variables(const Fields& fields) {
  JsonValue variables = JsonValue::object();
  if (const JsonValue* thinking = fields.find("thinking")) {
    const Fields inner(*thinking, "thinking.");
    const std::string type = inner.string("type", 64).value_or("");
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      inner.refuse("type", "must be enabled, disabled or adaptive");
    if (type != "adaptive") variables["enable_thinking"] = type == "enabled";
  }
  if (const JsonValue* config = fields.find("output_config"))
    if (const auto effort = Fields(*config, "output_config.").string("effort", 64))
      variables["reasoning_effort"] = *effort;
  return variables;
}

std::vector<int32_t> read_prompt(const Fields& fields, const ServedModel& model) {
  const JsonValue& given = fields.at("messages");
  if (!given.is_array() || given.empty()) fields.refuse("messages", "must be an array of at least one message");
  JsonValue messages = JsonValue::array();
  if (const JsonValue* system = fields.find("system"))
    messages.push_back({{"role", "system"}, {"content", content_text(*system, "system", {"text"})}});
  for (size_t i = 0; i < given.size(); ++i) append_message(given[i], fmt::format("messages[{}]", i), messages);
  const JsonValue variables = read_variables(fields);
  const JsonValue last = messages.empty() ? JsonValue::object() : messages.back();
  // The answer goes on from the last message.
  const bool goes_on = last.value("role", "") == "assistant" && !last.contains("tool_calls");
  const ChatEnd end = goes_on ? ChatEnd::kOpenMessage : ChatEnd::kAnswer;
  return chat_prompt(model, std::move(messages), read_tools(fields), variables, "messages", end);
}

// What the model thinks is a block of its own before what it says. A stream opens a block with its first text.
class MessagesWriter final : public AnswerWriter {
 public:
  MessagesWriter(std::string model, int n_prompt, bool thinking)
      : model_(std::move(model)), n_prompt_(n_prompt), splitter_(thinking) {}

  void begin(const Totals&, std::string& out) override {
    event(out, {{"type", "message_start"},
                {"message", message(JsonValue::array(), nullptr, {}, {.prompt_tokens = n_prompt_})}});
  }
  void delta(int, const Delta& d, std::string& out) override { parts(splitter_.push(d.text), out); }
  void choice_end(int, const ChoiceEnd& end, std::string& out) override {
    end_ = end;
    parts(splitter_.flush(), out);
    if (open_ != Block::kText) open(Block::kText, out);  // there always is one
    close(out);
  }
  void end(const Totals& totals, std::string& out) override {
    event(out, {{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason(end_)}, {"stop_sequence", stop_sequence(end_)}}},
                {"usage", usage(totals)}});
    event(out, {{"type", "message_stop"}});
  }
  std::string whole(const std::vector<ChoiceResult>& choices, const Totals& totals) override {
    const ChoiceResult& one = choices.front();
    const ReasoningSplitter::Parts all = splitter_.split(one.whole.text);
    JsonValue blocks = JsonValue::array();
    if (const std::string_view thought = thought_of(all.thought); !thought.empty()) {
      blocks.push_back(empty_block(Block::kThinking));
      blocks.back()["thinking"] = thought;
    }
    blocks.push_back({{"type", "text"}, {"text", all.said}});
    return dump_json(message(std::move(blocks), stop_reason(one.end), one.end, totals));
  }
  bool tells_failures() const override { return false; }  // there is no stop_reason for it
  HttpResponse error(const ApiError& e) const override { return anthropic_error_response(e); }
  std::string error_event(const ApiError& e) const override {
    return "event: error\ndata: " + anthropic_error_object(e) + "\n\n";
  }

 private:
  enum class Block { kNone, kThinking, kText };

  static JsonValue empty_block(Block kind) {
    if (kind == Block::kThinking) return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    return {{"type", "text"}, {"text", ""}};
  }
  void open(Block kind, std::string& out) {
    if (open_ != Block::kNone) close(out);
    open_ = kind;
    event(out, {{"type", "content_block_start"}, {"index", index_}, {"content_block", empty_block(kind)}});
  }
  void close(std::string& out) {
    event(out, {{"type", "content_block_stop"}, {"index", index_++}});
    open_ = Block::kNone;
  }
  void part(Block kind, std::string_view text, std::string& out) {
    if (kind == Block::kThinking && open_ != kind) text = thought_of(text);
    if (text.empty()) return;
    if (open_ != kind) open(kind, out);
    const JsonValue delta = kind == Block::kThinking ? JsonValue{{"type", "thinking_delta"}, {"thinking", text}}
                                                     : JsonValue{{"type", "text_delta"}, {"text", text}};
    event(out, {{"type", "content_block_delta"}, {"index", index_}, {"delta", delta}});
  }
  void parts(const ReasoningSplitter::Parts& parts, std::string& out) {
    part(Block::kThinking, parts.thought, out);
    part(Block::kText, parts.said, out);
  }

  static const char* stop_reason(const ChoiceEnd& end) {
    if (!end.stop_string.empty()) return "stop_sequence";
    return std::string_view(end.reason) == "length" ? "max_tokens" : "end_turn";
  }
  static JsonValue stop_sequence(const ChoiceEnd& end) {
    return end.stop_string.empty() ? JsonValue() : JsonValue(end.stop_string);
  }
  static JsonValue usage(const Totals& t) {
    return {{"input_tokens", t.prompt_tokens - t.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", t.cached_tokens},
            {"output_tokens", t.completion_tokens}};
  }
  JsonValue message(JsonValue content, const char* reason, const ChoiceEnd& end, const Totals& totals) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", std::move(content)},
            {"stop_reason", reason ? JsonValue(reason) : JsonValue()},
            {"stop_sequence", stop_sequence(end)},
            {"usage", usage(totals)}};
  }
  static void event(std::string& out, const JsonValue& json) {
    out += fmt::format("event: {}\n", json["type"].get_ref<const std::string&>());
    append_event(out, json);
  }

  const std::string id_ = random_id("msg_"), model_;
  const int n_prompt_;
  ReasoningSplitter splitter_;
  Block open_ = Block::kNone;
  int index_ = 0;
  ChoiceEnd end_;
};

}  // namespace

std::unique_ptr<AnswerWriter> messages_writer(std::string model, int n_prompt, bool thinking) {
  return std::make_unique<MessagesWriter>(std::move(model), n_prompt, thinking);
}

void answer_messages(const ApiCall& call) {
  const Fields fields(call.body);
  ServedModel& model = *call.model;
  GenerationSpec spec;
  spec.stream = fields.boolean("stream").value_or(false);
  read_sampling(call, fields, spec);
  if (const JsonValue* format = fields.find("output_format")) read_format(call, *format, "output_format", spec);
  if (const JsonValue* config = fields.find("output_config")) {
    const Fields inner(*config, "output_config.");
    if (const JsonValue* format = inner.find("format")) read_format(call, *format, "output_config.format", spec);
  }
  if (auto stops = fields.strings("stop_sequences", 16, 256)) spec.stops = std::move(*stops);
  for (const std::string& stop : spec.stops)
    if (stop.empty()) fields.refuse("stop_sequences", "must not hold an empty string");
  fields.at("max_tokens");
  read_max_tokens(fields, {"max_tokens"}, spec);
  ServedModel::Ticket ticket = admit(model, 1);
  spec.prompts = {read_prompt(fields, model)};
  check_prompt(model, spec.prompts[0], spec.max_tokens, "messages");
  const bool thinking = prompt_opens_thought(model, spec.prompts[0]);
  begin_behind_thought(model, thinking, spec);
  auto writer = messages_writer(model.id(), static_cast<int>(spec.prompts[0].size()), thinking);
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer, std::move(writer),
                       call.responder);
}

void answer_count_tokens(const ApiCall& call) {
  const Fields fields(call.body);
  call.responder->respond({.body = dump_json({{"input_tokens", read_prompt(fields, *call.model).size()}})});
}

}  // namespace ingot

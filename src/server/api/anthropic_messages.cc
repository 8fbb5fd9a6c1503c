// /v1/messages and /v1/messages/count_tokens: Anthropic's API. Messages are converted to OpenAI's form for the
// template.
#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json.h"
#include "server/api/api.h"
#include "server/fields/constraint_fields.h"
#include "server/fields/request_fields.h"
#include "server/fields/tool_fields.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

// Appends one Anthropic message as one or several OpenAI messages: each tool result becomes a message.
void append_message(const JsonValue& message, const std::string& where, JsonValue& out) {
  if (!message.is_object()) refuse_value(where, "must be an object");
  const std::string& role = string_member(message, "role", where);
  if (role != "user" && role != "assistant" && role != "system")
    refuse_value(where + ".role", "must be \"user\", \"assistant\" or \"system\"");
  const auto content = message.find("content");
  if (content == message.end()) refuse_value(where + ".content", "is missing");
  if (content->is_string()) return out.push_back({{"role", role}, {"content", *content}});
  if (!content->is_array()) refuse_value(where + ".content", "must be a string or an array of blocks");
  JsonValue own = {{"role", role}, {"content", ""}};
  JsonValue said = JsonValue::array();  // texts and images
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string here = fmt::format("{}.content[{}]", where, i);
    const JsonValue& block = (*content)[i];
    if (!block.is_object()) refuse_value(here, "must be an object");
    const std::string& type = string_member(block, "type", here);
    if (type == "text" || type == "image") {
      JsonValue part = block;
      part["where"] = here;
      said.push_back(std::move(part));
    } else if (type == "thinking") {
      own["reasoning_content"] = own.value("reasoning_content", "") + string_member(block, "thinking", here);
    } else if (type == "redacted_thinking") {
      continue;
    } else if (type == "tool_use") {
      const auto input = block.find("input");
      if (input == block.end() || !input->is_object()) refuse_value(here + ".input", "must be an object");
      // Uses the spacing that models generate, so that the prefix cache finds the generated call.
      const JsonValue function = {{"name", string_member(block, "name", here)}, {"arguments", spaced_json(*input)}};
      own["tool_calls"].push_back(
          {{"id", string_member(block, "id", here)}, {"type", "function"}, {"function", function}});
    } else if (type == "tool_result") {
      const auto result = block.find("content");
      out.push_back({{"role", "tool"},
                     {"tool_call_id", string_member(block, "tool_use_id", here)},
                     {"content", result == block.end() || result->is_null()
                                     ? JsonValue("")
                                     : content_with_media(*result, here + ".content", {"text"})}});
    } else {
      refuse_value(here + ".type", "must be text, image, thinking, tool_use or tool_result");
    }
  }
  own["content"] = content_with_media(said, where + ".content", {"text"});
  if (own["content"] != "" || own.contains("tool_calls")) out.push_back(std::move(own));
}

// The template's variables for thinking. "adaptive" leaves the choice to the model.
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

// Claude Code's system prompt begins with a line such as "x-anthropic-billing-header: cc_version=2.1.9; cch=4e1f0;".
// The line's values change with each request, so the prefix cache would never find the text after the line. Text after
// the header on the same line belongs to the prompt.
std::string without_billing_header(const std::string& system) {
  constexpr std::string_view kName = "x-anthropic-billing-header:";
  if (!system.starts_with(kName)) return system;
  std::string_view rest = std::string_view(system).substr(kName.size());
  for (;;) {
    const size_t end = std::min(rest.find_first_of(";\n"), rest.size());
    const std::string_view field = trim(rest.substr(0, end));
    if (field.find('=') == field.npos || field.find(' ') != field.npos) break;
    rest.remove_prefix(end < rest.size() && rest[end] == ';' ? end + 1 : end);
  }
  if (rest.starts_with('\n')) rest.remove_prefix(1);
  return std::string(rest);
}

// Leaves the header out of the system messages, and then empty system messages.
void leave_out_billing_headers(JsonValue& messages) {
  JsonValue kept = JsonValue::array();
  for (JsonValue& message : messages) {
    if (message["role"] == "system") {
      const std::string text = without_billing_header(message["content"].get<std::string>());
      if (text.empty()) continue;
      message["content"] = text;
    }
    kept.push_back(std::move(message));
  }
  messages = std::move(kept);
}

ChatPrompt read_prompt(const ApiCall& call, const Fields& fields, AnswerForm& form) {
  const JsonValue& given = fields.at("messages");
  if (!given.is_array() || given.empty()) fields.refuse("messages", "must be an array of at least one message");
  JsonValue messages = JsonValue::array();
  if (const JsonValue* system = fields.find("system"))
    if (std::string text = content_text(*system, "system", {"text"}); !text.empty())
      messages.push_back({{"role", "system"}, {"content", std::move(text)}});
  for (size_t i = 0; i < given.size(); ++i) append_message(given[i], fmt::format("messages[{}]", i), messages);
  if (!call.keeps_billing_header) leave_out_billing_headers(messages);
  const JsonValue variables = read_variables(fields);
  const JsonValue last = messages.empty() ? JsonValue::object() : messages.back();
  // If the last message is the assistant's, the answer continues it.
  const bool goes_on = last.value("role", "") == "assistant" && !last.contains("tool_calls");
  const ChatEnd end = goes_on ? ChatEnd::kOpenMessage : ChatEnd::kAnswer;
  read_tools(fields, ToolStyle::kMessages, form);
  return chat_prompt(call, std::move(messages), form, variables, "messages", end);
}

// ingot signs nothing, but clients that send thinking back expect a value here.
constexpr const char* kSignature = "ingot";

// Reasoning, text and each call are blocks, in order. A stream opens a block when the block's first text arrives.
class MessagesWriter final : public AnswerWriter {
 public:
  MessagesWriter(std::string model, int n_prompt) : model_(std::move(model)), n_prompt_(n_prompt) {}

  void begin(const Totals&, std::string& out) override {
    event(out, {{"type", "message_start"},
                {"message", message(JsonValue::array(), nullptr, {}, {.prompt_tokens = n_prompt_})}});
  }
  void delta(int, const Delta& d, std::string& out) override { add(d.events, &out); }
  void choice_end(int, const ChoiceEnd& end, std::string& out) override { finish(end, &out); }
  void end(const Totals& totals, std::string& out) override {
    JsonValue json = {{"type", "message_delta"},
                      {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence(end_)}}},
                      {"usage", usage(totals)}};
    add_warnings(json);
    event(out, json);
    event(out, {{"type", "message_stop"}});
  }
  std::string whole(const std::vector<ChoiceResult>& choices, const Totals& totals) override {
    const ChoiceResult& one = choices.front();
    add(one.whole.events, nullptr);
    finish(one.end, nullptr);
    JsonValue json = message(std::move(blocks_), stop_reason(), end_, totals);
    add_warnings(json);
    return dump_json(json);
  }
  HttpResponse error(const ApiError& e) const override { return anthropic_error_response(e); }
  std::string error_event(const ApiError& e) const override {
    return "event: error\ndata: " + anthropic_error_object(e) + "\n\n";
  }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  // The functions below add to the blocks. In a stream, `out` is set: it gets the events, and the blocks stay empty.
  void open(Block kind, JsonValue block, std::string* out) {
    close(out);
    open_ = kind;
    if (out) event(*out, {{"type", "content_block_start"}, {"index", blocks_.size()}, {"content_block", block}});
    blocks_.push_back(std::move(block));
  }
  void more(const char* type, const char* name, const std::string& text, std::string* out) {
    if (text.empty()) return;
    text_ += text;
    if (!out) return;
    event(*out,
          {{"type", "content_block_delta"}, {"index", blocks_.size() - 1}, {"delta", {{"type", type}, {name, text}}}});
    text_.clear();
  }
  void close(std::string* out) {
    const Block kind = std::exchange(open_, Block::kNone);
    if (kind == Block::kNone) return;
    if (kind == Block::kThinking) delta_signature(out);
    if (out) return event(*out, {{"type", "content_block_stop"}, {"index", blocks_.size() - 1}});
    JsonValue& block = blocks_.back();
    std::string text = std::exchange(text_, {});
    if (kind != Block::kCall) {
      block[kind == Block::kText ? "text" : "thinking"] = std::move(text);
    } else {
      block["input"] = JsonValue::parse(text);  // whole: the form wants whole calls
    }
  }
  void delta_signature(std::string* out) {
    if (!out) {
      blocks_.back()["signature"] = kSignature;
      return;
    }
    event(*out, {{"type", "content_block_delta"},
                 {"index", blocks_.size() - 1},
                 {"delta", {{"type", "signature_delta"}, {"signature", kSignature}}}});
  }
  void add_text(const std::string& text, std::string* out) {
    if (open_ != Block::kText) open(Block::kText, {{"type", "text"}, {"text", ""}}, out);
    more("text_delta", "text", text, out);
  }
  void add_thinking(const std::string& text, std::string* out) {
    if (open_ != Block::kThinking)
      open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
    more("thinking_delta", "thinking", text, out);
  }
  void add(const AnswerEvents& events, std::string* out) {
    using Kind = AnswerEvent::Kind;
    for (const AnswerEvent& e : events) {
      if (e.kind == Kind::kReasoning) add_thinking(e.text, out);
      if (e.kind == Kind::kContent) add_text(e.text, out);
      if (e.kind == Kind::kCallBegin)
        open(Block::kCall, {{"type", "tool_use"}, {"id", e.id}, {"name", e.text}, {"input", JsonValue::object()}}, out);
      if (e.kind == Kind::kCallArguments) more("input_json_delta", "partial_json", e.text, out);
      if (e.kind == Kind::kCallEnd) close(out);
    }
  }
  void finish(const ChoiceEnd& end, std::string* out) {
    end_ = end;
    close(out);
    const bool has_answer = !blocks_.empty() && blocks_.back()["type"] != "thinking";
    if (!has_answer) add_text("", out);
    close(out);
  }

  // stop_reason() also reports "max_tokens" when the model failed, because Anthropic has no other reason for an
  // incomplete answer.
  const char* stop_reason() const {
    if (!end_.stop_string.empty()) return "stop_sequence";
    if (std::string_view(end_.reason) == "length" || !end_.failure.empty()) return "max_tokens";
    return end_.has_calls ? "tool_use" : "end_turn";
  }
  void add_warnings(JsonValue& json) const {
    std::vector<std::string> warnings = end_.warnings;
    if (!end_.failure.empty()) warnings.push_back("the answer ends early: " + end_.failure);
    if (!warnings.empty()) json["warnings"] = std::move(warnings);
  }
  static JsonValue stop_sequence(const ChoiceEnd& end) {
    return end.stop_string.empty() ? JsonValue() : JsonValue(end.stop_string);
  }
  static JsonValue usage(const Totals& t) {
    JsonValue usage = {{"input_tokens", t.prompt_tokens - t.cached_tokens},
                       {"cache_creation_input_tokens", 0},
                       {"cache_read_input_tokens", t.cached_tokens},
                       {"output_tokens", t.completion_tokens}};
    add_clamped(usage, t);
    return usage;
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
  JsonValue blocks_ = JsonValue::array();
  Block open_ = Block::kNone;
  std::string text_;  // of the open block, unless the answer is streamed
  ChoiceEnd end_;
};

}  // namespace

void answer_messages(const ApiCall& call) {
  const Fields fields(call.body);
  ServedModel& model = *call.model;
  GenerationSpec spec;
  spec.stream = fields.boolean("stream").value_or(false);
  read_sampling(call, fields, spec);
  if (const JsonValue* format = fields.find("output_format")) read_format(*format, "output_format", spec);
  if (const JsonValue* config = fields.find("output_config")) {
    const Fields inner(*config, "output_config.");
    if (const JsonValue* format = inner.find("format")) read_format(*format, "output_config.format", spec);
  }
  if (auto stops = fields.strings("stop_sequences", 16, 256)) spec.stops = std::move(*stops);
  for (const std::string& stop : spec.stops)
    if (stop.empty()) fields.refuse("stop_sequences", "must not hold an empty string");
  fields.at("max_tokens");
  read_max_tokens(fields, {"max_tokens"}, spec);
  ServedModel::Ticket ticket = admit(model, 1);
  AnswerForm form;
  ChatPrompt prompt = read_prompt(call, fields, form);
  spec.prompts = {prompt.tokens};
  check_prompt(model, spec.prompts[0], "messages", prompt.media);
  encode_media(call, prompt, spec);
  shape_answer(call, std::move(form), spec);
  auto writer = std::make_unique<MessagesWriter>(model.id(), static_cast<int>(spec.prompts[0].size()));
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer, std::move(writer), call.responder);
}

void answer_count_tokens(const ApiCall& call) {
  const Fields fields(call.body);
  AnswerForm form;
  call.responder->respond({.body = dump_json({{"input_tokens", read_prompt(call, fields, form).tokens.size()}})});
}

}  // namespace ingot

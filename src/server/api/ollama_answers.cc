// /api/chat and /api/generate: Ollama's chat and its completion. Streams are lines of JSON.
#include <fmt/format.h>

#include "server/fields/constraint_fields.h"
#include "server/fields/ollama_fields.h"
#include "server/fields/request_fields.h"
#include "server/fields/tool_fields.h"
#include "text/infill.h"

namespace ingot {
namespace {

int64_t ns_of(double ms) { return static_cast<int64_t>(ms * 1e6); }

class OllamaWriter final : public AnswerWriter {
 public:
  struct Options {
    std::string model;
    bool is_chat = false, logprobs = false;
  };
  explicit OllamaWriter(Options options) : o_(std::move(options)) {}

  const char* stream_type() const override { return "application/x-ndjson"; }
  void begin(const Totals&, std::string&) override {}
  void delta(int, const Delta& d, std::string& out) override { line_of(d.events, d.tokens, out); }
  void choice_end(int, const ChoiceEnd& end, std::string&) override { end_ = end; }
  void end(const Totals& totals, std::string& out) override {
    out += end_.failure.empty() ? dump_json(last({}, {}, totals)) + '\n' : error_event(ApiError(500, end_.failure));
  }
  std::string whole(const std::vector<ChoiceResult>& results, const Totals& totals) override {
    end_ = results[0].end;
    return dump_json(last(parts_of(results[0].whole.events), results[0].whole.tokens, totals));
  }
  HttpResponse error(const ApiError& e) const override { return ollama_error_response(e); }
  std::string error_event(const ApiError& e) const override { return ollama_error_object(e) + '\n'; }

 private:
  struct Parts {
    std::string thinking, content;
    JsonValue calls = JsonValue::array();
    bool empty() const { return thinking.empty() && content.empty() && calls.empty(); }
  };

  // A call is sent as a whole, because its arguments are an object.
  Parts parts_of(const AnswerEvents& events) {
    using Kind = AnswerEvent::Kind;
    Parts parts;
    for (const AnswerEvent& event : events) {
      if (event.kind == Kind::kReasoning) parts.thinking += event.text;
      if (event.kind == Kind::kContent) parts.content += event.text;
      if (event.kind == Kind::kCallBegin) call_ = {{"id", event.id}, {"function", {{"name", event.text}}}};
      if (event.kind == Kind::kCallBegin) arguments_.clear();
      if (event.kind == Kind::kCallArguments) arguments_ += event.text;
      if (event.kind != Kind::kCallEnd) continue;
      call_["function"]["arguments"] = JsonValue::parse(arguments_);  // whole: the form wants whole calls
      parts.calls.push_back(std::exchange(call_, {}));
    }
    return parts;
  }

  JsonValue line(const Parts& parts, const std::vector<TokenText>& tokens) const {
    JsonValue json = {{"model", o_.model}, {"created_at", ollama_time(std::chrono::system_clock::now())}};
    JsonValue inner = JsonValue::object();
    if (o_.is_chat) inner["role"] = "assistant";
    inner[o_.is_chat ? "content" : "response"] = parts.content;
    if (!parts.thinking.empty()) inner["thinking"] = parts.thinking;
    if (!parts.calls.empty()) inner["tool_calls"] = parts.calls;
    if (o_.is_chat) {
      json["message"] = std::move(inner);
    } else {
      json.update(inner);
    }
    if (o_.logprobs && !tokens.empty()) json["logprobs"] = token_logprobs_json(tokens);
    json["done"] = false;
    return json;
  }

  void line_of(const AnswerEvents& events, const std::vector<TokenText>& tokens, std::string& out) {
    const Parts parts = parts_of(events);
    if (parts.empty() && (!o_.logprobs || tokens.empty())) return;
    out += dump_json(line(parts, tokens)) + '\n';
  }

  JsonValue last(const Parts& parts, const std::vector<TokenText>& tokens, const Totals& t) const {
    JsonValue json = line(parts, tokens);
    json["done"] = true;
    json["done_reason"] = end_.reason;
    json["total_duration"] = std::chrono::nanoseconds(Clock::now() - begin_).count();
    json["load_duration"] = 0;
    json["prompt_eval_count"] = t.prompt_tokens;
    json["prompt_eval_duration"] = ns_of(t.prefill_ms);
    json["eval_count"] = t.completion_tokens;
    json["eval_duration"] = ns_of(t.decode_ms);
    add_clamped(json, t);
    if (!end_.warnings.empty()) json["warnings"] = end_.warnings;
    return json;
  }

  const Options o_;
  const Clock::time_point begin_ = Clock::now();
  JsonValue call_;         // the call that is being written
  std::string arguments_;  // of that call
  ChoiceEnd end_;
};

// The client's name for the model.
std::string asked_name(const ApiCall& call, const Fields& fields) {
  return fields.string("model", 1024).value_or(ollama_name(call.model->id()));
}

// A request without messages or prompt loads or unloads the model.
void answer_loaded(const ApiCall& call, const Fields& fields, bool is_chat) {
  JsonValue json = {{"model", asked_name(call, fields)}, {"created_at", ollama_time(std::chrono::system_clock::now())}};
  if (is_chat) {
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    json["response"] = "";
  }
  json["done"] = true;
  json["done_reason"] = read_keep_alive(call, fields) ? "unload" : "load";
  call.responder->respond({.body = dump_json(json)});
}

// Everything but the prompt.
GenerationSpec read_spec(const ApiCall& call, const Fields& fields) {
  GenerationSpec spec;
  read_sampling(call, fields, spec);
  read_ollama_format(fields, spec);
  spec.stream = fields.boolean("stream").value_or(true);
  spec.wants_tokens = read_logprobs(fields, spec.sampling);
  // Numbers below 1 mean that only the context limits the answer.
  const int64_t max_tokens = fields.integer("max_tokens", INT32_MIN, INT32_MAX).value_or(-1);
  if (max_tokens > 0) spec.max_tokens = static_cast<int>(max_tokens);
  return spec;
}

void run(const ApiCall& call, const Fields& fields, GenerationSpec spec, ServedModel::Ticket ticket, bool is_chat) {
  check_prompt(*call.model, spec.prompts[0], is_chat ? "messages" : "prompt");
  auto writer = std::make_unique<OllamaWriter>(OllamaWriter::Options{
      .model = asked_name(call, fields), .is_chat = is_chat, .logprobs = spec.sampling.n_logprobs >= 0});
  read_keep_alive(call, fields);
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer, std::move(writer), call.responder);
}

// Makes the prompt of a chat the request's prompt.
void use_chat(const ApiCall& call, ChatPrompt prompt, const char* field, GenerationSpec& spec) {
  spec.prompts = {prompt.tokens};
  check_prompt(*call.model, spec.prompts[0], field, prompt.media);
  encode_media(call, prompt, spec);
}

// Encodes a chat in OpenAI's form. If the last message is the assistant's, the answer continues it.
ChatPrompt encode(const ApiCall& call, JsonValue chat, AnswerForm& form) {
  const JsonValue& last = chat["messages"].back();
  if (last.value("role", "") == "assistant" && !last.contains("tool_calls")) chat["continue_final_message"] = true;
  return read_chat_prompt(call, Fields(chat), form);
}

// Encodes a raw prompt: the prompt unchanged, or prompt and suffix around a gap.
std::vector<int32_t> encode_raw(const Fields& fields, const ServedModel& model, const std::string& prompt,
                                const std::string& suffix) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (suffix.empty()) return tokenizer.encode(prompt, {.add_special = true, .parse_special = true});
  const EncodeOptions plain = {.add_special = false};
  auto tokens = infill_prompt(tokenizer, tokenizer.encode(prompt, plain), tokenizer.encode(suffix, plain), true);
  if (!tokens) fields.refuse("suffix", "needs a model with fill-in-the-middle tokens; this model has none");
  return std::move(*tokens);
}

}  // namespace

void answer_ollama_chat(const ApiCall& call) {
  const Fields fields = ollama_fields(call.body);
  GenerationSpec spec = read_spec(call, fields);
  const JsonValue* messages = fields.find("messages");
  JsonValue chat = {{"messages", messages ? openai_messages(*messages) : JsonValue::array()}};
  if (const JsonValue* tools = fields.find("tools")) chat["tools"] = *tools;
  read_think(fields, *call.model, chat);
  AnswerForm form{.whole_calls = true};
  if (chat["messages"].empty()) {
    read_tools(Fields(chat), ToolStyle::kChat, form);  // only to check them
    return answer_loaded(call, fields, true);
  }
  ServedModel::Ticket ticket = admit(*call.model, 1);
  use_chat(call, encode(call, std::move(chat), form), "messages", spec);
  shape_answer(call, std::move(form), spec);
  run(call, fields, std::move(spec), std::move(ticket), true);
}

void answer_ollama_generate(const ApiCall& call) {
  const Fields fields = ollama_fields(call.body);
  const std::string prompt = fields.string("prompt", 16 << 20).value_or(""),
                    suffix = fields.string("suffix", 16 << 20).value_or("");
  GenerationSpec spec = read_spec(call, fields);
  JsonValue chat = {{"messages", JsonValue::array()}};
  read_think(fields, *call.model, chat);
  const JsonValue* images = fields.find("images");
  const bool has_images = images && !images->empty();
  if (prompt.empty() && suffix.empty() && !has_images) return answer_loaded(call, fields, false);
  ServedModel::Ticket ticket = admit(*call.model, 1);
  AnswerForm form;
  if (fields.boolean("raw").value_or(false) || !suffix.empty()) {
    if (has_images) fields.refuse("images", "needs a chat template: leave out raw and suffix");
    spec.prompts = {encode_raw(fields, *call.model, prompt, suffix)};
    constrain_text(call, spec);
    form.warnings = spec.constraint_warnings;
    form.format = find_call_format("plain");
    spec.form = std::move(form);
    return run(call, fields, std::move(spec), std::move(ticket), false);
  }
  if (const auto system = fields.string("system", 16 << 20); system && !system->empty())
    chat["messages"].push_back({{"role", "system"}, {"content", *system}});
  JsonValue asked = {{"role", "user"}, {"content", prompt}};
  if (has_images) add_ollama_images(*images, "images", asked);
  chat["messages"].push_back(std::move(asked));
  use_chat(call, encode(call, std::move(chat), form), "prompt", spec);
  shape_answer(call, std::move(form), spec);
  run(call, fields, std::move(spec), std::move(ticket), false);
}

}  // namespace ingot

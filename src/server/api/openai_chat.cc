// /v1/chat/completions: OpenAI's chat API.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/json.h"
#include "server/api/api.h"
#include "server/api/render.h"
#include "server/fields/constraint_fields.h"
#include "server/fields/request_fields.h"

namespace ingot {
namespace {

// The content of events, split into the parts of a message or a delta.
struct Parts {
  struct Call {
    int index = 0;
    bool begins = false;
    std::string id, name, arguments;
  };
  std::string reasoning, content;
  std::vector<Call> calls;

  void add(const AnswerEvents& events);
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

void Parts::add(const AnswerEvents& events) {
  using Kind = AnswerEvent::Kind;
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kReasoning) reasoning += event.text;
    if (event.kind == Kind::kContent) content += event.text;
    if (event.kind == Kind::kCallBegin)
      calls.push_back({.index = event.call, .begins = true, .id = event.id, .name = event.text});
    if (event.kind != Kind::kCallArguments || event.text.empty()) continue;
    if (calls.empty() || calls.back().index != event.call) calls.push_back({.index = event.call});
    calls.back().arguments += event.text;
  }
}

// Appends a delta's tool_calls. Only the first delta of a call has the call's id and name.
void append_calls(std::string& out, const std::vector<Parts::Call>& calls) {
  out += '[';
  for (const Parts::Call& call : calls) {
    out += fmt::format(R"({}{{"index":{},)", out.back() == '[' ? "" : ",", call.index);
    if (call.begins) {
      append_json_string(out += R"("id":)", call.id);
      append_json_string(out += R"(,"type":"function","function":{"name":)", call.name);
      out += ',';
    } else {
      out += R"("function":{)";
    }
    append_json_string(out += R"("arguments":)", call.arguments);
    out += "}}";
  }
  out += ']';
}

class ChatWriter final : public AnswerWriter {
 public:
  struct Options {
    std::string model;
    StreamFields stream;
    int n = 1;
    bool logprobs = false, prompt_logprobs = false;
    std::string echo;  // the last message, which precedes each answer's text
  };
  explicit ChatWriter(Options options) : o_(std::move(options)) {}

  void begin(const Totals& so_far, std::string& out) override {
    const std::string totals = totals_members(o_.stream, so_far);
    for (int i = 0; i < o_.n; ++i) event(i, R"("role":"assistant","content":null)", "", nullptr, totals, out);
    for (int i = 0; i < o_.n; ++i) event_of(i, {.reasoning = "", .content = o_.echo, .calls = {}}, {}, totals, out);
  }

  void progress(int choice, const PromptState& prompt, std::string& out) override {
    event(choice, "", "", nullptr, R"(,"prompt_progress":)" + dump_json(progress_json(prompt)), out);
  }

  void delta(int choice, const Delta& d, std::string& out) override {
    event_of(choice, parts_of(d.events), d.tokens, totals_members(o_.stream, d.so_far), out);
  }

  void event_of(int choice, const Parts& parts, const std::vector<TokenText>& tokens, std::string_view totals,
                std::string& out) {
    const bool has_logprobs = o_.logprobs && std::ranges::any_of(tokens, is_content);
    const bool has_tokens = has_logprobs || (o_.stream.token_ids && !tokens.empty());
    if (parts.empty() && !has_tokens) return;
    std::string delta;
    const auto add = [&](const char* name, const std::string& text) {
      if (text.empty()) return;
      delta += delta.empty() ? "" : ",";
      append_json_string((delta += name) += ':', text);
    };
    add(R"("reasoning_content")", parts.reasoning);
    add(R"("reasoning")", parts.reasoning);
    add(R"("content")", parts.content);
    if (!parts.calls.empty()) {
      delta += delta.empty() ? "" : ",";
      append_calls(delta += R"("tool_calls":)", parts.calls);
    }
    std::string more = R"("logprobs":)" + (o_.logprobs ? dump_json(logprobs_of(tokens)) : "null") + ",";
    if (o_.stream.token_ids) more += R"("token_ids":)" + dump_json(token_ids(tokens)) + ",";
    event(choice, delta, more, nullptr, totals, out);
  }

  void choice_end(int choice, const ChoiceEnd& end, std::string& out) override {
    std::string more = totals_members(o_.stream, end.so_far);
    if (!end.warnings.empty()) more += R"(,"warnings":)" + dump_json(end.warnings);
    event(choice, "", "", finish_reason(end), more, out);
    failure_ += end.failure;
  }

  void end(const Totals& totals, std::string& out) override {
    if (o_.stream.include_usage) {
      JsonValue last = envelope("chat.completion.chunk", JsonValue::array());
      last["usage"] = usage_json(totals);
      last["timings"] = timings_json(totals);
      append_event(out, last);
    }
    out += failure_.empty() ? "data: [DONE]\n\n" : error_event(ApiError(500, failure_));
  }

  std::string whole(const std::vector<ChoiceResult>& results, const Totals& totals) override {
    JsonValue choices = JsonValue::array(), warnings = JsonValue::array();
    for (const ChoiceResult& result : results) {
      const int index = static_cast<int>(choices.size());
      JsonValue one = {{"index", index}, {"message", message(parts_of(result.whole.events))}};
      add_tokens(one, result.whole.tokens);
      one["finish_reason"] = finish_reason(result.end);
      choices.push_back(std::move(one));
      for (const std::string& warning : result.end.warnings) warnings.push_back(warning);
    }
    JsonValue json = envelope("chat.completion", std::move(choices));
    if (o_.prompt_logprobs) json["prompt_logprobs"] = prompt_logprobs_json(results[0].prompt);
    json["usage"] = usage_json(totals);
    json["timings"] = timings_json(totals);
    if (!warnings.empty()) json["warnings"] = std::move(warnings);
    return dump_json(json);
  }

 private:
  static bool is_content(const TokenText& token) { return token.part == AnswerEvent::Kind::kContent; }

  static Parts parts_of(const AnswerEvents& events) {
    Parts parts;
    parts.add(events);
    return parts;
  }

  static const char* finish_reason(const ChoiceEnd& end) {
    return std::string_view(end.reason) == "stop" && end.has_calls ? "tool_calls" : end.reason;
  }

  JsonValue message(const Parts& parts) const {
    JsonValue json = {{"role", "assistant"}, {"content", o_.echo + parts.content}};
    if (json["content"] == "" && !parts.calls.empty()) json["content"] = nullptr;
    // Clients differ in the name that they read.
    if (!parts.reasoning.empty()) json["reasoning_content"] = json["reasoning"] = parts.reasoning;
    for (const Parts::Call& call : parts.calls)
      json["tool_calls"].push_back(
          {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    return json;
  }

  void add_tokens(JsonValue& choice, const std::vector<TokenText>& tokens) const {
    choice["logprobs"] = logprobs_of(tokens);
    if (o_.stream.token_ids) choice["token_ids"] = token_ids(tokens);
  }

  // The tokens of the content only, so that their texts are the content.
  JsonValue logprobs_of(std::vector<TokenText> tokens) const {
    std::erase_if(tokens, [](const TokenText& token) { return !is_content(token); });
    return o_.logprobs ? JsonValue{{"content", token_logprobs_json(tokens)}} : JsonValue();
  }

  static JsonValue token_ids(const std::vector<TokenText>& tokens) {
    JsonValue ids = JsonValue::array();
    for (const TokenText& token : tokens) ids.push_back(token.id);
    return ids;
  }

  JsonValue envelope(const char* object, JsonValue choices) const {
    return {
        {"id", id_}, {"object", object}, {"created", created_}, {"model", o_.model}, {"choices", std::move(choices)}};
  }

  // Builds text instead of JSON values, because this function is called for each token. `delta` has members of the
  // delta. `more` has members of the choice, with a comma after each. `totals` has members of the event, with a comma
  // before each.
  void event(int choice, std::string_view delta, std::string_view more, const char* reason, std::string_view totals,
             std::string& out) const {
    frame_.begin(out);
    const auto to = std::back_inserter(out);
    fmt::format_to(to, R"({{"index":{},"delta":{{{}}},{}"finish_reason":)", choice, delta, more);
    reason ? fmt::format_to(to, "\"{}\"}}", reason) : fmt::format_to(to, "null}}");
    frame_.end(out, totals);
  }

  const Options o_;
  const std::string id_ = random_id("chatcmpl-");
  const int64_t created_ = std::time(nullptr);
  const EventFrame frame_{envelope("chat.completion.chunk", JsonValue::array())};
  std::string failure_;
};

// vLLM's `echo`: the answer begins with the last message if its role is assistant.
std::string echoed(const Fields& fields) {
  if (!fields.boolean("echo").value_or(false)) return "";
  const JsonValue& last = fields.at("messages").back();
  const auto content = last.find("content");
  if (last.value("role", "") != "assistant" || content == last.end() || content->is_null()) return "";
  return content_text(*content, "messages' last content", {"text"});
}

}  // namespace

void answer_chat(const ApiCall& call) {
  const Fields fields(call.body);
  ServedModel& model = *call.model;
  GenerationSpec spec;
  const StreamFields stream = read_generation(call, fields, spec);
  const bool logprobs = read_logprobs(fields, spec.sampling);
  spec.wants_tokens = logprobs || stream.token_ids;
  read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, spec);
  ServedModel::Ticket ticket = admit(model, spec.n_sequences());
  AnswerForm form;
  ChatPrompt prompt = read_chat_prompt(call, fields, form);
  spec.prompts = {prompt.tokens};
  truncate_prompts(fields, model, spec);
  check_prompt(model, spec.prompts[0], "messages", prompt.media);
  check_scores(fields, "prompt_logprobs", spec);
  encode_media(call, prompt, spec);
  form.splits_reasoning = fields.string("reasoning_format", 64).value_or("auto") != "none";
  shape_answer(call, std::move(form), spec);
  auto writer = std::make_unique<ChatWriter>(ChatWriter::Options{.model = model.id(),
                                                                 .stream = stream,
                                                                 .n = spec.n_sent(),
                                                                 .logprobs = logprobs,
                                                                 .prompt_logprobs = spec.prompt_logprobs >= 0,
                                                                 .echo = echoed(fields)});
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer, std::move(writer), call.responder);
}

void answer_chat_render(const ApiCall& call) {
  const Fields fields(call.body);
  AnswerForm form;
  GenerationSpec spec;
  read_generation(call, fields, spec);  // refuses what the route that answers refuses
  read_logprobs(fields, spec.sampling);
  read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, spec);
  const ChatPrompt prompt = read_chat_prompt(call, fields, form);
  spec.prompts = {prompt.tokens};
  truncate_prompts(fields, *call.model, spec);
  check_prompt(*call.model, spec.prompts[0], "messages", prompt.media);
  AnswerText out(call.request, spec.prompts[0].capacity() * sizeof(int32_t));
  add_rendered(out, random_id("chatcmpl-"), *call.model, spec.prompts[0]);
  call.responder->respond({.body = out.take()});
}

}  // namespace ingot

// /v1/chat/completions: OpenAI's chat, streamed and not.
#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>

#include "server/api/api.h"
#include "server/api/constraint_fields.h"
#include "server/api/reasoning.h"
#include "server/api/request_fields.h"

namespace ingot {
namespace {

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}
JsonValue token_json(const std::string& bytes, float logprob) {
  JsonValue numbers = JsonValue::array();
  for (unsigned char byte : bytes) numbers.push_back(byte);
  return {{"token", bytes}, {"logprob", std::max(logprob, -9999.0f)}, {"bytes", std::move(numbers)}};
}

JsonValue logprobs_json(const std::vector<TokenText>& tokens) {
  JsonValue content = JsonValue::array();
  for (const TokenText& token : tokens) {
    JsonValue entry = token_json(token.bytes, token.logprob);
    entry["top_logprobs"] = JsonValue::array();
    for (const TopToken& top : token.top) entry["top_logprobs"].push_back(token_json(top.bytes, top.logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

class ChatWriter final : public AnswerWriter {
 public:
  struct Options {
    std::string model;
    StreamFields stream;
    int n = 1;
    bool logprobs = false, prompt_logprobs = false;
    std::string echo;       // the last message, which comes before each answer's text
    bool splits = true;     // tells thoughts apart
    bool thinking = false;  // the prompt has begun one
  };
  explicit ChatWriter(Options options)
      : o_(std::move(options)), splitters_(static_cast<size_t>(o_.n), ReasoningSplitter(o_.thinking)) {}

  void begin(const Totals& so_far, std::string& out) override {
    const std::string totals = totals_members(o_.stream, so_far);
    for (int i = 0; i < o_.n; ++i) event(i, R"("role":"assistant","content":null)", "", nullptr, totals, out);
    for (int i = 0; i < o_.n; ++i) event_of(i, {.thought = "", .said = o_.echo}, {}, totals, out);
  }

  void progress(int choice, const PromptState& prompt, std::string& out) override {
    event(choice, "", "", nullptr, R"(,"prompt_progress":)" + dump_json(progress_json(prompt)), out);
  }

  void delta(int choice, const Delta& d, std::string& out) override {
    event_of(choice, split(choice, d.text), d.tokens, totals_members(o_.stream, d.so_far), out);
  }

  void event_of(int choice, const ReasoningSplitter::Parts& parts, const std::vector<TokenText>& tokens,
                std::string_view totals, std::string& out) {
    const bool has_tokens = (o_.logprobs || o_.stream.token_ids) && !tokens.empty();
    if (parts.thought.empty() && parts.said.empty() && !has_tokens) return;
    std::string delta;
    const auto add = [&](const char* name, const std::string& text) {
      if (text.empty()) return;
      delta += delta.empty() ? "" : ",";
      append_json_string((delta += name) += ':', text);
    };
    add(R"("reasoning_content")", parts.thought);
    add(R"("reasoning")", parts.thought);
    add(R"("content")", parts.said);
    std::string more = R"("logprobs":)" + (o_.logprobs ? dump_json(logprobs_json(tokens)) : "null") + ",";
    if (o_.stream.token_ids) more += R"("token_ids":)" + dump_json(token_ids(tokens)) + ",";
    event(choice, delta, more, nullptr, totals, out);
  }

  void choice_end(int choice, const ChoiceEnd& end, std::string& out) override {
    const std::string totals = totals_members(o_.stream, end.so_far);
    if (o_.splits) event_of(choice, splitters_[static_cast<size_t>(choice)].flush(), {}, totals, out);
    event(choice, "", "", end.reason, totals, out);
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
    JsonValue choices = JsonValue::array();
    for (const ChoiceResult& result : results) {
      const int index = static_cast<int>(choices.size());
      const ReasoningSplitter::Parts parts = o_.splits
                                                 ? splitters_[choices.size()].split(result.whole.text)
                                                 : ReasoningSplitter::Parts{.thought = "", .said = result.whole.text};
      JsonValue message = {{"role", "assistant"}, {"content", o_.echo + parts.said}};
      add_thought(message, parts.thought);
      JsonValue one = {{"index", index}, {"message", std::move(message)}};
      add_tokens(one, result.whole.tokens);
      one["finish_reason"] = result.end.reason;
      choices.push_back(std::move(one));
    }
    JsonValue json = envelope("chat.completion", std::move(choices));
    if (o_.prompt_logprobs) json["prompt_logprobs"] = prompt_logprobs_json(results[0].prompt);
    json["usage"] = usage_json(totals);
    json["timings"] = timings_json(totals);
    return dump_json(json);
  }

 private:
  ReasoningSplitter::Parts split(int choice, const std::string& text) {
    if (!o_.splits) return {.thought = "", .said = text};
    return splitters_[static_cast<size_t>(choice)].push(text);
  }

  // Under both of the names that clients look for.
  static void add_thought(JsonValue& json, const std::string& thought) {
    if (!thought.empty()) json["reasoning_content"] = json["reasoning"] = thought;
  }

  void add_tokens(JsonValue& choice, const std::vector<TokenText>& tokens) const {
    choice["logprobs"] = o_.logprobs ? logprobs_json(tokens) : JsonValue();
    if (o_.stream.token_ids) choice["token_ids"] = token_ids(tokens);
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

  // Of text, not of JSON values: there is one for each token. `delta`, `more` and `totals` are members in JSON: of the
  // delta, of the choice with a comma after each, and of the event with a comma before each.
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
  std::vector<ReasoningSplitter> splitters_;
  std::string failure_;
};

// logprobs and top_logprobs; true when they are wanted.
bool read_logprobs(const Fields& fields, SamplingParams& sampling) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !wanted) fields.refuse("top_logprobs", "needs \"logprobs\": true");
  sampling.n_logprobs = wanted ? static_cast<int>(top.value_or(0)) : -1;
  return wanted;
}

// vLLM's switch: the answer comes after the last message, where that is an assistant's too.
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
  ServedModel::Ticket ticket = admit(model, spec.n);
  spec.prompts = {read_chat_prompt(fields, model)};
  check_prompt(model, spec.prompts[0], spec.max_tokens, "messages");
  check_scores(fields, "prompt_logprobs", spec);
  const bool thinking = prompt_opens_thought(model, spec.prompts[0]);
  begin_behind_thought(model, thinking, spec);
  const std::string format = fields.string("reasoning_format", 64).value_or("auto");
  auto writer =
      std::make_unique<ChatWriter>(ChatWriter::Options{.model = model.id(),
                                                       .stream = stream,
                                                       .n = spec.n,
                                                       .logprobs = logprobs,
                                                       .prompt_logprobs = spec.prompt_logprobs >= 0,
                                                       .echo = echoed(fields),
                                                       .splits = format != "none",
                                                       .thinking = thinking});
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer, std::move(writer),
                       call.responder);
}

}  // namespace ingot

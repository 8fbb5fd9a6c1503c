// /v1/completions: text that continues a prompt. Prompts are text or token ids, one or several.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <iterator>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "server/api/api.h"
#include "server/api/render.h"
#include "server/fields/constraint_fields.h"
#include "server/fields/request_fields.h"
#include "text/infill.h"

namespace ingot {
namespace {

// Counts characters. Holds back the first bytes of an incomplete character.
class CharacterCount {
 public:
  void add(std::string_view bytes) {
    part_ += bytes;
    std::string_view left = part_;
    for (Utf8Step step; !left.empty() && !(step = utf8_step(left)).cut; left.remove_prefix(step.length)) ++n_;
    part_.erase(0, part_.size() - left.size());
  }
  size_t get() const { return n_; }

 private:
  size_t n_ = 0;
  std::string part_;
};

class CompletionWriter final : public AnswerWriter {
 public:
  struct Options {
    std::string model;
    StreamFields stream;
    int n = 1;
    bool logprobs = false, prompt_logprobs = false;
    std::vector<std::string> warnings;  // about the request
  };
  explicit CompletionWriter(Options options) : o_(std::move(options)) {}

  void begin(const Totals&, std::string&) override {}
  void progress(int choice, const PromptState& prompt, std::string& out) override {
    event(choice, {}, nullptr, R"(,"prompt_progress":)" + dump_json(progress_json(prompt)), out);
  }
  void delta(int choice, const Delta& d, std::string& out) override {
    if (d.text.empty() && !o_.logprobs && !o_.stream.token_ids) return;
    event(choice, d, nullptr, totals_members(o_.stream, d.so_far), out);
  }
  void choice_end(int choice, const ChoiceEnd& end, std::string& out) override {
    std::string more = totals_members(o_.stream, end.so_far);
    if (choice == 0 && !o_.warnings.empty()) more += R"(,"warnings":)" + dump_json(o_.warnings);
    event(choice, {}, end.reason, more, out);
    failure_ += end.failure;
  }
  void end(const Totals& totals, std::string& out) override {
    if (o_.stream.include_usage) {
      JsonValue last = envelope(JsonValue::array());
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
      CharacterCount count;
      choices.push_back(choice_json(index, result.whole.text, result.whole.tokens, count, result.end.reason));
      if (o_.prompt_logprobs)
        choices.back()["prompt_logprobs"] =
            prompt_logprobs_json(results[static_cast<size_t>(index / o_.n * o_.n)].prompt);
    }
    JsonValue json = envelope(std::move(choices));
    json["usage"] = usage_json(totals);
    json["timings"] = timings_json(totals);
    if (!o_.warnings.empty()) json["warnings"] = o_.warnings;
    return dump_json(json);
  }

 private:
  // Members: tokens, token_logprobs, top_logprobs ({token: logprob}), and text_offset, the index of the character at
  // which the token begins.
  static JsonValue logprobs_json(const std::vector<TokenText>& tokens, CharacterCount& count) {
    JsonValue json = {{"tokens", JsonValue::array()},
                      {"token_logprobs", JsonValue::array()},
                      {"top_logprobs", JsonValue::array()},
                      {"text_offset", JsonValue::array()}};
    for (const TokenText& token : tokens) {
      json["tokens"].push_back(token.bytes);
      const bool has_none = std::isnan(token.logprob);  // such a token has no alternatives either
      json["token_logprobs"].push_back(has_none ? JsonValue() : JsonValue(std::max(token.logprob, -9999.0f)));
      JsonValue top = JsonValue::object();
      for (const TopToken& one : token.top) top[one.bytes] = std::max(one.logprob, -9999.0f);
      json["top_logprobs"].push_back(has_none ? JsonValue() : std::move(top));
      json["text_offset"].push_back(count.get());
      count.add(token.bytes);
    }
    return json;
  }

  JsonValue choice_json(int index, std::string text, const std::vector<TokenText>& tokens, CharacterCount& count,
                        const char* reason) const {
    JsonValue json = {{"index", index}, {"text", std::move(text)}, {"logprobs", nullptr}};
    if (o_.logprobs) json["logprobs"] = logprobs_json(tokens, count);
    if (o_.stream.token_ids) {
      json["token_ids"] = JsonValue::array();
      for (const TokenText& token : tokens)
        if (!token.of_prompt) json["token_ids"].push_back(token.id);
    }
    json["finish_reason"] = reason ? JsonValue(reason) : JsonValue();
    return json;
  }

  void event(int choice, const Delta& d, const char* reason, std::string_view more, std::string& out) {
    frame_.begin(out);
    if (o_.logprobs || o_.stream.token_ids) {
      out += dump_json(choice_json(choice, d.text, d.tokens, counts_[choice], reason));
    } else {  // the same JSON, but faster, because this code runs for each token
      fmt::format_to(std::back_inserter(out), R"({{"index":{},"text":)", choice);
      append_json_string(out, d.text);
      out += R"(,"logprobs":null,"finish_reason":)";
      out += reason ? fmt::format(R"("{}"}})", reason) : "null}";
    }
    frame_.end(out, more);
  }

  JsonValue envelope(JsonValue choices) const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", o_.model},
            {"choices", std::move(choices)}};
  }

  const Options o_;
  const std::string id_ = random_id("cmpl-");
  const int64_t created_ = std::time(nullptr);
  const EventFrame frame_{envelope(JsonValue::array())};
  std::map<int, CharacterCount> counts_;  // per choice: characters written so far
  std::string failure_;
};

// With a suffix, the model writes the text between prompt and suffix. Prompt and suffix are then plain text, because
// the name of a control token in a source file must not become that token.
std::vector<Prompt> read_completion_prompts(const Fields& fields, const ServedModel& model) {
  const Tokenizer& tokenizer = model.tokenizer();
  const std::string suffix = fields.string("suffix").value_or("");
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  std::vector<Prompt> prompts = read_prompts(fields, "prompt", kMaxPrompts, [&](const std::string& text) {
    return tokenizer.encode(text, {.add_special = add_special && suffix.empty(), .parse_special = suffix.empty()});
  });
  if (suffix.empty()) return prompts;
  if (fields.boolean("echo").value_or(false)) fields.refuse("suffix", "cannot be combined with echo");
  const std::vector<int32_t> after = tokenizer.encode(suffix, {.add_special = false});
  for (Prompt& prompt : prompts) {
    auto tokens = infill_prompt(tokenizer, prompt.tokens, after, add_special);
    if (!tokens) fields.refuse("suffix", "needs a model with fill-in-the-middle tokens; this model has none");
    prompt.tokens = std::move(*tokens);
  }
  return prompts;
}

}  // namespace

void answer_completions(const ApiCall& call) {
  const Fields fields(call.body);
  ServedModel& model = *call.model;
  GenerationSpec spec;
  const StreamFields stream = read_generation(call, fields, spec);
  const auto logprobs = fields.integer("logprobs", 0, 20);
  spec.sampling.n_logprobs = static_cast<int>(logprobs.value_or(-1));
  spec.echo = fields.boolean("echo").value_or(false);
  spec.wants_tokens = logprobs || stream.token_ids;
  read_max_tokens(fields, {"max_tokens"}, spec, spec.echo ? 0 : 1);
  spec.prompt_only = spec.max_tokens == 0;
  if (spec.prompt_only) spec.max_tokens = 1;  // the sampled token is dropped
  std::vector<Prompt> prompts = read_completion_prompts(fields, model);
  for (Prompt& prompt : prompts) spec.prompts.push_back(std::move(prompt.tokens));
  truncate_prompts(fields, model, spec);
  for (size_t i = 0; i < prompts.size(); ++i) check_prompt(model, spec.prompts[i], prompts[i].path.c_str());
  const bool scores = spec.prompt_logprobs >= 0;
  if (spec.echo && !scores) spec.prompt_logprobs = spec.sampling.n_logprobs;
  check_scores(fields, scores ? "prompt_logprobs" : "logprobs", spec);
  ServedModel::Ticket ticket = admit(model, spec.n_sequences() * static_cast<int>(prompts.size()));
  constrain_text(call, spec);
  CompletionWriter::Options options{
      .model = model.id(),
      .stream = stream,
      .n = spec.n_sent(),
      .logprobs = logprobs.has_value(),
      .prompt_logprobs = scores,
      .warnings = spec.constraint_warnings};
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer,
                       std::make_unique<CompletionWriter>(std::move(options)), call.responder);
}

void answer_completions_render(const ApiCall& call) {
  const Fields fields(call.body);
  GenerationSpec spec;
  read_generation(call, fields, spec);  // refuses what the route that answers refuses
  read_max_tokens(fields, {"max_tokens"}, spec, 0);
  const std::vector<Prompt> prompts = read_completion_prompts(fields, *call.model);
  size_t n_bytes = 0;
  for (const Prompt& prompt : prompts) {
    spec.prompts.push_back(prompt.tokens);
    n_bytes += 2 * prompt.tokens.size() * sizeof(int32_t);
  }
  truncate_prompts(fields, *call.model, spec);
  AnswerText out(call.request, n_bytes);
  const std::string id = random_id("cmpl-");
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(*call.model, spec.prompts[i], prompts[i].path.c_str());
    out += i == 0 ? "[" : ",";
    add_rendered(out, id + "-" + std::to_string(i), *call.model, spec.prompts[i]);
  }
  out += "]";
  call.responder->respond({.body = out.take()});
}

}  // namespace ingot

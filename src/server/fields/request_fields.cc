#include "server/fields/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "server/fields/constraint_fields.h"
#include "server/fields/sampler_fields.h"
#include "server/fields/tool_fields.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

constexpr size_t kMaxStops = 16, kMaxStopBytes = 256, kMaxStopTokens = 128, kMaxBiases = 1024;
constexpr size_t kMaxMessages = 16384;
constexpr int kMaxAnswers = 128;
constexpr int64_t kMaxScores = 1 << 20;

// A bias is a number from -100 to 100, or false, which means that the token is never sampled.
float bias_of(const Fields& fields, const JsonValue& value, const std::string& token) {
  if (value == false) return -std::numeric_limits<float>::infinity();
  if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
    fields.refuse("logit_bias", fmt::format("of token {} must be a number from -100 to 100", printable(token, 32)));
  return value.get<float>();
}

// OpenAI's {"15043": 1.5}, or llama.cpp's [[15043, 1.5], [" Hello", false]]. A text stands for each of its tokens.
void read_logit_bias(const Fields& fields, const ServedModel& model, SamplingParams& p) {
  const JsonValue* bias = fields.find("logit_bias");
  if (!bias) return;
  if (bias->size() > kMaxBiases)
    fields.refuse("logit_bias", fmt::format("has {} entries: at most {}", bias->size(), kMaxBiases));
  const auto add = [&](int64_t id, const std::string& token, const JsonValue& value) {
    if (id < 0 || id >= model.info().n_vocab)
      fields.refuse("logit_bias", fmt::format("names '{}': token ids go from 0 to {}", printable(token, 32),
                                              model.info().n_vocab - 1));
    p.logit_bias.emplace_back(static_cast<int32_t>(id), bias_of(fields, value, token));
  };
  if (bias->is_object()) {
    for (const auto& [key, value] : bias->items()) {
      int32_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      add(error == std::errc() && end == key.data() + key.size() ? id : -1, key, value);
    }
    return;
  }
  if (!bias->is_array()) fields.refuse("logit_bias", "must be an object of token ids and numbers");
  for (const JsonValue& pair : *bias) {
    if (!pair.is_array() || pair.size() != 2 || !(pair[0].is_string() || pair[0].is_number_integer()))
      fields.refuse("logit_bias", "must be a list of pairs: a token or a text, and a number");
    if (pair[0].is_number_integer()) {
      add(pair[0].get<int64_t>(), pair[0].dump(), pair[1]);
      continue;
    }
    const auto& text = pair[0].get_ref<const std::string&>();
    for (const int32_t id : model.tokenizer().encode(text, {.add_special = false})) add(id, text, pair[1]);
  }
  if (p.logit_bias.size() > kMaxBiases)
    fields.refuse("logit_bias", fmt::format("has {} tokens: at most {}", p.logit_bias.size(), kMaxBiases));
}

void read_stops(const Fields& fields, const ServedModel& model, GenerationSpec& spec) {
  spec.stops = fields.strings("stop", kMaxStops, kMaxStopBytes).value_or(std::vector<std::string>());
  for (const std::string& stop : spec.stops)
    if (stop.empty()) fields.refuse("stop", "must not hold an empty string");
  spec.stop_tokens = fields.token_ids("stop_token_ids", kMaxStopTokens).value_or(std::vector<int32_t>());
  for (int32_t id : spec.stop_tokens)
    if (id >= model.info().n_vocab)
      fields.refuse("stop_token_ids", fmt::format("names {}: token ids go from 0 to {}", id, model.info().n_vocab - 1));
  spec.min_tokens = static_cast<int>(fields.integer("min_tokens", 0, INT32_MAX).value_or(0));
  spec.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  spec.keep_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  spec.skip_special = fields.boolean("skip_special_tokens").value_or(true);
}

// OpenAI's prediction is a text that the answer may repeat.
void read_speculation(const Fields& fields, const ServedModel& model, GenerationSpec& spec) {
  spec.speculate = model.speculate();
  if (const auto name = fields.string("speculate", 16)) {
    const std::optional<Speculate> mode = find_speculate(*name);
    if (!mode) fields.refuse("speculate", "must be auto, off, ngram, draft, mtp or eagle3");
    if (!can_speculate(*mode, model.info().draft_head, model.draft()))
      fields.refuse("speculate", fmt::format("is {}, which this server was not started with", *name));
    spec.speculate = *mode;
  }
  const JsonValue* prediction = fields.find("prediction");
  if (!prediction) return;
  if (!prediction->is_object()) fields.refuse("prediction", "must be an object");
  const Fields inner(*prediction, "prediction.");
  if (inner.string("type", 16).value_or("content") != "content") inner.refuse("type", "must be content");
  const JsonValue* content = inner.find("content");
  if (!content) inner.refuse("content", "is missing");
  spec.prediction = model.tokenizer().encode(content_text(*content, "prediction.content", {"text"}),
                                             {.add_special = false, .parse_special = false});
}

// Clients differ in the name of the reasoning.
void rename_reasoning(JsonValue& messages) {
  if (!messages.is_array()) return;
  for (JsonValue& message : messages) {
    if (!message.is_object()) continue;
    const auto reasoning = message.find("reasoning");
    if (reasoning != message.end() && reasoning->is_string() && !message.contains("reasoning_content"))
      message["reasoning_content"] = *reasoning;
  }
}

// The field that an Error about messages refers to.
std::string field_of(const std::string& what, const char* fallback) {
  for (const char* name : {"messages", "tools"})
    if (what.starts_with(name)) return what.substr(0, what.find_first_of(" :"));
  if (what.starts_with("the chat template's variable") || what.starts_with("the chat template gets"))
    return "chat_template_kwargs";
  return fallback;
}

// vLLM's use_beam_search: a search with best_of beams, or n. The other fields of beams have transformers' names.
void read_beams(const Fields& fields, const ServedModel& model, GenerationSpec& spec) {
  const auto n = fields.integer("n", 1, kMaxAnswers).value_or(1);
  const auto width = fields.integer("best_of", 1, kMaxAnswers).value_or(n);
  if (width < n) fields.refuse("best_of", fmt::format("is {}: it must be at least n, {}", width, n));
  if (!fields.boolean("use_beam_search").value_or(false)) return;
  const char* field = "use_beam_search";
  const int most = std::min(kMaxBeams, model.info().max_seqs);
  if (width > most) fields.refuse(field, fmt::format("has {} beams: this server has at most {}", width, most));
  for (const char* other : {"stream", "echo"})
    if (fields.boolean(other).value_or(false)) fields.refuse(field, fmt::format("cannot be combined with {}", other));
  for (const char* other : {"logprobs", "top_logprobs"})  // of alternatives
    if (const JsonValue* count = fields.find(other); count && count->is_number() && *count > 0)
      fields.refuse(field, fmt::format("knows the log-probabilities of its answers only: {} must be 0", other));
  for (const char* other : {"speculate", "prediction"})
    if (fields.find(other)) fields.refuse(field, fmt::format("uses no drafts: leave out {}", other));
  spec.beams = BeamParams{.n_beams = static_cast<int>(width)};
  spec.beams->length_penalty =
      static_cast<float>(fields.number("length_penalty", -100, 100).value_or(spec.beams->length_penalty));
  const JsonValue* early = fields.find("early_stopping");
  if (!early || *early == false) return;
  if (early->is_string() && *early != "never") fields.refuse("early_stopping", "must be true, false or \"never\"");
  spec.beams->early_stopping = *early == true ? EarlyStopping::kYes : EarlyStopping::kNever;
}

}  // namespace

void read_sampling(const ApiCall& call, const Fields& fields, GenerationSpec& spec) {
  const ServedModel& model = *call.model;
  read_constraint(fields, spec);
  read_beams(fields, model, spec);
  const GenerationConfig& defaults = model.defaults();
  SamplingParams& p = spec.sampling;
  const auto real = [&](const char* name, double low, double high, std::optional<float> own, float& into) {
    into = static_cast<float>(fields.number(name, low, high).value_or(own.value_or(into)));
  };
  real("temperature", 0, 100, defaults.temperature, p.temperature);
  real("top_p", std::numeric_limits<float>::min(), 1, defaults.top_p, p.top_p);
  real("min_p", 0, 1, defaults.min_p, p.min_p);
  real("typical_p", std::numeric_limits<float>::min(), 1, defaults.typical_p, p.typical_p);
  real("repetition_penalty", 1e-3, 100, defaults.repetition_penalty, p.repetition_penalty);
  if (fields.find("repeat_penalty")) real("repeat_penalty", 1e-3, 100, {}, p.repetition_penalty);
  real("presence_penalty", -100, 100, {}, p.presence_penalty);
  real("frequency_penalty", -100, 100, {}, p.frequency_penalty);
  read_stages(fields, model, p);
  p.top_k = static_cast<int>(
      std::max<int64_t>(0, fields.integer("top_k", -1, INT32_MAX).value_or(defaults.top_k.value_or(p.top_k))));
  p.penalty_window = static_cast<int>(
      fields.integer("repeat_last_n", -1, INT32_MAX).value_or(defaults.penalty_window.value_or(p.penalty_window)));
  const std::optional<int64_t> seed =
      fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  p.seed = seed && *seed != -1 ? static_cast<uint64_t>(*seed) : random_seed();
  read_logit_bias(fields, model, p);
  read_stops(fields, model, spec);
  read_speculation(fields, model, spec);
  spec.priority = static_cast<int>(fields.integer("priority", -kMaxPriority, kMaxPriority).value_or(0));
  const auto slot = fields.integer("id_slot", -1, model.info().max_seqs - 1).value_or(-1);
  if (slot >= 0) spec.slots = {static_cast<int>(slot)};
  const HttpRequest& request = call.request;
  spec.client = request.client.empty() ? request.peer : request.client;
  const std::string salt = fields.string("cache_salt", 1024).value_or("");
  const bool shares = fields.boolean("cache_prompt").value_or(true);
  spec.cache_salt = request.client + '\n' + salt + (shares ? "" : random_id("\n"));  // random: shares no prefix
  spec.publishes_prefix = salt.empty() && shares;
}

// best_of without beams: as many answers, of which the n best are sent.
static void read_best_of(const Fields& fields, GenerationSpec& spec) {
  const int best_of = static_cast<int>(fields.integer("best_of", 1, kMaxAnswers).value_or(spec.n));
  if (spec.beams || best_of == spec.n) return;
  if (spec.stream) fields.refuse("best_of", "above n needs \"stream\": false: the best answers are known at the end");
  spec.n_best = std::exchange(spec.n, best_of);
}

StreamFields read_generation(const ApiCall& call, const Fields& fields, GenerationSpec& spec) {
  read_sampling(call, fields, spec);
  StreamFields result{.token_ids = fields.boolean("return_token_ids").value_or(false),
                      .timings = fields.boolean("timings_per_token").value_or(false)};
  spec.n = static_cast<int>(fields.integer("n", 1, kMaxAnswers).value_or(1));
  spec.stream = fields.boolean("stream").value_or(false);
  read_best_of(fields, spec);
  if (const JsonValue* options = fields.find("stream_options")) {
    const Fields inner(*options, "stream_options.");
    if (!spec.stream) fields.refuse("stream_options", "needs \"stream\": true");
    result.include_usage = inner.boolean("include_usage").value_or(false);
    result.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
  }
  spec.wants_totals = spec.stream && (result.timings || result.continuous_usage);
  spec.wants_progress = fields.boolean("return_progress").value_or(false) && spec.stream;
  spec.prompt_logprobs = static_cast<int>(fields.integer("prompt_logprobs", 0, 20).value_or(-1));
  if (spec.prompt_logprobs >= 0 && spec.stream)
    fields.refuse("prompt_logprobs", "needs \"stream\": false");
  return result;
}

void read_max_tokens(const Fields& fields, std::initializer_list<const char*> names, GenerationSpec& spec, int lowest) {
  for (const char* name : names) {
    const auto value = fields.integer(name, -1, INT32_MAX);
    if (value && *value >= 0 && *value < lowest)
      fields.refuse(name,
                    fmt::format("is {}: it must be at least {}, or -1 for the rest of the context", *value, lowest));
    if (value && spec.max_tokens < 0) spec.max_tokens = static_cast<int>(*value);
  }
  if (spec.max_tokens >= 0 && spec.min_tokens > spec.max_tokens)
    fields.refuse("min_tokens",
                  fmt::format("is {}: the answer may have at most {} tokens", spec.min_tokens, spec.max_tokens));
}

bool read_logprobs(const Fields& fields, SamplingParams& sampling) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !wanted) fields.refuse("top_logprobs", "needs \"logprobs\": true");
  sampling.n_logprobs = wanted ? static_cast<int>(top.value_or(0)) : -1;
  return wanted;
}

void truncate_prompts(const Fields& fields, const ServedModel& model, GenerationSpec& spec) {
  const auto max_tokens = fields.integer("truncate_prompt_tokens", -1, INT32_MAX);
  if (!max_tokens) return;
  if (*max_tokens == 0)
    fields.refuse("truncate_prompt_tokens", "is 0: it must be at least 1, or -1 for as many tokens as fit");
  const auto n_kept = static_cast<size_t>(*max_tokens > 0 ? *max_tokens : model.n_ctx() - 1);
  for (std::vector<int32_t>& prompt : spec.prompts)
    if (prompt.size() > n_kept) prompt.erase(prompt.begin(), prompt.end() - static_cast<ptrdiff_t>(n_kept));
}

void check_scores(const Fields& fields, const char* field, const GenerationSpec& spec) {
  if (spec.prompt_logprobs < 0) return;
  int64_t n = 0;
  for (const auto& prompt : spec.prompts)
    n += static_cast<int64_t>(prompt.size()) * (spec.echo ? spec.n : 1) * (spec.prompt_logprobs + 1);
  if (n > kMaxScores)
    fields.refuse(field, fmt::format("would return {} numbers for these prompts: at most {}", n, kMaxScores));
}

ChatPrompt chat_prompt(const ApiCall& call, JsonValue messages, AnswerForm& form, const JsonValue& variables,
                       const char* param, ChatEnd end) {
  const ServedModel& model = *call.model;
  if (!model.writes()) throw ApiError(400, "this model has no chat template", param);
  rename_reasoning(messages);
  if (messages.is_array() && messages.empty())
    throw ApiError(400, fmt::format("{} is empty: it needs at least one message", param), param);
  if (messages.size() > kMaxMessages)
    throw ApiError(400, fmt::format("{} has {} messages: at most {}", param, messages.size(), kMaxMessages), param);
  std::vector<MediaFile> files = take_media(call, messages);
  try {
    ChatPrompt prompt;
    if (!files.empty()) prompt.media = call.model->media()->prepare(std::move(files));
    prompt.tokens = prompt.media.empty()
                        ? encode_chat(model.tokenizer(), model.chat(), messages, form.tools, variables, end)
                        : encode_chat_with_media(model.tokenizer(), model.chat(), messages, form.tools, variables, end,
                                                 *model.media(), prompt.media);
    if (std::string change = model.chat().change_of(messages); !change.empty())
      form.warnings.push_back(std::move(change));
    return prompt;
  } catch (const Error& error) {
    throw ApiError(400, printable(error.what(), 1024), field_of(error.what(), param));
  }
}

// vLLM's two switches for the end of the prompt.
static ChatEnd read_chat_end(const Fields& fields) {
  const bool goes_on = fields.boolean("continue_final_message").value_or(false);
  const bool answers = fields.boolean("add_generation_prompt").value_or(!goes_on);
  if (goes_on && answers) fields.refuse("add_generation_prompt", "must be false if continue_final_message is true");
  return goes_on ? ChatEnd::kOpenMessage : answers ? ChatEnd::kAnswer : ChatEnd::kMessage;
}

ChatPrompt read_chat_prompt(const ApiCall& call, const Fields& fields, AnswerForm& form) {
  JsonValue variables = JsonValue::object();
  if (const JsonValue* kwargs = fields.find("chat_template_kwargs")) {
    variables = *kwargs;
  }
  if (const auto effort = fields.string("reasoning_effort", 64)) variables["reasoning_effort"] = *effort;
  if (const JsonValue* documents = fields.find("documents")) {
    variables["documents"] = *documents;
  }
  read_tools(fields, ToolStyle::kChat, form);
  try {
    check_turns(fields.at("messages"), call.model->chat().source());
  } catch (const Error& error) {
    throw ApiError(400, error.what(), field_of(error.what(), "messages"));
  }
  return chat_prompt(call, fields.at("messages"), form, variables, "messages", read_chat_end(fields));
}

std::vector<Prompt> read_prompts(const Fields& fields, const std::string& name, size_t max_count,
                                 const std::function<std::vector<int32_t>(const std::string&)>& encode) {
  const JsonValue& given = fields.at(name.c_str());
  if (given.is_string()) return {{name, encode(given.get_ref<const std::string&>())}};
  if (!given.is_array() || given.empty())
    fields.refuse(name.c_str(), "must be a string, an array of strings, or token ids, and not empty");
  if (given[0].is_number()) return {{name, token_ids_of(given, name)}};
  if (given.size() > max_count)
    fields.refuse(name.c_str(), fmt::format("has {} elements: at most {}", given.size(), max_count));
  std::vector<Prompt> prompts;
  for (const JsonValue& one : given) {
    const std::string path = fmt::format("{}[{}]", name, prompts.size());
    if (one.is_string() && given[0].is_string()) {
      prompts.push_back({path, encode(one.get_ref<const std::string&>())});
    } else if (one.is_array() && given[0].is_array()) {
      prompts.push_back({path, token_ids_of(one, path)});
    } else {
      fields.refuse(name.c_str(), fmt::format("must be strings, or token ids, or arrays of token ids: [{}] is {}",
                                              prompts.size(), one.type_name()));
    }
  }
  return prompts;
}

std::string content_text(const JsonValue& content, const std::string& where, std::initializer_list<const char*> types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse_value(where, "must be a string or an array of text parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", where, i);
    if (!content[i].is_object()) refuse_value(here, "must be an object");
    const std::string& type = string_member(content[i], "type", here);
    if (std::ranges::find(types, type) == types.end())
      refuse_value(here + ".type", fmt::format("must be {}: this model reads text only", fmt::join(types, " or ")));
    text += (text.empty() ? "" : "\n") + string_member(content[i], "text", here);
  }
  return text;
}

void check_prompt(const ServedModel& model, const std::vector<int32_t>& prompt, const char* param,
                  std::span<const PromptMedia> media) {
  const size_t limit = static_cast<size_t>(model.n_ctx());
  if (prompt.empty()) throw ApiError(400, fmt::format("{} has no tokens: it needs at least one", param), param);
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= model.info().n_vocab)
      throw ApiError(
          400, fmt::format("{}[{}] is {}: token ids go from 0 to {}", param, i, prompt[i], model.info().n_vocab - 1),
          param);
  if (prompt.size() < limit) return;
  // Clients recognise this error by OpenAI's first words.
  throw ApiError(
      400,
      fmt::format("this model's maximum context length is {} tokens; the prompt has {}{} and the answer needs at least "
                  "1, together {}: shorten the prompt",
                  limit, prompt.size(),
                  media.empty() ? "" : fmt::format(" ({} of them for {})", media_tokens(media), media_count(media)),
                  prompt.size() + 1),
      param, "context_length_exceeded");
}

ServedModel::Ticket admit(ServedModel& model, int n) {
  if (auto ticket = model.admit(n)) return std::move(*ticket);
  model.metrics.on_rejected();
  throw ApiError(429,
                 fmt::format("the server is busy: {} requests run or wait already; try again soon", model.n_taken()),
                 "", "queue_full");
}

void add_clamped(JsonValue& usage, const Totals& totals) {
  if (totals.max_tokens_clamped > 0) usage["max_tokens_clamped_to"] = totals.max_tokens_clamped;
}

JsonValue usage_json(const Totals& t) {
  JsonValue usage = {
      {"prompt_tokens", t.prompt_tokens},
      {"completion_tokens", t.completion_tokens},
      {"total_tokens", t.prompt_tokens + t.completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", t.cached_tokens}}},
      {"completion_tokens_details",
       {{"accepted_prediction_tokens", t.accepted_drafts}, {"rejected_prediction_tokens", t.rejected_drafts}}}};
  if (t.image_tokens > 0) usage["prompt_tokens_details"]["image_tokens"] = t.image_tokens;
  if (t.audio_tokens > 0) usage["prompt_tokens_details"]["audio_tokens"] = t.audio_tokens;
  add_clamped(usage, t);
  return usage;
}

JsonValue timings_json(const Totals& t) {
  const auto rate = [](int n, double ms) { return ms > 0 && n > 0 ? n / ms * 1e3 : 0.0; };
  const int n_prompt = t.prompt_tokens - t.cached_tokens;
  JsonValue json = {{"cache_n", t.cached_tokens},
                    {"prompt_n", n_prompt},
                    {"prompt_ms", t.prefill_ms},
                    {"prompt_per_second", rate(n_prompt, t.prefill_ms)},
                    {"predicted_n", t.completion_tokens},
                    {"predicted_ms", t.decode_ms},
                    {"predicted_per_second", rate(t.completion_tokens - 1, t.decode_ms)},
                    {"queue_ms", t.queue_ms}};
  if (t.image_tokens > 0) json["image_n"] = t.image_tokens;
  if (t.audio_tokens > 0) json["audio_n"] = t.audio_tokens;
  if (const int n_drafts = t.accepted_drafts + t.rejected_drafts; n_drafts > 0) {
    json["draft_n"] = n_drafts;
    json["draft_n_accepted"] = t.accepted_drafts;
    json["tokens_per_step"] = static_cast<double>(t.completion_tokens) / std::max(1, t.sampling_steps);
    if (t.draft_gain > 0) json["draft_gain"] = t.draft_gain;
  }
  return json;
}

JsonValue progress_json(const PromptState& prompt) {
  return {{"total", prompt.total}, {"cache", prompt.cached}, {"processed", prompt.done}, {"time_ms", prompt.ms}};
}

JsonValue token_logprobs_json(const std::vector<TokenText>& tokens) {
  const auto token_json = [](const std::string& bytes, float logprob) {
    JsonValue numbers = JsonValue::array();
    for (unsigned char byte : bytes) numbers.push_back(byte);
    return JsonValue{{"token", bytes}, {"logprob", std::max(logprob, -9999.0f)}, {"bytes", std::move(numbers)}};
  };
  JsonValue all = JsonValue::array();
  for (const TokenText& token : tokens) {
    JsonValue entry = token_json(token.bytes, token.logprob);
    entry["top_logprobs"] = JsonValue::array();
    for (const TopToken& top : token.top) entry["top_logprobs"].push_back(token_json(top.bytes, top.logprob));
    all.push_back(std::move(entry));
  }
  return all;
}

JsonValue prompt_logprobs_json(const std::vector<TokenText>& tokens) {
  JsonValue json = JsonValue::array({nullptr});
  for (const TokenText& token : tokens) {
    JsonValue of_token = JsonValue::object();
    const auto add = [&](int32_t id, const std::string& bytes, float logprob, const JsonValue& rank) {
      of_token[std::to_string(id)] = {
          {"logprob", std::max(logprob, -9999.0f)}, {"rank", rank}, {"decoded_token", bytes}};
    };
    add(token.id, token.bytes, token.logprob, nullptr);
    for (size_t i = 0; i < token.top.size(); ++i) add(token.top[i].id, token.top[i].bytes, token.top[i].logprob, i + 1);
    json.push_back(std::move(of_token));
  }
  return json;
}

void append_event(std::string& out, const JsonValue& json) {
  out += "data: ";
  out += dump_json(json);
  out += "\n\n";
}

EventFrame::EventFrame(const JsonValue& envelope) : head_("data: " + dump_json(envelope)) {
  CHECK(head_.ends_with(R"("choices":[]})"));
  head_.resize(head_.size() - 2);
}

void EventFrame::end(std::string& out, std::string_view more) const {
  out += ']';
  out += more;
  out += "}\n\n";
}

std::string totals_members(const StreamFields& fields, const Totals& so_far) {
  std::string members;
  if (fields.continuous_usage) members += R"(,"usage":)" + dump_json(usage_json(so_far));
  if (fields.timings) members += R"(,"timings":)" + dump_json(timings_json(so_far));
  return members;
}

uint64_t random_seed() {
  thread_local std::mt19937_64 engine{(uint64_t{std::random_device{}()} << 32) | std::random_device{}()};
  return engine();
}

std::string random_id(const char* prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_seed(), static_cast<uint32_t>(random_seed()));
}

}  // namespace ingot

// The chat functions of the C API: tokenize messages, and parse answers.

#include "base/error.h"
#include "base/json.h"
#include "base/splitmix.h"
#include "capi/capi_guard.h"
#include "capi/capi_request.h"
#include "io/json.h"
#include "text/answers/answer_reader.h"
#include "text/chat_encode.h"
#include "text/chat_messages.h"
#include "text/stream_decoder.h"

namespace ingot {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Parses `text`. Throws Error if the text is not JSON of this type or is nested too deep. NULL gives a JSON null.
OrderedJson json_of(const char* text, const char* name, OrderedJson::value_t type) {
  if (text == nullptr) return nullptr;
  walk_json(text, name, [](const JsonEvent&) {});
  OrderedJson value = OrderedJson::parse(text);
  if (value.type() != type) throw Error("{} is not a JSON {}", name, OrderedJson(type).type_name());
  return value;
}

// Seeds the ids of calls. Equal prompts give equal ids, so the ids stay the same when a growing answer is parsed again.
uint64_t seed_of(std::span<const int32_t> prompt) {
  uint64_t seed = prompt.size();
  for (const int32_t token : prompt) seed = splitmix(seed ^ static_cast<uint64_t>(token));
  return seed;
}

// A message in OpenAI's form.
OrderedJson message_of(const AnswerEvents& events) {
  using Kind = AnswerEvent::Kind;
  std::string reasoning, content;
  OrderedJson calls = OrderedJson::array();
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kReasoning) reasoning += event.text;
    if (event.kind == Kind::kContent) content += event.text;
    if (event.kind == Kind::kCallBegin)
      calls.push_back(
          {{"id", event.id}, {"type", "function"}, {"function", {{"name", event.text}, {"arguments", ""}}}});
    if (event.kind == Kind::kCallArguments) calls.back()["function"]["arguments"].get_ref<std::string&>() += event.text;
  }
  OrderedJson message = {{"role", "assistant"}, {"content", content}};
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

// The delta that the events add to a message, in the form of OpenAI's streams.
OrderedJson change_of(const AnswerEvents& events) {
  using Kind = AnswerEvent::Kind;
  OrderedJson change = OrderedJson::object();
  const auto add = [&](const char* name, const std::string& text) {
    if (!change.contains(name)) change[name] = "";
    change[name].get_ref<std::string&>() += text;
  };
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kReasoning) add("reasoning_content", event.text);
    if (event.kind == Kind::kContent) add("content", event.text);
    if (event.kind == Kind::kCallBegin)
      change["tool_calls"].push_back({{"index", event.call},
                                      {"id", event.id},
                                      {"type", "function"},
                                      {"function", {{"name", event.text}, {"arguments", ""}}}});
    if (event.kind != Kind::kCallArguments) continue;
    OrderedJson& calls = change["tool_calls"];
    if (calls.empty() || calls.back()["index"] != event.call)
      calls.push_back({{"index", event.call}, {"function", {{"arguments", ""}}}});
    calls.back()["function"]["arguments"].get_ref<std::string&>() += event.text;
  }
  return change;
}

std::string dumped(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

AnswerForm form_of(const CapiModel& model, std::span<const int32_t> prompt, const OrderedJson* tools,
                   bool whole_calls) {
  AnswerForm form{.whole_calls = whole_calls, .id_seed = seed_of(prompt)};
  if (tools) form.tools = *tools;
  model.answers.begin(prompt, form);
  return form;
}

std::optional<int32_t> last_of(std::span<const int32_t> tokens) {
  return tokens.empty() ? std::nullopt : std::optional(tokens.back());
}

}  // namespace
}  // namespace ingot

using namespace ingot;

struct ingot_answer {
  ingot_answer(std::shared_ptr<CapiModel> owner, std::span<const int32_t> prompt, const OrderedJson* tools,
               bool whole_calls)
      : model(std::move(owner)),
        decoder(*model->loaded.tokenizer,
                {.shown_special = model->answers.marker_tokens(), .previous = last_of(prompt)}),
        reader(form_of(*model, prompt, tools, whole_calls)) {}

  // The parts of the tokens' text. Without tokens: of the end of the answer.
  AnswerEvents read(std::span<const int32_t> tokens) {
    AnswerEvents events;
    for (const int32_t token : tokens) append_events(events, reader.read(decoder.push(token)));
    if (!tokens.empty()) return events;
    append_events(events, reader.read(decoder.flush()));
    append_events(events, reader.finish());
    return events;
  }

  const std::shared_ptr<CapiModel> model;
  StreamDecoder decoder;
  AnswerReader reader;
  std::string json;  // the last delta
  bool ended = false;
};

extern "C" {

void ingot_chat_options_init_sized(ingot_chat_options* options, size_t size) { init_options(options, size, {}); }

ingot_status ingot_tokenize_chat_with(const ingot_model* model, const char* messages, const ingot_chat_options* given,
                                      int32_t* tokens, size_t capacity, size_t* n) {
  return guarded([&] {
    CapiModel& shared = *required(model, "model").shared;
    const ingot_chat_options o = options_of(given, ingot_chat_options_init);
    const OrderedJson said = json_of(&required(messages, "messages"), "messages", OrderedJson::value_t::array);
    const OrderedJson tools = json_of(o.tools, "tools", OrderedJson::value_t::array);
    OrderedJson variables = json_of(o.variables, "variables", OrderedJson::value_t::object);
    if (variables.is_null()) variables = OrderedJson::object();
    check_turns(said, shared.chat().source());
    const std::vector<PromptMedia> media = prepare_media(shared, o.images, o.n_images);
    const Tokenizer& tokenizer = *shared.loaded.tokenizer;
    copy_out(shared.media ? encode_chat_with_media(tokenizer, shared.chat(), said, tools, variables, ChatEnd::kAnswer,
                                                   *shared.media, media)
                          : encode_chat(tokenizer, shared.chat(), said, tools, variables),
             tokens, capacity, n);
    return INGOT_OK;
  });
}

ingot_status ingot_tokenize_chat(const ingot_model* model, const char* messages, int32_t* tokens, size_t capacity,
                                 size_t* n) {
  return ingot_tokenize_chat_with(model, messages, nullptr, tokens, capacity, n);
}

ingot_status ingot_answer_begin(const ingot_model* model, const int32_t* prompt, size_t n_prompt, const char* tools,
                                ingot_answer** answer) {
  return guarded([&] {
    required(answer, "answer") = nullptr;
    const std::shared_ptr<CapiModel>& shared = required(model, "model").shared;
    if (n_prompt > 0) required(prompt, "prompt");
    const OrderedJson may_be_called = json_of(tools, "tools", OrderedJson::value_t::array);
    *answer = new ingot_answer(shared, {prompt, n_prompt}, tools != nullptr ? &may_be_called : nullptr, false);
    return INGOT_OK;
  });
}

ingot_status ingot_answer_feed(ingot_answer* answer, const int32_t* tokens, size_t n, const char** json,
                               size_t* n_bytes) {
  return guarded([&] {
    ingot_answer& a = required(answer, "answer");
    if (n > 0) required(tokens, "tokens");
    required(json, "json"), required(n_bytes, "n_bytes");
    if (a.ended) throw Error("the answer has ended: begin another one");
    a.ended = n == 0;
    a.json = dumped(change_of(a.read({tokens, n})));
    *json = a.json.c_str(), *n_bytes = a.json.size();
    return INGOT_OK;
  });
}

void ingot_answer_free(ingot_answer* answer) {
  guarded([&] {
    delete answer;
    return INGOT_OK;
  });
}

ingot_status ingot_read_answer(const ingot_model* model, const int32_t* prompt, size_t n_prompt, const char* tools,
                               const int32_t* tokens, size_t n, char* json, size_t capacity, size_t* n_bytes) {
  return guarded([&] {
    if (n > 0) required(tokens, "tokens");
    const std::shared_ptr<CapiModel>& shared = required(model, "model").shared;
    if (n_prompt > 0) required(prompt, "prompt");
    const OrderedJson may_be_called = json_of(tools, "tools", OrderedJson::value_t::array);
    ingot_answer answer(shared, {prompt, n_prompt}, tools != nullptr ? &may_be_called : nullptr, true);
    AnswerEvents events;
    if (n > 0) events = answer.read({tokens, n});
    append_events(events, answer.read({}));
    copy_out(dumped(message_of(events)), json, capacity, n_bytes);
    return INGOT_OK;
  });
}

}  // extern "C"

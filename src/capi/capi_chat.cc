// The C API's part about conversations: tokens of one, and what an answer to one says.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/splitmix.h"
#include "capi/capi_guard.h"
#include "capi/capi_request.h"
#include "io/json.h"
#include "text/calls/answer_parser.h"
#include "text/calls/model_format.h"
#include "text/chat_encode.h"
#include "text/stream_decoder.h"

namespace ingot {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Throws Error where it is no JSON of this type, or too deep. NULL: null.
OrderedJson json_of(const char* text, const char* name, OrderedJson::value_t type) {
  if (text == nullptr) return nullptr;
  walk_json(text, name, [](const JsonEvent&) {});
  OrderedJson value = OrderedJson::parse(text);
  if (value.type() != type) throw Error("{} is no JSON {}", name, OrderedJson(type).type_name());
  return value;
}

std::string decoded(const CapiModel& model, std::span<const int32_t> prompt, std::span<const int32_t> tokens) {
  const auto previous = prompt.empty() ? std::nullopt : std::optional(prompt.back());
  StreamDecoder decoder(*model.loaded.tokenizer, {.shown_special = model.marker_tokens, .previous = previous});
  std::string text;
  for (const int32_t token : tokens) text += decoder.push(token);
  return text + decoder.flush();
}

// Equal prompts have equal ids, so that an answer can be read again while it grows.
uint64_t seed_of(std::span<const int32_t> prompt) {
  uint64_t seed = prompt.size();
  for (const int32_t token : prompt) seed = splitmix(seed ^ static_cast<uint64_t>(token));
  return seed;
}

// A message in OpenAI's shape.
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

}  // namespace
}  // namespace ingot

using namespace ingot;

extern "C" {

void ingot_chat_options_init(ingot_chat_options* options) {
  if (options != nullptr) *options = {.struct_size = sizeof(*options)};
}

ingot_status ingot_tokenize_chat_with(const ingot_model* model, const char* messages, const ingot_chat_options* given,
                                      int32_t* tokens, size_t capacity, size_t* n) {
  return guarded([&] {
    const CapiModel& shared = *required(model, "model").shared;
    const ingot_chat_options o = options_of(given, ingot_chat_options_init);
    const OrderedJson said = json_of(&required(messages, "messages"), "messages", OrderedJson::value_t::array);
    const OrderedJson tools = json_of(o.tools, "tools", OrderedJson::value_t::array);
    OrderedJson variables = json_of(o.variables, "variables", OrderedJson::value_t::object);
    if (variables.is_null()) variables = OrderedJson::object();
    copy_out(encode_chat(*shared.loaded.tokenizer, shared.chat(), said, tools, variables), tokens, capacity, n);
    return INGOT_OK;
  });
}

ingot_status ingot_tokenize_chat(const ingot_model* model, const char* messages, int32_t* tokens, size_t capacity,
                                 size_t* n) {
  return ingot_tokenize_chat_with(model, messages, nullptr, tokens, capacity, n);
}

ingot_status ingot_read_answer(const ingot_model* model, const int32_t* prompt, size_t n_prompt, const char* tools,
                               const int32_t* tokens, size_t n, char* json, size_t capacity, size_t* n_bytes) {
  return guarded([&] {
    const CapiModel& shared = *required(model, "model").shared;
    if (n_prompt > 0) required(prompt, "prompt");
    if (n > 0) required(tokens, "tokens");
    const std::span<const int32_t> asked(prompt, n_prompt);
    const OrderedJson may_be_called = json_of(tools, "tools", OrderedJson::value_t::array);
    AnswerParser parser(*shared.call_format, {.tools = tools != nullptr ? &may_be_called : nullptr,
                                              .calls = tools != nullptr,
                                              .in_reasoning = shared.begins_reasoning(asked),
                                              .id_seed = seed_of(asked)});
    AnswerEvents events;
    parser.feed(decoded(shared, asked, {tokens, n}), events);
    parser.finish(events);
    copy_out(message_of(events).dump(-1, ' ', false, OrderedJson::error_handler_t::replace), json, capacity, n_bytes);
    return INGOT_OK;
  });
}

}  // extern "C"

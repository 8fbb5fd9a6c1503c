// /tokenize, /detokenize and /apply-template: routes that use the model's tokenizer and template but run no model.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/api/api.h"
#include "server/api/request_fields.h"
#include "text/chat_encode.h"

namespace ingot {
namespace {

void respond(const ApiCall& call, const JsonValue& json) { call.responder->respond({.body = dump_json(json)}); }

JsonValue pieces_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  JsonValue pieces = JsonValue::array();
  for (int32_t id : ids) {
    const std::string text(tokenizer.token_bytes(id));
    JsonValue piece = {{"id", id}, {"piece", text}};
    const std::string printed = dump_json(text);
    if (printed.find("\xEF\xBF\xBD") != std::string::npos &&
        text.find("\xEF\xBF\xBD") == std::string::npos) {  // bytes of an incomplete character
      piece["piece"] = JsonValue::array();
      for (unsigned char byte : text) piece["piece"].push_back(byte);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace

void answer_tokenize(const ApiCall& call) {
  const Fields fields(call.body);
  const ServedModel& model = *call.model;
  const auto content = fields.string("content", 16 << 20), prompt = fields.string("prompt", 16 << 20);
  const bool llama = content.has_value();  // llama.cpp's form, by default without BOS
  const auto& text = llama ? content : prompt;
  const bool add_tokens = fields.boolean("add_special_tokens").value_or(!llama);
  const bool add = fields.boolean("add_special").value_or(add_tokens),
             parse = fields.boolean("parse_special").value_or(true);
  std::vector<int32_t> ids;
  if (fields.find("messages")) {
    AnswerForm form;
    ids = read_chat_prompt(fields, model, form);
  } else {
    if (!text) fields.refuse("prompt", "is missing: give prompt, content or messages");
    ids = model.tokenizer().encode(*text, {.add_special = add, .parse_special = parse});
  }
  JsonValue json = {{"count", ids.size()}, {"max_model_len", model.n_ctx()}};
  if (fields.boolean("with_pieces").value_or(false)) {
    json["tokens"] = pieces_json(model.tokenizer(), ids);
  } else {
    json["tokens"] = ids;
  }
  if (fields.boolean("return_token_strs").value_or(false)) {
    json["token_strs"] = JsonValue::array();
    for (int32_t id : ids) json["token_strs"].push_back(std::string(model.tokenizer().token_text(id)));
  }
  respond(call, json);
}

void answer_detokenize(const ApiCall& call) {
  const Fields fields(call.body);
  const auto ids = fields.token_ids("tokens", 1 << 24);
  if (!ids) fields.refuse("tokens", "is missing");
  for (size_t i = 0; i < ids->size(); ++i)
    if ((*ids)[i] >= call.model->tokenizer().n_vocab())
      fields.refuse("tokens", "[" + std::to_string(i) + "] is " + std::to_string((*ids)[i]) +
                                  ": token ids go from 0 to " + std::to_string(call.model->tokenizer().n_vocab() - 1));
  const std::string text = call.model->tokenizer().decode(*ids);
  respond(call, {{"content", text}, {"prompt", text}});
}

void answer_template(const ApiCall& call) {
  const Fields fields(call.body);
  AnswerForm form;
  const std::vector<int32_t> ids = read_chat_prompt(fields, *call.model, form);
  respond(call, {{"prompt", call.model->tokenizer().decode(ids)}});
}

}  // namespace ingot

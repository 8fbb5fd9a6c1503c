// /tokenize, /detokenize and /apply-template: routes that use the model's tokenizer and template but run no model.
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "server/api/api.h"
#include "server/fields/request_fields.h"
#include "server/requests/request_memory.h"
#include "text/chat_encode.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

// {"id": 5, "piece": "text"}; the piece is a list of bytes if it is part of a character.
void add_piece(AnswerText& out, const Tokenizer& tokenizer, int32_t id) {
  const std::string_view text = tokenizer.token_bytes(id);
  out += fmt::format("{{\"id\":{},\"piece\":", id);
  if (is_valid_utf8(text)) {
    out.add_json(text);
  } else {
    out += fmt::format("[{}]", fmt::join(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()), ","));
  }
  out += "}";
}

// "NAME":[ITEM,ITEM]; `add` writes an item.
template <class Add>
void add_list(AnswerText& out, const char* name, const std::vector<int32_t>& ids, const Add& add) {
  out += fmt::format(",\"{}\":[", name);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ",";
    add(ids[i]);
  }
  out += "]";
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
    ids = read_chat_prompt(call, fields, form).tokens;
  } else {
    if (!text) fields.refuse("prompt", "is missing: give prompt, content or messages");
    ids = model.tokenizer().encode(*text, {.add_special = add, .parse_special = parse});
  }
  AnswerText out(call.request, ids.capacity() * sizeof(int32_t));
  out += fmt::format("{{\"count\":{},\"max_model_len\":{}", ids.size(), model.n_ctx());
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  add_list(out, "tokens", ids, [&](int32_t id) {
    with_pieces ? add_piece(out, model.tokenizer(), id) : void(out += std::to_string(id));
  });
  if (fields.boolean("return_token_strs").value_or(false))
    add_list(out, "token_strs", ids, [&](int32_t id) { out.add_json(model.tokenizer().token_text(id)); });
  out += "}";
  call.responder->respond({.body = out.take()});
}

void answer_detokenize(const ApiCall& call) {
  const Fields fields(call.body);
  const auto ids = fields.token_ids("tokens", 1 << 24);
  if (!ids) fields.refuse("tokens", "is missing");
  size_t n_bytes = 0;
  for (size_t i = 0; i < ids->size(); ++i) {
    if ((*ids)[i] >= call.model->tokenizer().n_vocab())
      fields.refuse("tokens", "[" + std::to_string(i) + "] is " + std::to_string((*ids)[i]) +
                                  ": token ids go from 0 to " + std::to_string(call.model->tokenizer().n_vocab() - 1));
    n_bytes += call.model->tokenizer().token_bytes((*ids)[i]).size();
  }
  AnswerText out(call.request, 2 * n_bytes);
  const std::string text = call.model->tokenizer().decode(*ids);
  out += "{\"content\":";
  out.add_json(text);
  out += ",\"prompt\":";
  out.add_json(text);
  out += "}";
  call.responder->respond({.body = out.take()});
}

void answer_template(const ApiCall& call) {
  const Fields fields(call.body);
  AnswerForm form;
  const std::vector<int32_t> ids = read_chat_prompt(call, fields, form).tokens;
  call.responder->respond({.body = dump_json({{"prompt", call.model->tokenizer().decode(ids)}})});
}

}  // namespace ingot

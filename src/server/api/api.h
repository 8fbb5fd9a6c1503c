// The APIs that answer with generated text or tokens, each a function of a request's JSON, which is parsed once, before
// them. They run on a worker's thread and throw ApiError before anything is answered.
#pragma once
#include "server/api/fields.h"
#include "server/generation.h"

namespace ingot {

struct ApiCall {
  const HttpRequest& request;  // its head: the text of its body is gone
  const JsonValue& body;       // an object
  std::shared_ptr<ServedModel> model;
  std::shared_ptr<Responder> responder;
  Pacer& pacer;  // when and where answers are written
  bool keeps_billing_header = false;  // AppOptions'
};

void answer_chat(const ApiCall& call);          // POST /v1/chat/completions
void answer_completions(const ApiCall& call);   // POST /v1/completions
void answer_responses(const ApiCall& call);     // POST /v1/responses
void answer_messages(const ApiCall& call);      // POST /v1/messages: Anthropic's
void answer_count_tokens(const ApiCall& call);  // POST /v1/messages/count_tokens

void answer_rerank(const ApiCall& call);      // POST /v1/rerank: Jina's and Cohere's form
void answer_embeddings(const ApiCall& call);  // POST /v1/embeddings

void answer_tokenize(const ApiCall& call);    // POST /tokenize: llama.cpp's fields, vLLM's, and messages
void answer_detokenize(const ApiCall& call);  // POST /detokenize
void answer_template(const ApiCall& call);    // POST /apply-template

}  // namespace ingot

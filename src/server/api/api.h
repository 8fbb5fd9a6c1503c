// The API routes that use a model. Each route is a function of the request's JSON body, which App parses once. The
// functions run on a worker's thread. They may throw ApiError until they begin to answer.
#pragma once
#include <functional>

#include "server/answers/api_call.h"

namespace ingot {

// The next step of an answer that takes long; false after the answer. Between two steps, other answers take theirs.
using AnswerSteps = std::function<bool()>;

void answer_chat(const ApiCall& call);          // POST /v1/chat/completions
void answer_completions(const ApiCall& call);   // POST /v1/completions
void answer_responses(const ApiCall& call);     // POST /v1/responses
void answer_messages(const ApiCall& call);      // POST /v1/messages, Anthropic's API
void answer_count_tokens(const ApiCall& call);  // POST /v1/messages/count_tokens

// The prompts' token ids, without an answer. The fields are those of the routes that answer.
void answer_chat_render(const ApiCall& call);         // POST /v1/chat/completions/render
void answer_completions_render(const ApiCall& call);  // POST /v1/completions/render

void answer_rerank(const ApiCall& call);      // POST /v1/rerank, in the form of Jina and Cohere
void answer_embeddings(const ApiCall& call);  // POST /v1/embeddings

void answer_tokenize(const ApiCall& call);    // POST /tokenize: takes the fields of llama.cpp and vLLM, and messages
void answer_detokenize(const ApiCall& call);  // POST /detokenize
void answer_template(const ApiCall& call);    // POST /apply-template

// Forms with a recording, which are answered in steps. The request and the body of the call must outlive the steps.
AnswerSteps answer_transcriptions(const ApiCall& call);  // POST /v1/audio/transcriptions, /inference of whisper.cpp
AnswerSteps answer_translations(const ApiCall& call);    // POST /v1/audio/translations

// Ollama's API.
void answer_ollama_chat(const ApiCall& call);        // POST /api/chat
void answer_ollama_generate(const ApiCall& call);    // POST /api/generate
void answer_ollama_embed(const ApiCall& call);       // POST /api/embed
void answer_ollama_embeddings(const ApiCall& call);  // POST /api/embeddings, its older form
void answer_ollama_show(const ApiCall& call);        // POST /api/show
void answer_ollama_pull(const ApiCall& call);        // POST /api/pull

// llama.cpp's API.
void answer_llama_completion(const ApiCall& call);  // POST /completion
void answer_llama_infill(const ApiCall& call);      // POST /infill
void answer_slot(const ApiCall& call);              // POST /slots/ID?action=...
void answer_load(const ApiCall& call);              // POST /models/load: the call itself has loaded the model

}  // namespace ingot

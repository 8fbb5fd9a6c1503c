// Runs a request for vectors or scores: submits its texts to the model's queue. A worker writes the answer. If the
// client disconnects early, the request is cancelled.
#pragma once
#include <functional>

#include "server/answers/api_call.h"

namespace ingot {

struct EmbedAnswer {
  std::vector<float> rows;  // [n_texts, width]
  size_t n_texts = 0, n_tokens = 0;
};

// `body` returns the answer's JSON. If `body` throws ApiError, the answer is that error.
void run_embeds(const ApiCall& call, ServedModel::Ticket ticket, std::vector<EmbedText> texts,
                std::function<std::string(EmbedAnswer)> body);

}  // namespace ingot

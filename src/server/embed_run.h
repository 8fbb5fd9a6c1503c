// Runs a request for vectors or scores: its texts go through the model's queue, and a worker writes the answer. If the
// client leaves early, the request is cancelled.
#pragma once
#include <functional>

#include "server/api/api.h"

namespace ingot {

struct EmbedAnswer {
  std::vector<float> rows;  // [n_texts, width]
  size_t n_texts = 0, n_tokens = 0;
};

// `body` makes the JSON of the answer. If `body` throws ApiError, the error is the answer.
void run_embeds(const ApiCall& call, ServedModel::Ticket ticket, std::vector<EmbedText> texts,
                std::function<std::string(EmbedAnswer)> body);

}  // namespace ingot

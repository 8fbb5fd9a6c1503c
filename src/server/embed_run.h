// A request for vectors or scores on its way: its texts go through the model's queue, and what comes back is written on
// a worker. Who leaves early is forgotten.
#pragma once
#include <functional>

#include "server/api/api.h"

namespace ingot {

struct EmbedAnswer {
  std::vector<float> rows;  // [n_texts, width]
  size_t n_texts = 0, n_tokens = 0;
};

// `body` makes the answer's JSON; what it throws as ApiError is the answer instead.
void run_embeds(const ApiCall& call, ServedModel::Ticket ticket, std::vector<EmbedText> texts,
                std::function<std::string(EmbedAnswer)> body);

}  // namespace ingot

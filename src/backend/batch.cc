#include "backend/batch.h"

#include <algorithm>

#include "backend/sampling.h"
#include "base/check.h"

namespace ingot {

std::span<const int32_t> with_drawn_tokens(const Batch& batch, std::span<const Sampled> drawn,
                                           std::vector<int32_t>& storage) {
  if (std::ranges::none_of(batch.tokens, [](int32_t token) { return token < 0; })) return batch.tokens;
  storage.assign(batch.tokens.begin(), batch.tokens.end());
  for (int32_t& token : storage) {
    if (token >= 0) continue;
    const int row = -1 - token;
    CHECK_LT(row, static_cast<int>(drawn.size()));
    token = std::max(drawn[row].token, 0);
  }
  return storage;
}

}  // namespace ingot

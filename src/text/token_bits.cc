#include "text/token_bits.h"

#include <algorithm>

namespace ingot {

std::vector<std::string> dry_default_breakers() { return {"\n", ":", "\"", "*"}; }

std::shared_ptr<const std::vector<uint32_t>> tokens_with(const Tokenizer& tokenizer,
                                                         const std::vector<std::string>& texts, int n_vocab) {
  if (texts.empty()) return nullptr;
  auto bits = std::make_shared<std::vector<uint32_t>>((static_cast<size_t>(n_vocab) + 31) / 32);
  for (int32_t id = 0; id < std::min(n_vocab, tokenizer.n_vocab()); ++id) {
    const std::string_view token = tokenizer.token_bytes(id);
    const auto contains = [&](const std::string& text) { return token.find(text) != token.npos; };
    if (std::ranges::any_of(texts, contains)) (*bits)[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  return bits;
}

}  // namespace ingot

#include "text/calls/marker_tokens.h"

#include <algorithm>

namespace ingot {

const CallFormat& call_format_of(const ChatTemplate& chat) {
  const CallFormat& format = call_format_of_template(chat.source());
  return format.syntax == CallSyntax::kNone ? *find_call_format("generic") : format;
}

std::vector<int32_t> marker_tokens(const Tokenizer& tokenizer, const CallFormat& format) {
  const std::vector<std::string_view> texts = format.texts();
  std::vector<int32_t> tokens;
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
    const std::string_view token = tokenizer.token_text(id);
    if (!tokenizer.is_special(id) || token.empty()) continue;
    if (std::ranges::any_of(texts, [&](std::string_view text) { return text.find(token) != text.npos; }))
      tokens.push_back(id);
  }
  return tokens;
}

}  // namespace ingot

#include "text/calls/model_format.h"

#include <algorithm>

namespace ingot {

const CallFormat& call_format_of_model(std::string_view chat_template) {
  const CallFormat& format = call_format_of_template(chat_template);
  return format.syntax == CallSyntax::kNone ? *find_call_format("generic") : format;
}

std::vector<int32_t> marker_tokens(const CallFormat& format, const Tokenizer& tokenizer) {
  const std::vector<std::string_view> texts = format.texts();
  std::vector<int32_t> markers;
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
    const std::string_view token = tokenizer.token_text(id);
    if (!tokenizer.is_special(id) || token.empty()) continue;
    if (std::ranges::any_of(texts, [&](std::string_view text) { return text.find(token) != text.npos; }))
      markers.push_back(id);
  }
  return markers;
}

}  // namespace ingot

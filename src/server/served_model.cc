#include "server/served_model.h"

#include <algorithm>

namespace ingot {

// A template that shows no calls gets tools and calls in words (generic_tools.h), of which `generic` is the format.
void ServedModel::find_markers() {
  const CallFormat*& format = parts_.call_format;
  if (!format) {
    format = &call_format_of_template(parts_.chat.source());
    if (format->syntax == CallSyntax::kNone) format = find_call_format("generic");
  }
  const Tokenizer& tokenizer = *parts_.tokenizer;
  const std::vector<std::string_view> texts = format->texts();
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
    const std::string_view token = tokenizer.token_text(id);
    if (!tokenizer.is_special(id) || token.empty()) continue;
    if (std::ranges::any_of(texts, [&](std::string_view text) { return text.find(token) != text.npos; }))
      marker_tokens_.push_back(id);
  }
}

}  // namespace ingot

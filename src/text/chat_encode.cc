#include "text/chat_encode.h"

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// U+10FFFF, a noncharacter: text has no use for it, templates pass it on, and it is cut out again after rendering.
constexpr std::string_view kSplit = "\xF4\x8F\xBF\xBF";

void erase_all(std::string& text, std::string_view what) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) text.erase(at, what.size());
}

std::vector<std::string> control_names(const Tokenizer& tokenizer) {
  std::vector<std::string> names;
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id)
    if (tokenizer.type(id) == TokenType::kControl && tokenizer.token_text(id).size() > 1)
      names.emplace_back(tokenizer.token_text(id));
  return names;
}

// Breaks every control token's name in a user's text after its first byte.
void disarm(std::string& text, const std::vector<std::string>& names) {
  erase_all(text, kSplit);
  for (const std::string& name : names)
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) text.insert(at + 1, kSplit);
}

void disarm_strings(Json& json, const std::vector<std::string>& names) {
  if (json.is_string()) return disarm(json.get_ref<std::string&>(), names);
  for (Json& child : json)
    if (child.is_structured() || child.is_string()) disarm_strings(child, names);
}

}  // namespace

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat, const Json& messages, const Json& tools,
                                 const Json& variables) {
  Json safe = messages, safe_tools = tools;
  const std::vector<std::string> names = control_names(tokenizer);
  disarm_strings(safe, names);
  disarm_strings(safe_tools, names);
  const std::string text = chat.render(safe, safe_tools, true, variables);
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kSplit, begin), text.size());
    const std::string_view piece = std::string_view(text).substr(begin, end - begin);
    const std::vector<int32_t> more = tokenizer.encode(piece, {.add_special = begin == 0, .parse_special = true});
    ids.insert(ids.end(), more.begin(), more.end());
    begin = end + kSplit.size();
  }
  return ids;
}

}  // namespace ingot

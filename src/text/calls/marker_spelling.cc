#include "text/calls/marker_spelling.h"

#include <algorithm>

#include "base/ascii.h"
#include "text/grammar/masks/model_grammars.h"

namespace ingot {

MarkerSpelling::MarkerSpelling(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const Token& token) { return token.name.empty(); });
  std::ranges::stable_sort(tokens_, [](const Token& a, const Token& b) { return a.name.size() > b.name.size(); });
}

MarkerSpelling::Text MarkerSpelling::spell(std::string_view text) const {
  Text out;
  while (!text.empty()) {
    const auto token = std::ranges::find_if(tokens_, [&](const Token& one) { return text.starts_with(one.name); });
    if (token == tokens_.end()) {
      out.bytes += text[0];
      text.remove_prefix(1);
      continue;
    }
    out.ends_answer = token->ends_answer;
    if (out.ends_answer) break;
    out.bytes += kControlByte + token->name;
    text.remove_prefix(token->name.size());
  }
  return out;
}

std::string MarkerSpelling::key() const {
  std::string key;
  for (const Token& token : tokens_) key += token.name + (token.ends_answer ? "\n!" : "\n");
  return key;
}

Terminator::Terminator(std::string_view marker, const MarkerSpelling& spelling) : plain(trim(marker)) {
  const std::string spelled = spelling.spell(plain).bytes;
  for (size_t i = 0; i < spelled.size(); ++i)
    if (spelled[i] == kControlByte) controls.push_back(i - controls.size());
  const size_t begin = marker.find(plain);
  if (!plain.empty()) layout = spelling.spell(marker.substr(begin + plain.size())).bytes;
}

TerminatorSearch::Found TerminatorSearch::feed(const Terminator& terminator, char c, std::string& released) {
  const std::string& plain = terminator.plain;
  if (c == kControlByte) return begin_token(terminator, released);
  held += c;
  if (plain.starts_with(held)) {
    if (held.size() < plain.size()) return Found::kNo;
    held.clear();
    const bool is_whole = n_tokens == terminator.controls.size();
    n_tokens = 0;
    return is_whole ? Found::kYes : Found::kNever;
  }
  if (n_tokens > 0) return Found::kNever;
  size_t n = 1;  // leading bytes of `held` that are not part of the terminator
  while (!plain.starts_with(std::string_view(held).substr(n))) ++n;
  released += held.substr(0, n);
  held.erase(0, n);
  return Found::kNo;
}

// Reads the start of a control token: the terminator's next token, or its first token after other text.
TerminatorSearch::Found TerminatorSearch::begin_token(const Terminator& terminator, std::string& released) {
  if (n_tokens >= terminator.controls.size()) return Found::kNever;
  const size_t at = terminator.controls[n_tokens];
  const bool fits = held.size() >= at && terminator.plain.starts_with(std::string_view(held).substr(held.size() - at));
  if (!fits || (n_tokens > 0 && held.size() > at)) return Found::kNever;
  released += held.substr(0, held.size() - at);
  held.erase(0, held.size() - at);
  ++n_tokens;
  return Found::kNo;
}

bool TerminatorSearch::may_end(const Terminator& terminator) const {
  const auto is_past = [&](size_t at) { return at < held.size(); };
  const auto n_past = static_cast<size_t>(std::ranges::count_if(terminator.controls, is_past));
  return n_tokens >= n_past;
}

}  // namespace ingot

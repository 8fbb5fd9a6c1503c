#include "text/grammar/masks/vocabulary.h"

#include <algorithm>

#include "text/grammar/languages/json_word.h"
#include "text/grammar/languages/regular.h"

namespace ingot {

GrammarVocabulary::GrammarVocabulary(std::vector<std::string> bytes, std::vector<int32_t> ends, Encode encode)
    : bytes_(std::move(bytes)),
      ends_(std::move(ends)),
      encode_(std::move(encode)),
      end_mask_((bytes_.size() + 31) / 32) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int32_t id = 0; id < size(); ++id) {
    if (!bytes_[static_cast<size_t>(id)].empty()) tokens.emplace_back(bytes_[static_cast<size_t>(id)], id);
  }
  trie_ = TokenTrie(std::move(tokens));
  for (int32_t end : ends_) allow_token(end_mask_, end);
  plain_ = PlainTokens(bytes_);
  read_contents();
  make_trees();
}

void GrammarVocabulary::read_contents() {
  RegularLanguages languages;
  const RegularLanguages::Id text = languages.any_text();
  contents_.resize(bytes_.size());
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (bytes_[id].empty() || bytes_[id].size() > TokenTrie::kMaxTokenBytes) continue;
    Content content{Content::Kind::kInside, 0, 0};
    Escape escape;
    RegularLanguages::Id at = text;
    for (char c : bytes_[id]) {
      ++content.n_bytes;
      const bool is_boundary = escape.phase == Escape::kNone && at == text;
      if (c == '"' && is_boundary) {
        content.kind = Content::Kind::kCloses;
        break;
      }
      if (is_boundary) ++content.n_chars;
      const EscapeStep step = at == text ? step_escape(escape, static_cast<uint8_t>(c))
                                         : EscapeStep{EscapeStep::kBytes, {}, {static_cast<uint8_t>(c)}, 1};
      escape = step.next;
      for (int i = 0; i < step.n; ++i) at = languages.row(at)[step.bytes[i]];
      if (step.kind == EscapeStep::kBad || at == RegularLanguages::kNothing) {
        content.kind = Content::Kind::kNone;
        break;
      }
    }
    const std::string_view after =
        content.kind == Content::Kind::kCloses ? std::string_view(bytes_[id]).substr(content.n_bytes) : "";
    if (after.find_first_of("}]") != after.npos || std::ranges::count(after, '"') > 1)
      far_closers_.push_back(static_cast<int32_t>(id));
    longest_ = std::max(longest_, int{content.n_chars});
    if (content.kind == Content::Kind::kCloses)
      closers_of_[bytes_[id].substr(0, content.n_bytes - 1u)].push_back(static_cast<int32_t>(id));
    contents_[id] = content;
  }
}

bool GrammarVocabulary::has_escape(int32_t token) const {
  return std::string_view(bytes(token)).substr(0, contents_[static_cast<size_t>(token)].n_bytes).find('\\') !=
         std::string_view::npos;
}

void GrammarVocabulary::make_trees() {
  const auto content = [&](int32_t token) -> const Content& { return contents_[static_cast<size_t>(token)]; };
  std::vector<std::pair<std::string_view, int32_t>> odd, to_quote, after_quote;
  for (int32_t id = 0; id < size(); ++id) {
    const bool is_closer = content(id).kind == Content::Kind::kCloses;
    if (is_closer) closers_.push_back(id);
    if (content(id).kind == Content::Kind::kInside) by_length_.push_back(id);
    if (is_closer && has_escape(id)) escaped_closers_.push_back(id);
    if (!is_closer && !PlainTokens::is_plain(bytes(id)) && !bytes(id).empty()) odd.emplace_back(bytes(id), id);
  }
  const auto n_chars = [&](int32_t id) { return content(id).n_chars; };
  std::ranges::stable_sort(closers_, {}, n_chars);
  std::ranges::stable_sort(by_length_, {}, n_chars);
  for (size_t i = 0; i < closers_.size(); ++i) {
    const std::string_view text = bytes(closers_[i]);
    const size_t n = content(closers_[i]).n_bytes;
    to_quote.emplace_back(text.substr(0, n), static_cast<int32_t>(i));
    after_quote.emplace_back(text.substr(n), static_cast<int32_t>(i));
  }
  odd_ = TokenTrie(std::move(odd));
  closers_tree_ = TokenTrie(std::move(to_quote));
  after_closers_ = TokenTrie(std::move(after_quote));
}

std::span<const int32_t> GrammarVocabulary::closers_of(const std::string& text) const {
  const auto it = closers_of_.find(text);
  return it == closers_of_.end() ? std::span<const int32_t>() : it->second;
}

CloserSet GrammarVocabulary::closers_with(int min, int max) const {
  CloserSet set = no_closers();
  for (size_t i = 0; i < closers_.size(); ++i) {
    const int n = contents_[static_cast<size_t>(closers_[i])].n_chars;
    if (n >= min && (max < 0 || n <= max)) add_closer(set, static_cast<int32_t>(i));
  }
  return set;
}

const TokenMask& GrammarVocabulary::free_text(int max) const {
  if (max < 0 || max > longest_) max = longest_;
  const std::lock_guard lock(mutex_);
  if (const auto it = free_.find(max); it != free_.end()) return it->second;
  TokenMask mask = empty_mask();
  for (int32_t id : by_length_) {
    if (contents_[static_cast<size_t>(id)].n_chars > max) break;
    allow_token(mask, id);
  }
  return free_.emplace(max, std::move(mask)).first->second;
}

}  // namespace ingot

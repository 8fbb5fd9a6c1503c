#include "text/grammar/vocabulary.h"

#include <algorithm>

#include "text/grammar/json_word.h"
#include "text/grammar/regular.h"

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
  read_contents();
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
    const std::string_view after = content.kind == Content::Kind::kCloses ? std::string_view(bytes_[id]).substr(content.n_bytes) : "";
    if (after.find_first_of("}]") != after.npos || std::ranges::count(after, '"') > 1) far_closers_.push_back(static_cast<int32_t>(id));
    longest_ = std::max(longest_, int{content.n_chars});
    if (content.kind == Content::Kind::kCloses) closers_[bytes_[id].substr(0, content.n_bytes - 1u)].push_back(static_cast<int32_t>(id));
    contents_[id] = content;
  }
}

bool GrammarVocabulary::has_escape(int32_t token) const {
  return std::string_view(bytes(token)).substr(0, contents_[static_cast<size_t>(token)].n_bytes).find('\\') != std::string_view::npos;
}

std::span<const int32_t> GrammarVocabulary::closers(const std::string& text) const {
  const auto it = closers_.find(text);
  return it == closers_.end() ? std::span<const int32_t>() : it->second;
}

const GrammarVocabulary::FreeText& GrammarVocabulary::free_text(int min, int max) const {
  min = std::min(min, longest_ + 1);  // no token reaches further
  if (max > longest_) max = -1;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<FreeText>& free = free_[{min, max}];
  if (free) return *free;
  free = std::make_unique<FreeText>();
  free->inside = empty_mask();
  std::vector<std::pair<std::string_view, int32_t>> after;
  for (int32_t id = 0; id < size(); ++id) {
    const Content& content = contents_[static_cast<size_t>(id)];
    if (content.kind == Content::Kind::kNone || (max >= 0 && content.n_chars > max)) continue;
    if (content.kind == Content::Kind::kInside) {
      allow_token(free->inside, id);
    } else if (has_escape(id)) {
      free->escaped.push_back(id);
    } else if (content.n_chars >= min) {
      after.emplace_back(std::string_view(bytes(id)).substr(content.n_bytes), id);
    }
  }
  free->after = TokenTrie(std::move(after));
  return *free;
}

}  // namespace ingot

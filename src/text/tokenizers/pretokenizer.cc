#include "text/tokenizers/pretokenizer.h"

#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

Pretokenizer::Pretokenizer(std::span<const std::string_view> patterns) {
  for (std::string_view pattern : patterns) steps_.push_back({TextRegex(pattern), Cut::kIsolate});
}

Pretokenizer::Pretokenizer(std::span<const CutRule> rules) {
  for (const CutRule& rule : rules) steps_.push_back({TextRegex(rule.pattern), rule.cut});
}

void Pretokenizer::split(std::string_view text, const OnPiece& on_piece) const {
  if (steps_.empty()) {
    if (!text.empty()) on_piece(text);
    return;
  }
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    if (good > 0) split_well_formed(text.substr(0, good), on_piece);
    size_t end = good;
    while (end < text.size() && utf8_length(text.substr(end)) == 0) ++end;
    if (end > good) on_piece(text.substr(good, end - good));
    text.remove_prefix(end);
  }
}

void Pretokenizer::split_well_formed(std::string_view text, const OnPiece& on_piece) const {
  std::string changed;
  const std::string_view readable = TextRegex::readable(text, changed);
  std::vector<std::string_view> pieces{text}, finer;
  for (const Step& step : steps_) {
    TextRegex::Matcher matcher(step.regex);
    const bool last = &step == &steps_.back();
    finer.clear();
    auto emit = [&](std::string_view piece) { last ? on_piece(piece) : finer.push_back(piece); };
    for (std::string_view piece : pieces) {
      const std::string_view seen = readable.substr(static_cast<size_t>(piece.data() - text.data()), piece.size());
      size_t done = 0;
      auto emit_gap = [&](size_t end) {
        if (end > done && step.cut != Cut::kDropRest) emit(piece.substr(done, end - done));
      };
      while (const auto match = matcher.next(seen, done)) {
        emit_gap(match->begin);
        if (step.cut != Cut::kDropMatches) emit(piece.substr(match->begin, match->end - match->begin));
        done = match->end;
        if (done == piece.size()) break;
      }
      emit_gap(piece.size());
    }
    std::swap(pieces, finer);
  }
}

}  // namespace ingot

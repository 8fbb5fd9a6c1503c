#include "text/tokenizers/bpe.h"

#include "base/error.h"
#include "base/log.h"

namespace ingot {
namespace {

// Looks only at bytes that occur in UTF-8, because text is usually UTF-8.
void note_missing_bytes(const Vocab& vocab, const std::string& source) {
  const auto is_in_utf8 = [](int byte) { return byte < 0xC0 || (byte > 0xC1 && byte < 0xF5); };
  int n_missing = 0;
  for (int byte = 0; byte < 256; ++byte)
    n_missing += is_in_utf8(byte) && vocab.byte_token(static_cast<unsigned char>(byte)) < 0;
  if (n_missing > 0)
    log_info("{}: the vocabulary has no token for {} of the 243 bytes of UTF-8; in a text, these bytes {}",
             printable(source), n_missing, vocab.unk ? "become the unknown token" : "are dropped");
}

}  // namespace

Bpe::Bpe(const Vocab& vocab, const TokenizerSpec& spec, const PretokenizerRow& row)
    : vocab_(vocab), pretokenizer_(row.patterns), merges_(read_merges(vocab, spec)), prefix_space_(spec.prefix_space) {
  note_missing_bytes(vocab, spec.source);
  if (!row.whole_words) return;
  words_.reserve(vocab.size());
  for (int32_t id = 0; id < vocab.size(); ++id)
    if (!vocab.is_added(id) && !vocab.bytes(id).empty()) words_.try_emplace(vocab.bytes(id), id);
}

void Bpe::encode(std::string_view text, bool, std::vector<int32_t>& ids) const {
  std::string prefixed;
  if (prefix_space_ && !text.empty() && !text.starts_with(' ')) text = prefixed = " " + std::string(text);
  std::vector<Symbol> symbols;
  MergeQueue queue;
  pretokenizer_.split(text, [&](std::string_view word) { encode_word(word, symbols, queue, ids); });
}

std::optional<int32_t> Bpe::whole_word(std::string_view word) const {
  const auto it = words_.find(word);
  if (it == words_.end()) return std::nullopt;
  return it->second;
}

void Bpe::encode_word(std::string_view word, std::vector<Symbol>& symbols, MergeQueue& queue,
                      std::vector<int32_t>& ids) const {
  if (!words_.empty()) {
    if (const auto id = whole_word(word)) {
      ids.push_back(*id);
      return;
    }
  }
  symbols.clear();
  for (uint32_t i = 0; i < word.size(); ++i)
    symbols.push_back({i, 1, vocab_.byte_token(static_cast<unsigned char>(word[i]))});
  queue.merge_all(symbols, [&](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  for (uint32_t i = 0; i != Symbol::kNone; i = symbols[i].next) {
    if (symbols[i].id >= 0) {
      ids.push_back(symbols[i].id);
    } else if (vocab_.unk) {
      ids.push_back(*vocab_.unk);
    }
  }
}

}  // namespace ingot

#include "text/tokenizers/vocab.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/world.h"

namespace ingot {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;

// Tokens that end an answer, for models whose file names no EOT or EOM and no list of ends. Many GGUF files name the
// token that ends a text, but not the token that ends a turn. kFileEnds, the separators between a program's files, are
// used only if the file names no EOS either.
constexpr std::string_view kTurnEnds[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<EOT>",
    "_<EOT>",
    "▁<EOT>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
};
constexpr std::string_view kFileEnds[] = {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"};

// The byte of "<0x41>" with exactly two hexadecimal digits, or -1.
int parse_byte_token(std::string_view text) {
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string replace_space_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const bool mark = text.substr(0, kSpaceMark.size()) == kSpaceMark;
    out += mark ? ' ' : text[0];
    text.remove_prefix(mark ? kSpaceMark.size() : 1);
  }
  return out;
}

void check_sizes(const TokenizerSpec& spec) {
  const size_t n = spec.tokens.size();
  if (n == 0) throw Error("{}: the tokenizer has no tokens", printable(spec.source));
  if (n > kMaxTokens) throw Error("{}: the tokenizer has {} tokens; at most {}", printable(spec.source), n, kMaxTokens);
  auto same = [&](const char* field, size_t size) {
    if (size != 0 && size != n)
      throw Error("{}: tokenizer {} has {} entries, but there are {} tokens", printable(spec.source), field, size, n);
  };
  same("scores", spec.scores.size());
  same("token_type", spec.token_types.size());
}

}  // namespace

Vocab::Vocab(const TokenizerSpec& spec, Spelling spelling) {
  check_sizes(spec);
  read_types(spec);
  read_tokens(spec, spelling);
  read_special_ids(spec);
  mark_ends(spec);
}

void Vocab::read_types(const TokenizerSpec& spec) {
  types_.assign(spec.tokens.size(), TokenType::kNormal);
  for (size_t i = 0; i < spec.token_types.size(); ++i) {
    const int32_t type = spec.token_types[i];
    if (type < 0 || type > static_cast<int32_t>(TokenType::kByte))
      throw Error("{}: tokenizer token_type[{}] is {}; 0 to 6 are defined", printable(spec.source), i, type);
    types_[i] = static_cast<TokenType>(type);
  }
}

void Vocab::read_tokens(const TokenizerSpec& spec, Spelling spelling) {
  text_.assign(spec.tokens.begin(), spec.tokens.end());
  bytes_.resize(text_.size());
  scores_ = spec.scores;
  byte_tokens_.fill(-1);
  index_.reserve(text_.size());
  for (int32_t id = 0; id < size(); ++id) {
    auto fail = [&](const char* what) {
      throw Error("{}: tokenizer token {} ('{}') {}", printable(spec.source), id, printable(text_[id], 64), what);
    };
    if (text_[id].empty() && (spelling == Spelling::kSentencePiece || is_added(id))) fail("is empty");
    if (spelling != Spelling::kGpt2 && !is_valid_utf8(text_[id])) fail("is not UTF-8");
    if (spelling == Spelling::kEscaped && !is_added(id) && !unescape_token(text_[id]))
      fail("has an escape that is not complete");
    if (std::isnan(score(id))) fail("has NaN as its score");
    if (!text_[id].empty()) index_.try_emplace(text_[id], id);
    bytes_[id] = bytes_of(id, spelling);
    if (spec.tidy_decode && (bytes_[id] == " ." || bytes_[id] == " ?" || bytes_[id] == " !" || bytes_[id] == " ,"))
      bytes_[id].erase(0, 1);
    if (spelling == Spelling::kGpt2 && bytes_[id].size() == 1 && !is_special(id)) {
      int32_t& slot = byte_tokens_[static_cast<unsigned char>(bytes_[id][0])];
      if (slot < 0) slot = id;
    }
  }
  if (spelling == Spelling::kSentencePiece) read_sentencepiece_bytes(spec);
}

std::string Vocab::bytes_of(int32_t id, Spelling spelling) const {
  const std::string& text = text_[id];
  if (is_added(id)) return text;
  if (spelling == Spelling::kEscaped) return unescape_token(text).value_or(text);
  if (spelling != Spelling::kGpt2) return replace_space_marks(text);
  return bytes_from_gpt2(text).value_or(text);
}

void Vocab::read_sentencepiece_bytes(const TokenizerSpec& spec) {
  // Some old files do not give byte tokens a type; then the spelling decides.
  const bool typed = std::find(types_.begin(), types_.end(), TokenType::kByte) != types_.end();
  int n_found = 0;
  for (int32_t id = 0; id < size(); ++id) {
    if (typed ? type(id) != TokenType::kByte : type(id) != TokenType::kNormal) continue;
    const int byte = parse_byte_token(text_[id]);
    if (byte < 0 && typed)
      throw Error("{}: tokenizer token {} is a byte token, but '{}' is not <0x00> to <0xFF>", printable(spec.source),
                  id, printable(text_[id], 64));
    if (byte < 0) continue;
    if (byte_tokens_[byte] >= 0)
      throw Error("{}: tokenizer tokens {} and {} both stand for the byte 0x{:02X}", printable(spec.source),
                  byte_tokens_[byte], id, byte);
    byte_tokens_[byte] = id;
    bytes_[id] = std::string(1, static_cast<char>(byte));
    types_[id] = TokenType::kByte;
    ++n_found;
  }
  if (n_found != 0 && n_found != 256)
    throw Error("{}: the tokenizer has {} byte tokens; it needs all 256, or none", printable(spec.source), n_found);
}

void Vocab::read_special_ids(const TokenizerSpec& spec) {
  auto read = [&](const char* name, const std::optional<int64_t>& from, std::optional<int32_t>& to) {
    if (!from) return;
    if (*from >= 0 && *from < size()) {
      to = static_cast<int32_t>(*from);
    } else {
      log_warn("{}: tokenizer {} token {} is outside of the vocabulary of {}; ignored", printable(spec.source), name,
               *from, size());
    }
  };
  read("BOS", spec.bos, bos);
  read("EOS", spec.eos, eos);
  read("EOT", spec.eot, eot);
  read("EOM", spec.eom, eom);
  read("unknown", spec.unk, unk);
  read("padding", spec.pad, pad);
  if (spec.token_types.empty())
    for (const auto& id : {bos, eos, eot, eom})
      if (id) types_[*id] = TokenType::kControl;
  if (spec.model != kSentencePieceBpe) return;
  // SentencePiece's own numbering, if the file does not set the id.
  auto fall_back = [&](const std::optional<int64_t>& from, std::optional<int32_t>& to, int32_t id) {
    if (!from && id < size() && is_special(id)) to = id;
  };
  fall_back(spec.unk, unk, 0);
  fall_back(spec.bos, bos, 1);
  fall_back(spec.eos, eos, 2);
}

// The lists are used only if the file names no EOT, no EOM and no list of ends.
void Vocab::mark_ends(const TokenizerSpec& spec) {
  ends_.assign(text_.size(), false);
  const auto mark_all = [&](std::span<const std::string_view> texts) {
    for (const std::string_view text : texts)
      if (const auto id = find(text); id && is_added(*id)) ends_[*id] = true;
  };
  if (spec.ends.empty() && !eot && !eom) {
    mark_all(kTurnEnds);
    if (!eos) mark_all(kFileEnds);
    // In gpt-oss's harmony format, <|end|> closes one message, and the answer goes on.
    if (find("<|return|>") && find("<|call|>"))
      if (const auto end = find("<|end|>")) ends_[*end] = false;
  }
  for (const auto& id : {eos, eot, eom})
    if (id) ends_[*id] = true;
  for (const int64_t id : spec.ends) {
    if (id >= 0 && id < size()) {
      ends_[id] = true;
    } else {
      log_warn("{}: the end token {} is outside of the vocabulary of {}; ignored", printable(spec.source), id, size());
    }
  }
  // Some files mark an end token as user-defined; then a user's text could end the answer.
  for (int32_t id = 0; id < size(); ++id)
    if (ends_[id] && is_added(id) && !is_special(id)) types_[id] = TokenType::kControl;
}

std::optional<int32_t> Vocab::find(std::string_view text) const {
  const auto it = index_.find(text);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

}  // namespace ingot

// Bytes as one of three inputs. A text for small complete vocabularies must be unchanged after encoding and decoding,
// streamed or at once. A specification must be refused by Error, or make a tokenizer that works. A table of
// normalizations is used with a text for WordPiece and Unigram.
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "text/stream_decoder.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/tokenizer_specs.h"
#include "text/tokenizers/wordpiece.h"

namespace ingot {
namespace {

using testing::OwnedSpec;

void add_specials(OwnedSpec& owned) {
  testing::add_token(owned, "<|im|>", TokenType::kControl);
  testing::add_token(owned, "<|im|>x", TokenType::kControl);
  testing::add_token(owned, "<t>", TokenType::kUserDefined);
  testing::add_token(owned, "  ", TokenType::kUserDefined);
}

// One tokenizer for each pre-tokenizer, SentencePiece with and without its prefix, and World.
std::vector<std::unique_ptr<Tokenizer>> make_tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> result;
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    auto owned = testing::byte_level_spec();
    owned->spec.pre = row.names[0];
    add_specials(*owned);
    result.push_back(Tokenizer::create(owned->view()));
  }
  for (bool prefix : {true, false}) {
    auto owned = testing::sentencepiece_spec();
    owned->spec.add_space_prefix = prefix;
    add_specials(*owned);
    result.push_back(Tokenizer::create(owned->view()));
  }
  result.push_back(Tokenizer::create(testing::world_spec()->view()));
  return result;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool replace_invalid) {
  StreamDecoder decoder(tokenizer, {.skip_special = false, .replace_invalid = replace_invalid});
  std::string out;
  for (int32_t id : ids) out += decoder.push(id);
  return out + decoder.flush();
}

void check_text(const Tokenizer& tokenizer, std::string text, bool parse_special) {
  const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = parse_special});
  if (tokenizer.model() == kSentencePieceBpe)  // SentencePiece treats U+2581 as a space
    for (size_t at; (at = text.find("\u2581")) != text.npos;) text.replace(at, 3, " ");
  CHECK(tokenizer.decode(ids) == text);
  CHECK(streamed(tokenizer, ids, false) == text);
  CHECK(streamed(tokenizer, ids, true) == replace_invalid_utf8(text));
}

// Lines of "TYPE SCORE TEXT"; a line that begins with 'm' is a merge. The lines may be invalid.
std::unique_ptr<OwnedSpec> spec_of(std::string_view text, uint8_t flags) {
  auto owned = flags & 1 ? testing::byte_level_spec() : testing::sentencepiece_spec();
  if (flags & 2)
    owned->tokens.clear(), owned->spec.token_types.clear(), owned->spec.scores.clear(), owned->merges.clear();
  if (flags & 4) owned->spec.pre = "llama3";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.size() > 1 && line[0] == 'm') {
      owned->merges.emplace_back(line.substr(1));
    } else if (line.size() > 1) {
      owned->tokens.emplace_back(line.substr(2));
      owned->spec.token_types.push_back(line[0] - '0');
      if (!(flags & 1)) owned->spec.scores.push_back(static_cast<float>(line[1]));
    }
  }
  owned->spec.bos = flags & 8 ? 1 : -1;
  owned->spec.unk = flags & 16 ? 0 : 1 << 20;
  if (flags & 32) owned->spec.add_eos = true;
  if (flags & 128) owned->spec.model = kWorldModel;
  if (flags & 64) owned->spec.strips = {{0, true, false}, {1, true, true}};
  return owned;
}

void check_spec(std::string_view spec, uint8_t flags, std::string_view text) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::create(spec_of(spec, flags)->view());
  } catch (const Error&) {
    return;
  }
  const auto ids = tokenizer->encode(text, {.parse_special = true});
  for (int32_t id : ids) CHECK(id >= 0 && id < tokenizer->n_vocab());
  CHECK(streamed(*tokenizer, ids, false) == tokenizer->decode(ids));
}

// The bits of `flags` choose the model, the normalizers and the cut rules.
std::unique_ptr<OwnedSpec> encoder_spec(std::string_view charsmap, uint8_t flags) {
  using Kind = NormalizerStep::Kind;
  auto owned = std::make_unique<OwnedSpec>();
  owned->spec.source = "fuzz";
  owned->spec.model = flags & 1 ? "bert" : "t5";
  owned->spec.unk = 0;
  owned->spec.bos = owned->spec.eos = 1;
  testing::add_token(*owned, "<unk>", TokenType::kUnknown);
  testing::add_token(*owned, "</s>", TokenType::kControl);
  for (const char* token : {"\u2581", "\u2581a", "a", "b", "ab", "ba", "\u4e2d", "\u2581the", "."})
    testing::add_token(*owned, token, TokenType::kNormal);
  if (!(flags & 1)) {
    for (size_t i = 0; i < owned->tokens.size(); ++i) owned->spec.scores.push_back(-static_cast<float>(i % 5));
    if (!charsmap.empty())
      owned->spec.normalize = {
          {.kind = Kind::kCharsmap, .from = std::string(charsmap), .by_grapheme = (flags & 2) != 0}};
  } else {
    owned->spec.normalize = bert_normalizer(flags & 2, true, std::nullopt, flags & 4);
  }
  owned->spec.cuts = flags & 8 ? bert_cuts() : std::vector<CutRule>{};
  for (const auto& [bit, kind] : {std::pair{16, Kind::kNfkc}, {32, Kind::kNmt}, {64, Kind::kStrip}})
    if (flags & bit) owned->spec.normalize.push_back({.kind = kind});
  owned->spec.split_words = flags & 128;
  return owned;
}

void check_encoder(std::string_view charsmap, uint8_t flags, std::string_view text) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::create(encoder_spec(charsmap, flags)->view());
  } catch (const Error&) {
    return;
  }
  const auto ids = tokenizer->encode(text, {.parse_special = true});
  for (int32_t id : ids) CHECK(id >= 0 && id < tokenizer->n_vocab());
  CHECK(streamed(*tokenizer, ids, false) == tokenizer->decode(ids));
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  static const auto tokenizers = [] {
    set_log_level(LogLevel::kOff);
    return make_tokenizers();
  }();
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] & 4) {
    const size_t cut = rest.find("\n\n");  // the table, then a text
    check_encoder(cut == rest.npos ? "" : rest.substr(0, cut), data[1], cut == rest.npos ? rest : rest.substr(cut + 2));
  } else if (data[0] & 1) {
    check_text(*tokenizers[data[1] % tokenizers.size()], std::string(rest), data[0] & 2);
  } else {
    const size_t cut = rest.find("\n\n");  // the specification, then a text
    check_spec(rest.substr(0, cut), data[1], cut == rest.npos ? "a<|im|> b" : rest.substr(cut + 2));
  }
  return 0;
}

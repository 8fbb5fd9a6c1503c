#include "io/huggingface/rwkv_vocab.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/world.h"

namespace ingot {
namespace {

constexpr size_t kMaxVocabBytes = size_t{64} << 20, kMaxLines = size_t{1} << 20;

// A number with a fixed count of hexadecimal digits at the start of text, which is then removed.
std::optional<uint32_t> take_hex(std::string_view& text, size_t digits) {
  uint32_t value = 0;
  if (text.size() < digits) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value, 16);
  if (error != std::errc() || end != text.data() + digits) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

// Appends what a backslash and the following characters stand for, without the backslash.
bool take_escape(std::string_view& text, bool is_bytes, std::string& out) {
  const char kind = text[0];
  text.remove_prefix(1);
  const size_t digits = kind == 'x' ? 2 : is_bytes ? 0 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  if (digits > 0) {
    const auto value = take_hex(text, digits);
    if (!value || *value > 0x10FFFF || (*value >= 0xD800 && *value < 0xE000)) return false;
    if (is_bytes)
      out += static_cast<char>(*value);
    else
      utf8_append(out, static_cast<char32_t>(*value));
    return true;
  }
  constexpr std::string_view kLetters = "tnr\\'\"", kMeanings = "\t\n\r\\'\"";
  const size_t letter = kLetters.find(kind);
  if (letter == kLetters.npos) return false;
  out += kMeanings[letter];
  return true;
}

// The bytes of a literal of Python; nothing if it is malformed.
std::optional<std::string> bytes_of_literal(std::string_view text) {
  const bool is_bytes = text.starts_with('b');
  if (is_bytes) text.remove_prefix(1);
  if (text.size() < 3 || (text[0] != '\'' && text[0] != '"') || text.back() != text[0]) return std::nullopt;
  const char quote = text[0];
  text = text.substr(1, text.size() - 2);
  std::string out;
  while (!text.empty()) {
    const char c = text[0];
    text.remove_prefix(1);
    if (c == quote) return std::nullopt;
    if (c != '\\') {
      out += c;
    } else if (text.empty() || !take_escape(text, is_bytes, out)) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<size_t> number(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::unique_ptr<HfTokenizerSpec> parse_rwkv_vocab(std::string_view text, std::string source) {
  auto out = std::make_unique<HfTokenizerSpec>();
  TokenizerSpec& spec = out->spec;
  spec.source = std::move(source);
  spec.model = kWorldModel;
  spec.bos = spec.eos = 0;
  const auto add = [&](std::string spelled, TokenType type) {
    spec.tokens.push_back(out->strings.emplace_back(std::move(spelled)));
    spec.token_types.push_back(static_cast<int32_t>(type));
  };
  add("<s>", TokenType::kControl);
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (row.ends_with('\r')) row.remove_suffix(1);
    const size_t first = row.find(' '), last = row.rfind(' ');
    if (line > kMaxLines) throw Error("{}: has more than {} lines", printable(spec.source), kMaxLines);
    if (first == row.npos || last <= first)
      throw Error("{}: line {}: expected an id, a token and its size", printable(spec.source), line);
    if (number(row.substr(0, first)) != line)
      throw Error("{}: line {}: the id is not {}", printable(spec.source), line, line);
    const auto bytes = bytes_of_literal(row.substr(first + 1, last - first - 1));
    if (!bytes || bytes->size() != number(row.substr(last + 1)))
      throw Error("{}: line {}: expected a token as Python writes it, and its number of bytes", printable(spec.source),
                  line);
    if (*bytes == "\n\n") spec.eot = static_cast<int64_t>(line);  // ends a turn, as in GGUF files
    add(escape_token(*bytes), TokenType::kNormal);
  }
  return out;
}

std::unique_ptr<HfTokenizerSpec> read_rwkv_vocab(const HfDirectory& directory, const std::vector<int64_t>& ends) {
  const std::string path = directory.file(kRwkvVocabFile);
  auto out = parse_rwkv_vocab(read_file(path, kMaxVocabBytes), path);
  out->spec.ends = ends;
  return out;
}

}  // namespace ingot

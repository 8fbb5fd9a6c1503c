#include "text/tokenizers/world.h"

#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> unescape_token(std::string_view spelled) {
  std::string bytes;
  for (size_t i = 0; i < spelled.size(); ++i) {
    if (spelled[i] != '\\') {
      bytes += spelled[i];
      continue;
    }
    if (++i == spelled.size()) return std::nullopt;
    if (spelled[i] != 'x') {
      bytes += spelled[i] == 't' ? '\t' : spelled[i] == 'n' ? '\n' : spelled[i] == 'r' ? '\r' : spelled[i];
      continue;
    }
    if (i + 2 >= spelled.size()) return std::nullopt;
    const int high = hex_digit(spelled[i + 1]), low = hex_digit(spelled[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return bytes;
}

std::string escape_token(std::string_view bytes) {
  std::string spelled;
  const bool has_quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;  // repr() then uses "
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || (c == '\'' && !has_quote)) {
      spelled += '\\', spelled += c;
    } else if (c == '\t' || c == '\n' || c == '\r') {
      spelled += c == '\t' ? "\\t" : c == '\n' ? "\\n" : "\\r";
    } else if (byte < 0x20 || byte >= 0x7F) {
      spelled += fmt::format("\\x{:02x}", byte);
    } else {
      spelled += c;
    }
  }
  return spelled;
}

World::World(const Vocab& vocab, const TokenizerSpec& spec) : vocab_(vocab) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  std::array<bool, 256> has_byte{};
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const TokenType type = vocab.type(id);
    if (type != TokenType::kNormal && type != TokenType::kUndefined) continue;
    const std::string_view bytes = vocab.bytes(id);
    if (bytes.size() > kMaxWorldTokenBytes)
      throw Error("{}: tokenizer token {} has {} bytes; at most {} are supported", printable(spec.source), id,
                  bytes.size(), kMaxWorldTokenBytes);
    if (bytes.size() == 1) has_byte[static_cast<unsigned char>(bytes[0])] = true;
    keys.emplace_back(bytes, id);
  }
  for (size_t byte = 0; byte < has_byte.size() && !vocab.unk; ++byte)
    if (!has_byte[byte])
      throw Error("{}: the tokenizer has no token for the byte 0x{:02X}, and no unknown token", printable(spec.source),
                  byte);
  tokens_ = Trie(std::move(keys));
}

void World::encode(std::string_view text, bool, std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    size_t length = 0;
    int32_t longest = 0;
    tokens_.for_each_prefix(text, [&](size_t n, int32_t id) { length = n, longest = id; });
    ids.push_back(length > 0 ? longest : *vocab_.unk);
    text.remove_prefix(length > 0 ? length : 1);
  }
}

}  // namespace ingot

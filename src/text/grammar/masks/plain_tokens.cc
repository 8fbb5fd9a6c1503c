#include "text/grammar/masks/plain_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

namespace {

constexpr size_t kMaxMade = 1024;  // cached masks of one vocabulary: 16 MiB for 128k tokens
constexpr int kAnyNumber = INT32_MAX;

bool begins_char(uint8_t byte) { return (byte & 0xc0) != 0x80; }

}  // namespace

bool PlainTokens::is_special(char32_t c) {
  return c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000 || c == 0xfeff;
}

bool PlainTokens::is_plain(std::string_view bytes) {
  if (bytes.empty() || bytes.size() > TokenTrie::kMaxTokenBytes) return false;
  for (size_t i = 0; i < bytes.size();) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const size_t length = utf8_length(bytes.substr(i));
    if (length == 0 || byte < 0x20 || byte == '"' || byte == '\\') return false;
    if (length > 1 && is_special(utf8_decode(bytes.substr(i)))) return false;
    i += length;
  }
  return true;
}

PlainTokens::PlainTokens(const std::vector<std::string>& bytes) {
  std::vector<std::pair<std::string_view, int32_t>> plain;
  rest_.resize(bytes.size());
  first_.resize(bytes.size());
  n_chars_.resize(bytes.size());
  int longest = 0;
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!is_plain(bytes[id])) continue;
    plain.emplace_back(bytes[id], static_cast<int32_t>(id));
    for (char c : bytes[id]) {
      const auto byte = static_cast<uint8_t>(c);
      if (!begins_char(byte)) continue;
      if (n_chars_[id]++ == 0) {
        first_[id] = CharKinds::of(byte);
      } else {
        rest_[id].add(CharKinds::of(byte));
      }
    }
    longest = std::max(longest, int{n_chars_[id]});
  }
  for (const auto& [text, id] : plain) by_length_.push_back(id);
  std::ranges::stable_sort(by_length_, {}, [&](int32_t id) { return n_chars_[static_cast<size_t>(id)]; });
  shorter_.resize(static_cast<size_t>(longest) + 2);
  for (int32_t id : by_length_) ++shorter_[n_chars_[static_cast<size_t>(id)] + 1u];
  for (size_t n = 1; n < shorter_.size(); ++n) shorter_[n] += shorter_[n - 1];

  trie_ = TokenTrie(std::move(plain));
  const std::vector<TokenTrie::Node>& nodes = trie_.nodes();
  below_.resize(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    for (int32_t token : trie_.tokens_at(nodes[i]))
      below_[i].max_chars = std::max(below_[i].max_chars, n_chars_[static_cast<size_t>(token)]);
    for (uint32_t child = static_cast<uint32_t>(i) + 1; child < nodes[i].end; child = nodes[child].end) {
      if (begins_char(nodes[child].byte)) below_[i].kinds.add(CharKinds::of(nodes[child].byte));
      below_[i].kinds.add(below_[child].kinds);
      below_[i].max_chars = std::max(below_[i].max_chars, below_[child].max_chars);
    }
  }
}

std::shared_ptr<const TokenMask> PlainTokens::mask(const CharKinds& first, const CharKinds& rest, int max_chars) const {
  const std::lock_guard lock(*mutex_);
  if (made_.size() > kMaxMade) made_.clear();
  // An entry is added once it is whole, because an allocation may fail.
  const auto made = [&](int limit, const auto& make) -> const Made& {
    const Key key{first, rest, limit};
    const auto it = made_.find(key);
    return it != made_.end() ? it->second : made_.emplace(key, make()).first->second;
  };
  const Made& whole = made(kAnyNumber, [&] { return all(first, rest); });
  if (max_chars >= whole.longest) return whole.mask;
  return made(max_chars, [&] { return without_longer(whole, max_chars); }).mask;
}

PlainTokens::Made PlainTokens::all(const CharKinds& first, const CharKinds& rest) const {
  const auto mask = std::make_shared<TokenMask>((n_chars_.size() + 31) / 32);
  Made made{mask, 0};
  for (size_t id = 0; id < n_chars_.size(); ++id) {
    const bool is_in = n_chars_[id] != 0 && rest.holds(rest_[id]) && first.has(first_[id]);
    (*mask)[id / 32] |= uint32_t{is_in} << (id % 32);
    made.longest = std::max(made.longest, is_in ? int{n_chars_[id]} : 0);
  }
  return made;
}

PlainTokens::Made PlainTokens::without_longer(const Made& made, int max_chars) const {
  const auto mask = std::make_shared<TokenMask>(*made.mask);
  const size_t end = shorter_[static_cast<size_t>(made.longest) + 1];
  for (size_t i = shorter_[static_cast<size_t>(std::max(max_chars, 0)) + 1]; i < end; ++i) {
    const auto id = static_cast<uint32_t>(by_length_[i]);
    (*mask)[id / 32] &= ~(1u << (id % 32));
  }
  return {mask, max_chars};
}

}  // namespace ingot

#include "io/huggingface/tekken.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>

#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

constexpr int64_t kMaxTokens = 1 << 20;
constexpr size_t kMaxTokenBytes = 512;  // merges of a token are found in quadratic time

// The first special tokens of files that do not list them.
constexpr const char* kOldSpecialTokens[] = {
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"};

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((n_bits += 6) >= 8) bytes += static_cast<char>(bits >> (n_bits -= 8) & 0xFF);
  }
  return bytes;
}

using Ranks = std::unordered_map<std::string_view, int64_t>;

// Where the token divides into the two tokens whose merge it is: what BPE makes of its bytes with the tokens of lower
// ranks. 0: a vocabulary of other merges, in which the token cannot be made.
size_t split_of(std::string_view token, int64_t rank, const Ranks& ranks) {
  std::vector<size_t> begins(token.size() + 1);  // of the parts, and the end
  std::iota(begins.begin(), begins.end(), size_t{0});
  const auto rank_at = [&](size_t i) {  // of parts i and i + 1 together
    const auto found = ranks.find(token.substr(begins[i], begins[i + 2] - begins[i]));
    return found == ranks.end() ? rank : std::min(found->second, rank);
  };
  std::vector<int64_t> joined(token.size() - 1);
  for (size_t i = 0; i < joined.size(); ++i) joined[i] = rank_at(i);
  while (joined.size() > 1) {
    const auto best = std::ranges::min_element(joined) - joined.begin();
    if (joined[static_cast<size_t>(best)] == rank) return 0;
    begins.erase(begins.begin() + best + 1);
    joined.erase(joined.begin() + best);
    for (const auto i : {best - 1, best})
      if (i >= 0 && i < std::ssize(joined)) joined[static_cast<size_t>(i)] = rank_at(static_cast<size_t>(i));
  }
  return begins[1];
}

std::string_view keep(HfTokenizerSpec& out, std::string text) { return out.strings.emplace_back(std::move(text)); }

void add_special_tokens(const Json& root, int64_t n, HfTokenizerSpec& out) {
  TokenizerSpec& spec = out.spec;
  std::vector<std::string> names(static_cast<size_t>(n));
  for (size_t i = 0; i < names.size(); ++i) names[i] = fmt::format("<SPECIAL_{}>", i);
  const auto listed = root.find("special_tokens");
  if (listed) {
    for (const Json& token : listed->elements())
      names[static_cast<size_t>(token.at("rank").integer(0, n - 1))] = token.at("token_str").string();
  } else {
    for (size_t i = 0; i < std::min(names.size(), std::size(kOldSpecialTokens)); ++i) names[i] = kOldSpecialTokens[i];
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "<s>") spec.bos = static_cast<int64_t>(i);
    if (names[i] == "</s>") spec.eos = static_cast<int64_t>(i);
    if (names[i] == "<unk>") spec.unk = static_cast<int64_t>(i);
    if (names[i] == "<pad>") spec.pad = static_cast<int64_t>(i);
    spec.tokens.push_back(keep(out, std::move(names[i])));
    spec.token_types.push_back(static_cast<int32_t>(TokenType::kControl));
  }
}

void add_tokens(const Json& vocab, int64_t n, HfTokenizerSpec& out) {
  TokenizerSpec& spec = out.spec;
  Ranks ranks;
  std::deque<std::string> tokens;  // ranks refers to them
  for (const Json& entry : vocab.elements()) {
    if (static_cast<int64_t>(tokens.size()) == n) break;  // files list more tokens than models have
    const auto rank = static_cast<int64_t>(tokens.size());
    if (entry.at("rank").integer(0, kMaxTokens) != rank) throw entry.at("rank").error("is not {}, its place", rank);
    const auto bytes = decode_base64(entry.at("token_bytes").string());
    if (!bytes || bytes->empty() || bytes->size() > kMaxTokenBytes)
      throw entry.at("token_bytes").error("is not the base64 of 1 to {} bytes", kMaxTokenBytes);
    tokens.push_back(*bytes);
    if (!ranks.emplace(tokens.back(), rank).second) throw entry.at("token_bytes").error("occurs twice");
  }
  if (static_cast<int64_t>(tokens.size()) < n) throw vocab.error("has {} tokens: expected {}", tokens.size(), n);
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    spec.tokens.push_back(keep(out, gpt2_from_bytes(tokens[rank])));
    spec.token_types.push_back(static_cast<int32_t>(TokenType::kNormal));
    if (tokens[rank].size() < 2) continue;
    const std::string_view token = tokens[rank];
    const size_t at = split_of(token, static_cast<int64_t>(rank), ranks);
    if (at > 0)
      spec.merges.push_back(keep(out, gpt2_from_bytes(token.substr(0, at)) + " " + gpt2_from_bytes(token.substr(at))));
  }
}

}  // namespace

std::unique_ptr<HfTokenizerSpec> read_tekken(const HfDirectory& directory) {
  auto out = std::make_unique<HfTokenizerSpec>();
  out->documents.push_back(directory.document(kTekkenFile));
  const Json root = out->documents.front().root(), config = root.at("config");
  TokenizerSpec& spec = out->spec;
  spec.source = out->documents.front().source();
  spec.model = kByteLevelBpe;
  spec.patterns = {std::string(config.at("pattern").string())};
  spec.whole_words = true;
  spec.add_bos = true;
  const int64_t n_special = config.at("default_num_special_tokens").integer(3, kMaxTokens);
  const int64_t n_tokens = config.at("default_vocab_size").integer(n_special + 256, kMaxTokens);
  add_special_tokens(root, n_special, *out);
  add_tokens(root.at("vocab"), n_tokens - n_special, *out);
  if (!spec.bos || !spec.eos) throw root.error("has no special tokens <s> and </s>");
  return out;
}

}  // namespace ingot

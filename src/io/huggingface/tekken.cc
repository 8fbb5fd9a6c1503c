#include "io/huggingface/tekken.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>

#include "io/rank_merges.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

constexpr int64_t kMaxTokens = 1 << 20;

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
  std::deque<std::string> tokens;  // `seen` and `views` refer to them
  std::unordered_set<std::string_view> seen;
  std::vector<std::string_view> views;
  for (const Json& entry : vocab.elements()) {
    if (static_cast<int64_t>(tokens.size()) == n) break;  // files list more tokens than models have
    const auto rank = static_cast<int64_t>(tokens.size());
    if (entry.at("rank").integer(0, kMaxTokens) != rank) throw entry.at("rank").error("is not {}, its place", rank);
    const auto bytes = decode_base64(entry.at("token_bytes").string());
    if (!bytes || bytes->empty() || bytes->size() > kMaxRankedBytes)
      throw entry.at("token_bytes").error("is not the base64 of 1 to {} bytes", kMaxRankedBytes);
    tokens.push_back(*bytes);
    if (!seen.insert(views.emplace_back(tokens.back())).second) throw entry.at("token_bytes").error("occurs twice");
  }
  if (static_cast<int64_t>(tokens.size()) < n) throw vocab.error("has {} tokens: expected {}", tokens.size(), n);
  for (const std::string& token : tokens) {
    spec.tokens.push_back(keep(out, gpt2_from_bytes(token)));
    spec.token_types.push_back(static_cast<int32_t>(TokenType::kNormal));
  }
  for (std::string& merge : rank_merges(views)) spec.merges.push_back(keep(out, std::move(merge)));
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

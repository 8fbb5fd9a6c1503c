#include "model/speech/word_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

constexpr std::string_view kWithoutSpaces[] = {"zh", "ja", "th", "lo", "my", "yue"};
constexpr std::string_view kBeforeWords[] = {"\"", "'", "“", "¿", "(", "[", "{", "-"};
constexpr std::string_view kAfterWords[] = {"\"", "'", ".",  "。", ",", "，", "!", "！", "?",
                                            "？", ":", "：", "”",  ")", "]",  "}", "、"};
constexpr std::string_view kAsciiSigns = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
constexpr int kMedianWidth = 7;

std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

template <size_t n>
bool is_one_of(std::string_view text, const std::string_view (&all)[n]) {
  return std::ranges::find(all, text) != std::end(all);
}

// A sign before a word joins it, and so does a sign after one.
void join_signs(std::vector<WordTokens>& words) {
  for (size_t i = words.size(); i-- > 1;) {
    WordTokens& before = words[i - 1];
    if (!before.text.starts_with(' ') || !is_one_of(without_spaces(before.text), kBeforeWords)) continue;
    words[i] = {before.text + words[i].text, before.n_tokens + words[i].n_tokens};
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) - 1);
  }
  for (size_t i = 0; i + 1 < words.size();) {
    if (words[i].text.ends_with(' ') || !is_one_of(words[i + 1].text, kAfterWords)) {
      ++i;
      continue;
    }
    words[i].text += words[i + 1].text, words[i].n_tokens += words[i + 1].n_tokens;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

// Replaces each number of a row by the median of its neighbours; the row is mirrored at its ends.
void filter_row(std::span<float> row) {
  constexpr int kHalf = kMedianWidth / 2;
  const auto n = static_cast<int>(row.size());
  if (n <= kHalf) return;
  const std::vector<float> from(row.begin(), row.end());
  std::array<float, kMedianWidth> around;
  for (int i = 0; i < n; ++i) {
    for (int k = -kHalf; k <= kHalf; ++k) {
      const int at = i + k;
      around[static_cast<size_t>(k + kHalf)] = from[static_cast<size_t>(at < 0    ? -at
                                                                        : at >= n ? 2 * (n - 1) - at
                                                                                  : at)];
    }
    std::ranges::nth_element(around, around.begin() + kHalf);
    row[static_cast<size_t>(i)] = around[kHalf];
  }
}

// How far each token looks at each row more than the other tokens do, smoothed, as a mean over the heads.
std::vector<float> mean_matrix(std::span<const float> shares, int n_heads, int n_tokens, int n_rows) {
  const auto size = static_cast<size_t>(n_tokens) * static_cast<size_t>(n_rows);
  std::vector<float> sum(size), one(size);
  for (int head = 0; head < n_heads; ++head) {
    const std::span<const float> of_head = shares.subspan(static_cast<size_t>(head) * size, size);
    for (int row = 0; row < n_rows; ++row) {
      double mean = 0, squares = 0;
      for (int t = 0; t < n_tokens; ++t) mean += of_head[static_cast<size_t>(t * n_rows + row)];
      mean /= n_tokens;
      for (int t = 0; t < n_tokens; ++t) {
        const double d = of_head[static_cast<size_t>(t * n_rows + row)] - mean;
        squares += d * d;
      }
      const double deviation = std::sqrt(squares / n_tokens);
      for (int t = 0; t < n_tokens; ++t) {
        const auto at = static_cast<size_t>(t * n_rows + row);
        one[at] = deviation > 0 ? static_cast<float>((of_head[at] - mean) / deviation) : 0.0f;
      }
    }
    for (int t = 0; t < n_tokens; ++t)
      filter_row(std::span(one).subspan(static_cast<size_t>(t * n_rows), static_cast<size_t>(n_rows)));
    for (size_t i = 0; i < size; ++i) sum[i] += one[i] / static_cast<float>(n_heads);
  }
  return sum;
}

}  // namespace

std::vector<WordTokens> characters_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  std::vector<WordTokens> parts;
  size_t begin = 0;
  for (size_t end = 1; end <= tokens.size(); ++end) {
    const std::string text = tokenizer.decode(tokens.subspan(begin, end - begin));
    if (end < tokens.size() && utf8_incomplete_tail(text) > 0) continue;
    parts.push_back({replace_invalid_utf8(text), end - begin});
    begin = end;
  }
  return parts;
}

std::vector<WordTokens> words_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                                 std::string_view language) {
  std::vector<WordTokens> words;
  const bool has_spaces = !is_one_of(language, kWithoutSpaces);
  for (WordTokens& part : characters_of(tokenizer, tokens)) {
    const std::string_view bare = without_spaces(part.text);
    const bool is_sign = bare.size() == 1 && kAsciiSigns.find(bare) != kAsciiSigns.npos;
    if (words.empty() || !has_spaces || part.text.starts_with(' ') || is_sign) {
      words.push_back(std::move(part));
    } else {
      words.back().text += part.text, words.back().n_tokens += part.n_tokens;
    }
  }
  join_signs(words);
  return words;
}

std::vector<int> token_starts(std::span<const float> shares, int n_heads, int n_tokens, int n_rows, int first, int n) {
  CHECK_EQ(std::ssize(shares), int64_t{n_heads} * n_tokens * n_rows);
  CHECK(n_rows > 0 && n > 0 && first + n <= n_tokens);
  const std::vector<float> matrix = mean_matrix(shares, n_heads, n_tokens, n_rows);
  // The cheapest way from the first token and row to the last, in steps to the next token, the next row, or both.
  const auto width = static_cast<size_t>(n_rows) + 1;
  std::vector<float> cost(width * (static_cast<size_t>(n) + 1), std::numeric_limits<float>::infinity());
  enum Step : uint8_t { kBoth, kToken, kRow };
  std::vector<Step> trace(cost.size(), kBoth);
  const auto at = [&](int token, int row) { return static_cast<size_t>(token) * width + static_cast<size_t>(row); };
  cost[0] = 0;
  for (int row = 1; row <= n_rows; ++row)
    for (int token = 1; token <= n; ++token) {
      const float both = cost[at(token - 1, row - 1)], next_token = cost[at(token - 1, row)],
                  next_row = cost[at(token, row - 1)];
      const Step step = both < next_token && both < next_row         ? kBoth
                        : next_token < both && next_token < next_row ? kToken
                                                                     : kRow;
      const float before = step == kBoth ? both : step == kToken ? next_token : next_row;
      cost[at(token, row)] = before - matrix[static_cast<size_t>((first + token - 1) * n_rows + row - 1)];
      trace[at(token, row)] = step;
    }
  std::vector<int> starts(static_cast<size_t>(n));
  for (int token = n, row = n_rows; token > 0;) {
    starts[static_cast<size_t>(token - 1)] = std::max(row - 1, 0);
    const Step step = row == 0 ? kToken : trace[at(token, row)];
    if (step != kToken) --row;
    if (step != kRow) --token;
  }
  return starts;
}

}  // namespace ingot

#include "text/tokenizers/added_tokens.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <string>

#include "test_seed.h"

namespace ingot {
namespace {

using Tokens = std::vector<std::pair<std::string_view, int32_t>>;
using Found = std::vector<std::pair<size_t, int32_t>>;

template <class Find>
Found all(std::string_view text, const Find& find) {
  Found found;
  for (size_t from = 0; from < text.size();) {
    const AddedTokens::Match match = find(text, from);
    if (match.id < 0) break;
    found.emplace_back(match.begin, match.id);
    from = match.end;
  }
  return found;
}

Found all(const AddedTokens& tokens, std::string_view text) {
  return all(text, [&](std::string_view t, size_t from) { return tokens.find(t, from); });
}

TEST(AddedTokens, LeftmostThenLongest) {
  const AddedTokens tokens(Tokens{{"<a>", 1}, {"<a><b>", 2}, {"<b>x", 3}, {"<", 4}, {".*", 5}, {"\xFFq", 6}});
  EXPECT_EQ(all(tokens, "x<a>y"), (Found{{1, 1}}));
  EXPECT_EQ(all(tokens, "<a><b>x"), (Found{{0, 2}}));
  EXPECT_EQ(all(tokens, "<a><bx"), (Found{{0, 1}, {3, 4}}));
  EXPECT_EQ(all(tokens, "<b>x<b>"), (Found{{0, 3}, {4, 4}}));
  EXPECT_EQ(all(tokens, "a.*b"), (Found{{1, 5}}));
  EXPECT_EQ(all(tokens, "\xFF\xFFq"), (Found{{1, 6}}));
  EXPECT_EQ(all(tokens, ""), Found{});
  EXPECT_EQ(all(AddedTokens(), "<a>"), Found{});
}

TEST(AddedTokens, TheLowestIdOfEqualTextsWins) {
  EXPECT_EQ(all(AddedTokens(Tokens{{"a", 7}, {"a", 3}}), "a"), (Found{{0, 3}}));
}

// Compared with the definition, applied at every position.
TEST(AddedTokens, AgreesWithTheSlowWay) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  auto random_text = [&](size_t max) {
    std::string text(1 + rng() % max, 0);
    for (char& c : text) c = "ab\xFF"[rng() % 3];
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts;
    for (size_t i = 0, n = rng() % 20; i < n; ++i) texts.push_back(random_text(5));
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    Tokens list;
    for (size_t i = 0; i < texts.size(); ++i) list.emplace_back(texts[i], static_cast<int32_t>(i));
    std::shuffle(list.begin(), list.end(), rng);
    const AddedTokens tokens(list);
    const std::string text = random_text(60);
    const Found expected = all(text, [&](std::string_view t, size_t from) {
      AddedTokens::Match best{t.size(), t.size(), -1};
      for (size_t i = from; i < t.size() && best.id < 0; ++i)
        for (const auto& [token, id] : list)
          if (t.substr(i, token.size()) == token && (best.id < 0 || i + token.size() > best.end))
            best = {i, i + token.size(), id};
      return best;
    });
    EXPECT_EQ(all(tokens, text), expected) << text;
  }
}

TEST(AddedTokens, ManyTokensStayFast) {
  std::vector<std::string> texts;
  for (int i = 0; i < 100'000; ++i) texts.push_back("<special_" + std::to_string(i) + ">");
  Tokens list;
  for (size_t i = 0; i < texts.size(); ++i) list.emplace_back(texts[i], static_cast<int32_t>(i));
  list.emplace_back(std::string_view("<special_"), 100'000);
  const AddedTokens tokens(list);
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "<special_" + std::to_string(i * 2) + "<<";
  const Found found = all(tokens, text);  // the end of each token is missing
  ASSERT_EQ(found.size(), 50'000u);
  for (const auto& [begin, id] : found) EXPECT_EQ(id, 100'000);
}

TEST(AddedTokens, OverlongTokensAreNotRecognised) {
  const std::string longest(AddedTokens::kMaxBytes, 'x'), overlong(AddedTokens::kMaxBytes + 1, 'y');
  const AddedTokens tokens(Tokens{{longest, 1}, {overlong, 2}});
  EXPECT_EQ(all(tokens, longest), (Found{{0, 1}}));
  EXPECT_EQ(all(tokens, overlong), Found{});
}

}  // namespace
}  // namespace ingot

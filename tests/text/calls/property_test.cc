// Turns rendered by published templates are parsed back. For each row of formats, parsing in pieces gives the same
// answer as parsing the whole text, and no byte of any text is lost.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/ascii.h"
#include "test_seed.h"
#include "text/calls/calls_check.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using testing::Answer;

const Json& rendered() {
  static const Json goldens = Json::parse(std::ifstream(INGOT_TEST_DATA "/calls/rendered.json"));
  return goldens;
}

AnswerOptions options_of(const Json& turn) {
  return {.tools = &rendered().at("tools"), .in_reasoning = turn.at("in_reasoning").get<bool>()};
}

TEST(RenderedTurns, AreReadBack) {
  for (const Json& turn : rendered().at("turns")) {
    const std::string text = turn.at("text");
    SCOPED_TRACE(
        fmt::format("{} {}\n{}", turn.at("template").get<std::string>(), turn.at("turn").get<std::string>(), text));
    const CallFormat* row = find_call_format(turn.at("format").get<std::string>());
    ASSERT_NE(row, nullptr);
    const Answer answer = testing::read_whole(*row, text, options_of(turn));
    EXPECT_EQ(answer.fault, "");
    EXPECT_TRUE(answer.warnings.empty()) << testing::described(answer);
    EXPECT_EQ(trim(answer.reasoning), turn.at("reasoning").get<std::string>());
    EXPECT_EQ(answer.content, turn.at("content").get<std::string>());
    ASSERT_EQ(answer.calls.size(), turn.at("calls").size());
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      EXPECT_EQ(answer.calls[i].name, turn.at("calls")[i].at("name").get<std::string>());
      // The order of members may differ.
      EXPECT_EQ(nlohmann::json::parse(answer.calls[i].arguments),
                nlohmann::json::parse(turn.at("calls")[i].at("arguments").dump()));
      EXPECT_TRUE(answer.calls[i].whole);
    }
  }
}

TEST(AnyText, PiecesSayWhatTheWholeSays) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const CallFormat& row : call_formats()) {
    for (int i = 0; i < 400; ++i) {
      const std::string text = testing::drawn_text(row, draw);
      const AnswerOptions options = {.tools = draw() % 2 ? &rendered().at("tools") : nullptr,
                                     .in_reasoning = draw() % 4 == 0};
      const Answer whole = testing::read_whole(row, text, options);
      ASSERT_EQ(whole.fault, "") << row.name << ": " << text;
      ASSERT_EQ(testing::described(testing::read_pieces(row, text, draw(), options)), testing::described(whole))
          << row.name << ": " << text;
    }
  }
}

// Each rendered turn in random pieces, so that markers are cut at any position.
TEST(RenderedTurns, InPiecesSayTheSame) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const Json& turn : rendered().at("turns")) {
    const CallFormat& row = *find_call_format(turn.at("format").get<std::string>());
    const std::string text = turn.at("text");
    const std::string whole = testing::described(testing::read_whole(row, text, options_of(turn)));
    for (int i = 0; i < 5; ++i)
      ASSERT_EQ(testing::described(testing::read_pieces(row, text, draw(), options_of(turn))), whole)
          << row.name << ": " << text;
    // A call that is cut at any position is a prefix of the whole call, or content.
    const std::string cut = text.substr(0, draw() % text.size());
    ASSERT_EQ(testing::read_whole(row, cut, options_of(turn)).fault, "") << row.name << ": " << cut;
  }
}

}  // namespace
}  // namespace ingot

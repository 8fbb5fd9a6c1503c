// Rendered turns of published templates read back, and for each row: pieces say what the whole says, and whatever is
// written, no byte is lost.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/ascii.h"
#include "text/calls_check.h"

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
      // Members may come in another order.
      EXPECT_EQ(nlohmann::json::parse(answer.calls[i].arguments),
                nlohmann::json::parse(turn.at("calls")[i].at("arguments").dump()));
      EXPECT_TRUE(answer.calls[i].whole);
    }
  }
}

// Pieces of what models write: markers of the row, of others, JSON, tags, odd bytes.
std::string drawn_text(const CallFormat& row, std::mt19937& draw) {
  const std::string_view markers[] = {
      row.think_begin, row.think_end,   row.header,      row.answer_begin, row.answer_end,   row.list_begin,
      row.list_end,    row.separator,   row.call_begin,  row.call_end,     row.name_begin,   row.name_end,
      row.args_end,    row.param_begin, row.key_end,     row.value_begin,  row.string_begin, row.param_end,
      row.string_mark, row.id_begin,    row.other_begin, row.other_end};
  constexpr std::string_view kOthers[] = {"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}",
                                          "{\"city\": \"x\", \"days\": 3}",
                                          "get_weather",
                                          "city",
                                          "days",
                                          "get_weather(city='x', days=2)",
                                          "{city:1}",
                                          "\"",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          ",",
                                          ";",
                                          ":",
                                          "=",
                                          " ",
                                          "\n",
                                          "'",
                                          "\\",
                                          "x",
                                          "1.5",
                                          "<",
                                          ">",
                                          "\xff",
                                          "日",
                                          "to=functions.now",
                                          "<|start|>",
                                          "<|channel|>",
                                          "<|message|>",
                                          "analysis",
                                          "\"name\": \"now\"",
                                          "null",
                                          "```"};
  std::string text;
  const auto whole_call = [&] {
    const bool json =
        row.syntax == CallSyntax::kEnvelope || row.syntax == CallSyntax::kNamed || row.syntax == CallSyntax::kChannel;
    return row.begin_text("get_weather") +
           (json                               ? "{\"city\": \"x\"}"
            : row.syntax == CallSyntax::kGemma ? "{days:1}"
                                               : "") +
           row.end_text();
  };
  for (int n = static_cast<int>(draw() % 14); n >= 0; --n) {
    const unsigned kind = draw() % 8;
    if (kind < 4)
      text += markers[draw() % std::size(markers)];
    else if (kind < 7)
      text += kOthers[draw() % std::size(kOthers)];
    else
      text += whole_call();
  }
  for (unsigned n = draw() % 3; n > 0 && !text.empty(); --n) text[draw() % text.size()] = static_cast<char>(draw());
  return text.substr(0, draw() % 4 == 0 ? draw() % (text.size() + 1) : text.npos);
}

TEST(AnyText, PiecesSayWhatTheWholeSays) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const CallFormat& row : call_formats()) {
    for (int i = 0; i < 400; ++i) {
      const std::string text = drawn_text(row, draw);
      const AnswerOptions options = {.tools = draw() % 2 ? &rendered().at("tools") : nullptr,
                                     .in_reasoning = draw() % 4 == 0};
      const Answer whole = testing::read_whole(row, text, options);
      ASSERT_EQ(whole.fault, "") << row.name << ": " << text;
      ASSERT_EQ(testing::described(testing::read_pieces(row, text, draw(), options)), testing::described(whole))
          << row.name << ": " << text;
    }
  }
}

// A marker between pieces of any size: each rendered turn, one byte at a time and in drawn pieces.
TEST(RenderedTurns, InPiecesSayTheSame) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const Json& turn : rendered().at("turns")) {
    const CallFormat& row = *find_call_format(turn.at("format").get<std::string>());
    const std::string text = turn.at("text");
    const std::string whole = testing::described(testing::read_whole(row, text, options_of(turn)));
    for (int i = 0; i < 5; ++i)
      ASSERT_EQ(testing::described(testing::read_pieces(row, text, draw(), options_of(turn))), whole)
          << row.name << ": " << text;
    // Cut anywhere, a call is a prefix of what it would have been, or content.
    const std::string cut = text.substr(0, draw() % text.size());
    ASSERT_EQ(testing::read_whole(row, cut, options_of(turn)).fault, "") << row.name << ": " << cut;
  }
}

}  // namespace
}  // namespace ingot

// Thoughts in Anthropic's messages and OpenAI's responses: blocks and items of their own, the same streamed in any pieces and whole.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/collector.h"
#include "server/api/api.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

struct Case {
  const char* text;
  bool thinking;
  const char *thought, *said;
};
constexpr Case kCases[] = {
    {"<think>\nWhy?\nBecause.</think>\n\nSo it is.", false, "Why?\nBecause.", "So it is."},
    {"Why?</think>So.", true, "Why?", "So."},
    {"Nothing to think.", false, "", "Nothing to think."},
    {"<think>\n\n</think>\n\nAt once.", false, "", "At once."},
    {"<think>never ends", false, "never ends", ""},
    {"a < b <think> c", false, "", "a < b <think> c"},
    {"", false, "", ""},
    {"", true, "", ""},
};

ChoiceResult whole_of(const std::string& text) {
  ChoiceResult result{.whole = {.text = text}, .end = {.reason = "stop", .stop_string = ""}};
  for (char c : text) result.whole.tokens.push_back({.id = c, .bytes = std::string(1, c)});
  return result;
}

// All events of a stream whose text comes in random pieces.
std::vector<Json> events_of(AnswerWriter& writer, const std::string& text, Random& random) {
  std::string out;
  writer.begin({}, out);
  for (size_t begin = 0; begin < text.size();) {
    const size_t n = static_cast<size_t>(random.integer(1, 7));
    const std::string piece = text.substr(begin, n);
    writer.delta(0, whole_of(piece).whole, out);
    begin += n;
  }
  writer.choice_end(0, {.reason = "stop", .stop_string = ""}, out);
  writer.end({.prompt_tokens = 3, .completion_tokens = static_cast<int>(text.size())}, out);
  std::vector<Json> events;
  for (size_t begin = 0, end; (end = out.find("\n\n", begin)) != out.npos; begin = end + 2) {
    const std::string event = out.substr(begin, end - begin);
    const size_t data = event.find("\ndata: ");
    EXPECT_TRUE(event.starts_with("event: ") && data != event.npos) << event;
    events.push_back(Json::parse(event.substr(data + 7)));
    EXPECT_EQ(event.substr(7, data - 7), events.back()["type"]);
  }
  return events;
}

TEST(Writers, AnthropicsBlocks) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.text);
    const Json whole = Json::parse(messages_writer("m", 3, c.thinking)->whole({whole_of(c.text)}, {}));
    Json streamed = Json::array();
    int open = -1;
    const auto writer = messages_writer("m", 3, c.thinking);
    for (const Json& event : events_of(*writer, c.text, random)) {
      const std::string type = event["type"];
      if (type == "content_block_start") {
        EXPECT_EQ(open, -1);
        open = event["index"];
        EXPECT_EQ(open, static_cast<int>(streamed.size()));
        streamed.push_back(event["content_block"]);
      } else if (type == "content_block_delta") {
        EXPECT_EQ(event["index"], open);
        const Json& delta = event["delta"];
        const char* key = delta["type"] == "thinking_delta" ? "thinking" : "text";
        streamed.back()[key] = streamed.back()[key].get<std::string>() + delta[key].get<std::string>();
      } else if (type == "content_block_stop") {
        EXPECT_EQ(event["index"], open);
        open = -1;
      }
    }
    EXPECT_EQ(open, -1);
    EXPECT_EQ(whole["content"], streamed);
    const size_t n = whole["content"].size();
    ASSERT_EQ(n, *c.thought ? 2u : 1u);
    EXPECT_EQ(whole["content"][n - 1]["text"], c.said);
    if (n == 2) {
      EXPECT_EQ(whole["content"][0]["thinking"], c.thought);
    }
  }
}

TEST(Writers, ItemsOfResponses) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.text);
    const Totals totals{.prompt_tokens = 3, .completion_tokens = static_cast<int>(strlen(c.text))};
    Json whole = Json::parse(responses_writer("m", Json::object(), c.thinking)->whole({whole_of(c.text)}, totals));
    const auto writer = responses_writer("m", Json::object(), c.thinking);
    Json last, texts = Json::array();
    int sequence = 0;
    for (const Json& event : events_of(*writer, c.text, random)) {
      EXPECT_EQ(event["sequence_number"], sequence++);
      const std::string type = event["type"];
      if (type == "response.output_item.added") {
        EXPECT_EQ(event["output_index"], texts.size());
        texts.push_back("");
      } else if (type.ends_with("_text.delta")) {
        EXPECT_EQ(event["output_index"], texts.size() - 1);
        texts.back() = texts.back().get<std::string>() + event["delta"].get<std::string>();
      } else if (type.ends_with("_text.done")) {
        EXPECT_EQ(event["text"], texts.back());
      }
      last = event;
    }
    ASSERT_EQ(last["type"], "response.completed");
    const Json& response = last["response"];
    ASSERT_EQ(response["output"].size(), *c.thought ? 2u : 1u);
    ASSERT_EQ(response["output"].size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(response["output"][i]["content"][0]["text"], texts[i]);
      whole["output"][i]["id"] = response["output"][i]["id"];
    }
    EXPECT_EQ(texts.back(), c.said);
    if (*c.thought) {
      EXPECT_EQ(texts.front(), c.thought);
    }
    EXPECT_EQ(whole["output"], response["output"]);
    EXPECT_EQ(whole["usage"], response["usage"]);
    const int n_thoughts = whole["usage"]["output_tokens_details"]["reasoning_tokens"];
    EXPECT_EQ(n_thoughts > 0, *c.thought || std::string(c.text).starts_with("<think>\n\n")) << "tokens that only think";
    EXPECT_LE(n_thoughts, static_cast<int>(strlen(c.text)));
  }
}

}  // namespace
}  // namespace ingot

// Thoughts and words told apart, however the text is cut.
#include "server/api/reasoning.h"

#include <gtest/gtest.h>

#include <random>

namespace ingot {
namespace {

struct Case {
  const char* text;
  bool thinking;
  const char *thought, *said;
};

constexpr Case kCases[] = {
    {"Hello", false, "", "Hello"},
    {"", false, "", ""},
    {"  \n", false, "", "  \n"},
    {"<think>a b</think>\n\nHello", false, "a b", "Hello"},
    {"\n<think>\na\n</think>Hello</think>", false, "\na\n", "Hello</think>"},
    {"<think></think>Hi", false, "", "Hi"},
    {"<think>never ends", false, "never ends", ""},
    {"<think>ends in </thin", false, "ends in </thin", ""},
    {"<thing>", false, "", "<thing>"},
    {"<thi", false, "", "<thi"},
    {"a <think>b</think>", false, "", "a <think>b</think>"},
    {"b</think> c", true, "b", "c"},
    {"<think>b</think>", true, "<think>b", ""},
    {"<<think>", false, "", "<<think>"},
    {"<think>x<</think>>y", false, "x<", ">y"},
};

TEST(ReasoningSplitter, AnyCutGivesTheSame) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const Case& c : kCases) {
    for (int i = 0; i < 50; ++i) {
      ReasoningSplitter splitter(c.thinking);
      std::string thought, said;
      const auto add = [&](const ReasoningSplitter::Parts& parts) {
        EXPECT_TRUE(parts.thought.empty() || said.empty()) << "a thought after words";
        thought += parts.thought;
        said += parts.said;
      };
      for (std::string_view rest = c.text; !rest.empty();) {
        const size_t n = i == 0 ? 1 : i == 1 ? rest.size() : 1 + draw() % rest.size();
        add(splitter.push(rest.substr(0, n)));
        rest.remove_prefix(n);
      }
      add(splitter.flush());
      EXPECT_EQ(thought, c.thought) << c.text;
      EXPECT_EQ(said, c.said) << c.text;
    }
  }
}

TEST(ReasoningSplitter, SeesWhereAPromptOpensAThought) {
  EXPECT_TRUE(opens_thought("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(opens_thought("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_thought(""));
}

}  // namespace
}  // namespace ingot

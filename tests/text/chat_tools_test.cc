// Tools with every template: the tools of a request reach the model, in the template's own words or in the generic ones
// of text/generic_tools.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "text/chat.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

const Json kTwoTools = Json::parse(R"([{"type": "function", "function": {"name": "tool_one", "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "A number."}},
                   "required": ["a"]}}}])");
const Json kAsked = Json::parse(R"([{"role": "user", "content": "Add."}])");
const Json kCalled = Json::parse(R"([{"role": "user", "content": "Add."},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
        "function": {"name": "tool_two", "arguments": "{\"a\": 31415}"}}]},
    {"role": "tool", "tool_call_id": "call00001", "name": "tool_two", "content": "result_three"}])");

std::string template_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ChatTools, NothingIsDropped) {
  int n = 0, n_generic = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(INGOT_TEST_DATA) + "/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const ChatTemplate chat(template_text(entry.path()), "<s>", "</s>");
    if (chat.render(kAsked, nullptr, true, nullptr).find("Add.") == std::string::npos) continue;  // not a chat template
    EXPECT_THAT(chat.render(kAsked, kTwoTools, true, nullptr), HasSubstr("tool_one"));
    const std::string text = chat.render(kCalled, kTwoTools, true, nullptr);
    for (const char* said : {"Add.", "tool_one", "tool_two", "31415", "result_three"})
      EXPECT_THAT(text, HasSubstr(said));
    // Earlier calls stay if a later request offers no tools.
    const std::string later = chat.render(kCalled, nullptr, true, nullptr);
    for (const char* said : {"tool_two", "31415", "result_three"}) EXPECT_THAT(later, HasSubstr(said));
    n_generic += text.find("<tool_response>result_three</tool_response>") != text.npos;
    ++n;
  }
  EXPECT_GE(n, 5);
  EXPECT_GE(n_generic, 1);
  EXPECT_LT(n_generic, n);
}

TEST(ChatTools, AreToldInWordsWhereTheTemplateHasNoPlace) {
  const ChatTemplate chat = ChatTemplate::chatml_default();
  const std::string text = chat.render(kCalled, kTwoTools, true, nullptr);
  EXPECT_THAT(text, HasSubstr("<|im_start|>system\nYou can call tools."));
  EXPECT_THAT(text, HasSubstr(R"(<tools>
{"type": "function", "function": {"name": "tool_one", "description": "Adds.", "parameters": {)"));
  EXPECT_THAT(text, HasSubstr(R"(<|im_start|>assistant
<tool_call>{"name": "tool_two", "arguments": {"a": 31415}}</tool_call><|im_end|>
<|im_start|>user
<tool_response>result_three</tool_response><|im_end|>
<|im_start|>assistant
)"));
  EXPECT_THAT(chat.render(kAsked, nullptr, true, nullptr), Not(HasSubstr("tools")));
  EXPECT_EQ(chat.render(kAsked, Json::array(), true, nullptr), chat.render(kAsked, nullptr, true, nullptr));
}

TEST(ChatTools, JoinTheSystemMessageAndTheText) {
  const ChatTemplate chat = ChatTemplate::chatml_default();
  const Json messages = Json::parse(R"([{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": "Add."},
    {"role": "assistant", "content": "I add.", "tool_calls": [{"function": {"name": "a", "arguments": "no JSON"}},
                                                              {"name": "b"}]},
    {"role": "tool", "content": [{"type": "text", "text": "one"}]}, {"role": "tool", "content": "two"},
    {"role": "user", "content": "So?"}])");
  const std::string text = chat.render(messages, kTwoTools, true, nullptr);
  EXPECT_THAT(text, HasSubstr("<|im_start|>system\nBe brief.\n\nYou can call tools."));
  EXPECT_THAT(text, HasSubstr(R"(<|im_start|>assistant
I add.
<tool_call>{"name": "a", "arguments": "no JSON"}</tool_call>
<tool_call>{"name": "b", "arguments": {}}</tool_call><|im_end|>
<|im_start|>user
<tool_response>one</tool_response>
<tool_response>two</tool_response><|im_end|>
<|im_start|>user
So?<|im_end|>)"));
}

TEST(ChatTools, JoinTheUserWhereThereIsNoSystem) {
  const ChatTemplate chat(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "[{{ m.role }}]{{ m.content }}{% endfor %}",
      "<s>", "</s>");
  const std::string text = chat.render(kCalled, kTwoTools, true, nullptr);
  EXPECT_THAT(text, ::testing::StartsWith("[user]You can call tools."));
  EXPECT_THAT(text, HasSubstr("Add.[assistant]<tool_call>"));
}

}  // namespace
}  // namespace ingot

// Images in chat templates: the parts that a template gets, and what happens where a template shows none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "text/chat.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// In the manner of SmolVLM: parts only, the image before or between texts.
constexpr const char* kPartsTemplate =
    "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}{% if m.content[0].type == 'image' %}{{ ':' }}{% else "
    "%}"
    "{{ ': ' }}{% endif %}{% for line in m.content %}{% if line.type == 'text' %}{{ line.text }}{% elif line.type == "
    "'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% "
    "endif "
    "%}";

// In the manner of Qwen: text or parts, and results of tools with images.
constexpr const char* kBothTemplate =
    "{%- macro show(content) -%}{%- if content is string -%}{{ content }}{%- else -%}{%- for c in content -%}{%- if "
    "'image' in c or c.type == 'image' -%}<|v|><|pad|><|/v|>{%- elif 'text' in c -%}{{ c.text }}{%- endif -%}{%- "
    "endfor "
    "-%}{%- endif -%}{%- endmacro -%}{%- for m in messages -%}[{{ m.role }}]{{ show(m.content) }}{%- if m.tool_calls "
    "-%}{{ m.tool_calls | tojson }}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

// Text only.
constexpr const char* kTextTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% "
    "endif "
    "%}{% endfor %}";

ChatTemplate seeing(const char* source, const char* placeholder) {
  ChatTemplate chat(source, "<s>", "</s>");
  chat.read(MediaKind::kImage, placeholder);
  return chat;
}

std::string shown(const ChatTemplate& chat, const char* messages) {
  return chat.render(Json::parse(messages), nullptr, true, nullptr);
}

constexpr const char* kAsked = R"([{"role": "user", "content": [{"type": "text", "text": "Before"}, {"type": "image"},
    {"type": "text", "text": "after"}, {"type": "image"}]}])";
constexpr const char* kToolImage = R"([{"role": "user", "content": "Look."}, {"role": "assistant", "content": "",
    "tool_calls": [{"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "call00001", "content": [{"type": "text", "text": "Here:"}, {"type": "image"}]},
    {"role": "user", "content": "And?"}])";

TEST(ChatImages, TheTemplatePlacesThem) {
  const ChatTemplate parts = seeing(kPartsTemplate, "<image>");
  EXPECT_EQ(shown(parts, kAsked), "<|im_start|>User: Before<image>after<image><end>\nAssistant:");
  EXPECT_EQ(shown(parts, R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
                            {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Sure?"}])"),
            "<|im_start|>User:<image>What?<end>\nAssistant: A cat.<end>\nUser: Sure?<end>\nAssistant:");
  EXPECT_EQ(shown(seeing(kBothTemplate, "<|pad|>"), kAsked),
            "[user]Before<|v|><|pad|><|/v|>after<|v|><|pad|><|/v|>[assistant]");
}

TEST(ChatImages, AMarkStandsForThemInTemplatesOfText) {
  const std::string mark(facts_of(MediaKind::kImage).mark);
  EXPECT_EQ(shown(seeing(kTextTemplate, "<image>"), kAsked), "[user]Before\n" + mark + "\nafter\n" + mark);
}

TEST(ChatImages, ThoseOfToolsStayWhereTheTemplateShowsThem) {
  EXPECT_THAT(shown(seeing(kBothTemplate, "<|pad|>"), kToolImage),
              HasSubstr("[tool]Here:<|v|><|pad|><|/v|>[user]And?"));
}

TEST(ChatImages, ThoseOfToolsMoveIntoAUserMessageElsewhere) {
  const std::string text = shown(seeing(kTextTemplate, "<image>"), kToolImage);
  EXPECT_THAT(text, HasSubstr("Here:[user]" + std::string(facts_of(MediaKind::kImage).mark) + "[user]And?"));
}

TEST(ChatImages, ModelsWithoutATowerRefuseThem) {
  const ChatTemplate chat(kPartsTemplate, "<s>", "</s>");
  EXPECT_THAT([&] { shown(chat, kAsked); },
              ::testing::ThrowsMessage<Error>(HasSubstr(
                  "messages[0].content[1]: images are not supported; this model reads text only")));
}

TEST(ChatImages, OnlyUsersAndToolsHaveThem) {
  EXPECT_THAT(
      [&] { shown(seeing(kPartsTemplate, "<image>"), R"([{"role": "system", "content": [{"type": "image"}]}])"); },
      ::testing::ThrowsMessage<Error>(
          HasSubstr("messages[0].content[0]: images belong in messages of the role user or tool")));
}

TEST(ChatImages, NeighbouringUserMessagesKeepThem) {
  Json messages = Json::parse(R"([{"role": "user", "content": "One"}, {"role": "user", "content": [{"type": "image"}]},
                                  {"role": "user", "content": "Two"}])");
  merge_users(messages);
  EXPECT_EQ(messages, Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "image"},
                                  {"type": "text", "text": "Two"}]}])"));
  EXPECT_EQ(count_media(messages, MediaKind::kImage), 1);
}

}  // namespace
}  // namespace ingot

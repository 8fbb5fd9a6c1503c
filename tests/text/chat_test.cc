// ChatTemplate: the input that is passed on unchanged, and each adaptation with a template that needs it. The templates
// are small ones in this file and the fixtures of tests/data/templates.
#include "text/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "captured_log.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

ChatTemplate chat_fixture(const std::string& name) {
  std::ifstream file(std::string(INGOT_TEST_DATA) + "/templates/" + name, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + name);
  std::ostringstream text;
  text << file.rdbuf();
  return ChatTemplate(text.str(), "<s>", "</s>");
}

ChatTemplate made(const std::string& source) { return ChatTemplate(source, "<s>", "</s>"); }

std::string render(const ChatTemplate& chat, const char* messages, const Json& tools = nullptr,
                   const Json& variables = nullptr) {
  return chat.render(Json::parse(messages), tools, true, variables);
}

const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "add", "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "A number."}}}}}])");

constexpr const char* kText = R"([{"role": "user", "content": "One\nTwo"}])";
constexpr const char* kParts =
    R"([{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}])";
constexpr const char* kSystem = R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])";

// A call with `arguments` and `content` as JSON. Without `content`, the message has no content.
std::string calling(const std::string& arguments, const std::string& content) {
  return R"([{"role": "user", "content": "Hi"}, {"role": "assistant", )" +
         (content.empty() ? "" : "\"content\": " + content + ", ") +
         R"("tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": )" +
         arguments + "}}]}]";
}
const std::string kAsObject = R"({"a": 1, "b": ["x"]})", kAsText = R"("{\"a\": 1, \"b\": [\"x\"]}")";

// ---- without adaptations

TEST(ChatTemplate, ChatMlIsThere) {
  const ChatTemplate chat = ChatTemplate::chatml_default();
  EXPECT_EQ(render(chat, kSystem),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.render(Json::parse(R"([{"role": "user", "content": "Hi"}])"), nullptr, false, nullptr),
            "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplate, PassesWhatHuggingFacePasses) {
  const ChatTemplate chat = made(
      "{{ bos_token }}{{ eos_token }} {{ messages|tojson }} {{ tools|tojson }} {{ documents }} {{ "
      "add_generation_prompt }} {{ mood }}");
  EXPECT_EQ(render(chat, R"([{"role": "user", "content": "x", "extra": {"k": [1]}}])", nullptr,
                   {{"mood", "calm"}, {"documents", "d"}}),
            R"(<s></s> [{"role": "user", "content": "x", "extra": {"k": [1]}}] null d True calm)");
  EXPECT_THAT(render(chat, kText, kTools), HasSubstr(kTools.at(0).at("function").at("description").get<std::string>()));
  EXPECT_TRUE(chat.mentions("tools"));
  EXPECT_FALSE(chat.mentions("enable_thinking"));
}

TEST(ChatTemplate, ReadsItsClock) {
  std::tm time{};
  time.tm_year = 99, time.tm_mday = 2;
  const ChatTemplate chat("{{ strftime_now('%Y-%m-%d') }}{{ messages[0].content }}", "", "", {}, [&] { return time; });
  EXPECT_EQ(render(chat, kText), "1999-01-02One\nTwo");
}

TEST(ChatTemplate, KeepsToItsLimits) {
  const ChatTemplate chat("{% for i in range(9999) %}{% endfor %}{{ messages[0].content }}", "", "",
                          {.fuel = 1000, .fuel_per_byte = 0});
  EXPECT_THROW(render(chat, kText), Error);
}

// ---- adaptations

TEST(ChatTemplate, PartsBecomeTextWhereTheyAreNotUnderstood) {
  for (const char* name :
       {"chatml.jinja", "headers.jinja", "thinking.jinja"})  // prints Python's list, fails, prints nothing
    EXPECT_THAT(render(chat_fixture(name), kParts), HasSubstr("One\nTwo")) << name;
}

TEST(ChatTemplate, PartsStayWhereTheyAreUnderstood) {
  EXPECT_THAT(render(chat_fixture("turns.jinja"), kParts), HasSubstr("One\n\nTwo"));  // joined by the template itself
  EXPECT_THAT(render(chat_fixture("observations.jinja"), kParts), HasSubstr("OneTwo"));
}

TEST(ChatTemplate, TextBecomesAPartWhereOnlyPartsAreUnderstood) {
  const ChatTemplate chat =
      made("{% for m in messages %}{{ m.role }}:{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}");
  EXPECT_EQ(render(chat, kText), "user:[One\nTwo]");
  EXPECT_EQ(render(chat, kParts), "user:[One][Two]");
  EXPECT_EQ(render(chat, kSystem), "system:[Be brief.]user:[Hi]");
}

TEST(ChatTemplate, SystemJoinsTheUserWhereItIsRefused) {
  const ChatTemplate chat = chat_fixture("turns.jinja");
  EXPECT_EQ(render(chat, kSystem), "<s><turn>user\nBe brief.\n\nHi</turn>\n<turn>model\n");
  EXPECT_EQ(render(chat, R"([{"role": "system", "content": "Be brief."},
                             {"role": "user", "content": [{"type": "text", "text": "Hi"}]}])"),
            "<s><turn>user\nBe brief.\n\nHi</turn>\n<turn>model\n");
  EXPECT_EQ(render(chat, R"([{"role": "system", "content": "Alone."}])"),
            "<s><turn>user\nAlone.</turn>\n<turn>model\n");
}

TEST(ChatTemplate, SystemJoinsTheUserWhereItIsDropped) {
  const ChatTemplate chat = made("{% for m in messages if m.role != 'system' %}<{{ m.content }}>{% endfor %}");
  EXPECT_EQ(render(chat, kSystem), "<Be brief.\n\nHi>");
}

TEST(ChatTemplate, SystemStaysWhereItIsTaken) {
  EXPECT_THAT(render(chat_fixture("chatml.jinja"), kSystem), HasSubstr("system\nBe brief."));
  EXPECT_EQ(render(chat_fixture("inst.jinja"), kSystem),
            "<s>[ASK]Be brief.\n\nHi[/ASK]");  // joined by the template itself
}

TEST(ChatTemplate, ArgumentsBecomeAnObjectWhereTextIsQuotedTwice) {
  for (const char* name : {"inst.jinja", "headers.jinja"})
    EXPECT_THAT(render(chat_fixture(name), calling(kAsText, "\"\"").c_str(), kTools), HasSubstr(kAsObject)) << name;
}

TEST(ChatTemplate, ArgumentsBecomeAnObjectWhereTextIsRefused) {
  const std::string text = render(chat_fixture("observations.jinja"), calling(kAsText, "\"\"").c_str(), kTools);
  EXPECT_THAT(text, HasSubstr("  a := 1\n  b := [\"x\"]\n"));
}

TEST(ChatTemplate, ArgumentsThatAreNoJsonStayText) {
  EXPECT_THAT(render(chat_fixture("inst.jinja"), calling("\"not {json\"", "\"\"").c_str(), kTools),
              HasSubstr("\"arguments\": \"not {json\""));
  EXPECT_THROW(render(chat_fixture("observations.jinja"), calling("\"[1]\"", "\"\"").c_str(), kTools), Error);
}

TEST(ChatTemplate, ArgumentsBecomeTextWhereAnObjectIsNotUnderstood) {
  const std::string calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  for (const char* shown :
       {"{{ '<' + c.function.arguments + '>' }}", "<{{ c.function.arguments }}>"}) {  // fails; prints Python's dict
    const ChatTemplate chat = made(calls + shown + "{% endfor %}{{ m.content }}{% endfor %}");
    EXPECT_EQ(render(chat, calling(kAsObject, "\"\"").c_str()), "Hi<" + kAsObject + ">") << shown;
    EXPECT_EQ(render(chat, calling(kAsText, "\"\"").c_str()), "Hi<" + kAsObject + ">") << shown;
  }
}

TEST(ChatTemplate, ArgumentsStayWhereBothAreUnderstood) {
  const ChatTemplate chat = chat_fixture("thinking.jinja");
  EXPECT_THAT(render(chat, calling(R"("{\"a\":   1}")", "\"\"").c_str(), kTools), HasSubstr("{\"a\":   1}"));
  EXPECT_THAT(render(chat, calling(R"({"a":   1})", "\"\"").c_str(), kTools), HasSubstr("{\"a\": 1}"));
}

TEST(ChatTemplate, NullContentBecomesEmptyWhereItIsPrintedOrFails) {
  const std::string rest =
      "{% for c in m.tool_calls or [] %}({{ c.function.arguments|tojson }}){% endfor %}{% endfor %}";
  for (const char* shown : {"{{ m.content }}", "{{ '' + m.content }}", "{{ m['content']|trim }}"}) {
    const ChatTemplate chat = made(std::string("{% for m in messages %}") + shown + rest);
    for (const char* content : {"null", "", "\"\""})  // "": no content
      EXPECT_EQ(render(chat, calling(kAsObject, content).c_str()), "Hi(" + kAsObject + ")") << shown << content;
  }
}

TEST(ChatTemplate, NullContentStaysWhereItIsUnderstood) {
  const ChatTemplate chat = made(
      "{% for m in messages %}{{ '-' if m.content is none else '+' + m.content }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}");
  EXPECT_EQ(render(chat, calling(kAsObject, "null").c_str()), "+Hi-" + kAsObject);
  EXPECT_EQ(render(chat, calling(kAsObject, "").c_str()), "+Hi-" + kAsObject);  // without an adaptation: fails
}

TEST(ChatTemplate, NoToolsBecomeAnEmptyListWhereAListIsNeeded) {
  const ChatTemplate chat =
      made("{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(render(chat, kText), "One\nTwo");
  EXPECT_EQ(render(chat, kText, kTools), "addOne\nTwo");
  EXPECT_THAT(render(made("{{ tools }}{{ messages[0].content }}"), kText),
              HasSubstr("None"));  // the template accepts null
}

// ---- refusals

TEST(ChatTemplate, ABrokenTemplateMakesChatMlAndAWarning) {
  set_log_level(LogLevel::kWarn);
  const CapturedLog log;
  const ChatTemplate chat = made("{% for m in messages %}{{ m.content }}");
  EXPECT_THAT(log.text(), HasSubstr("chat template is invalid; using ChatML"));
  EXPECT_THAT(log.text(), HasSubstr("line 1, column"));
  EXPECT_EQ(chat.source(), ChatTemplate::chatml_default().source());
  EXPECT_EQ(render(chat, kSystem), render(ChatTemplate::chatml_default(), kSystem));
}

TEST(ChatTemplate, WhatTheTemplateRefusesNamesTheLine) {
  try {
    render(chat_fixture("turns.jinja"), R"([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}])");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "template line 1: user and model take turns");
  }
}

struct Malformed {
  const char *messages, *message;
};

void PrintTo(const Malformed& row, std::ostream* out) { *out << row.message; }

class MalformedMessages : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedMessages, NameTheField) {
  try {
    const std::string text = render(ChatTemplate::chatml_default(), GetParam().messages);
    ADD_FAILURE() << "was accepted: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

constexpr Malformed kMalformed[] = {
    {"[]", "messages must be an array of at least one message"},
    {"{}", "messages must be an array"},
    {R"([{"role": "user", "content": "a"}, 1])", "messages[1] must be an object"},
    {R"([{"content": "a"}])", "messages[0].role must be a string"},
    {R"([{"role": null, "content": "a"}])", "messages[0].role must be a string"},
    {R"([{"role": "user", "content": 1}])", "messages[0].content must be a string, null or an array of parts"},
    {R"([{"role": "user", "content": {"type": "text"}}])", "messages[0].content must be"},
    {R"([{"role": "user", "content": ["a"]}])", "messages[0].content[0] must be an object with a type"},
    {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]}])",
     "messages[0].content[1].text"},
    {R"([{"role": "user", "content": [{"type": "image_url"}]}])", "messages[0].content[0]: images are not supported"},
    {R"([{"role": "user", "content": [{"type": "a\u0001b"}]}])", "'a\\x01b'"},
    {R"([{"role": "assistant", "content": "", "tool_calls": {}}])", "messages[0].tool_calls must be an array"},
    {R"([{"role": "assistant", "content": "", "tool_calls": [1]}])", "messages[0].tool_calls[0] must be an object"}};
INSTANTIATE_TEST_SUITE_P(Chat, MalformedMessages, ::testing::ValuesIn(kMalformed));

std::string refusal(const Json& messages, const Json& tools, const Json& variables) {
  try {
    return "accepted: " + ChatTemplate::chatml_default().render(messages, tools, true, variables);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatTemplate, RefusesMalformedToolsAndVariables) {
  const Json hi = Json::parse(kText);
  EXPECT_THAT(refusal(hi, Json::object(), nullptr), HasSubstr("tools must be an array"));
  EXPECT_THAT(refusal(hi, Json::array({"add"}), nullptr), HasSubstr("tools[0] must be an object"));
  EXPECT_THAT(refusal(hi, nullptr, Json::array()), HasSubstr("variables of a chat template must be an object"));
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "chat_template"})
    EXPECT_THAT(refusal(hi, nullptr, Json::object({{name, 1}})),
                HasSubstr(std::string("variable '") + name + "' is reserved"));
  EXPECT_THAT(refusal(hi, nullptr, Json::object({{"enable_thinking", false}})), HasSubstr("accepted"));
}

TEST(ChatTemplate, RefusesWhatIsTooMuch) {
  Json deep = "x", hi = Json::parse(kText);
  for (int i = 0; i < 100; ++i) deep = Json::array({deep});
  Json message = hi[0];
  message["extra"] = deep;
  EXPECT_THAT(refusal(Json::array({message}), nullptr, nullptr), HasSubstr("messages[0] nests deeper than 64"));
  EXPECT_THAT(refusal(hi, Json::array({Json::object({{"type", deep}})}), nullptr),
              HasSubstr("tools[0] nests deeper than 64"));
  EXPECT_THAT(refusal(hi, nullptr, Json::object({{"v", deep}})), HasSubstr("variable 'v' nests deeper than 64"));
  EXPECT_THAT(refusal(Json(20'000, hi[0]), nullptr, nullptr), HasSubstr("messages has 20000 items, over the limit of"));
  EXPECT_THAT(refusal(hi, Json(1'000, Json::object()), nullptr), HasSubstr("tools has 1000 items, over the limit of"));
}

TEST(ChatTemplate, DeepArgumentsInTextAreNotParsed) {
  const std::string deep = "\"{\\\"a\\\": " + std::string(5000, '[') + std::string(5000, ']') + "}\"";
  EXPECT_THAT(render(chat_fixture("inst.jinja"), calling(deep, "\"\"").c_str(), kTools),
              HasSubstr("\"arguments\": \"{"));
}

TEST(ChatTemplate, LastEditSeesWhatTheTemplateWillSee) {
  std::vector<std::string> seen;
  const ChatTemplate chat = chat_fixture("inst.jinja");
  const std::string text =
      chat.render(Json::parse(calling(kAsText, "\"\"")), kTools, true, Json::object({{"v", 1}}), [&](Json& part) {
        seen.push_back(part.dump());
        if (part.is_array() && part[0].contains("role")) part[0]["content"] = "edited";
      });
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_THAT(seen[0], HasSubstr(R"("arguments":{"a":1,"b":["x"]})"));
  EXPECT_THAT(seen[1], HasSubstr("Adds."));
  EXPECT_EQ(seen[2], R"({"v":1})");
  EXPECT_THAT(text, HasSubstr("[ASK]edited[/ASK]"));
}

}  // namespace
}  // namespace ingot

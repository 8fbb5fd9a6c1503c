// Conversations in any order with every template: each text of the request reaches the model, whatever the template
// refuses or drops. Guards are those of published templates.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/json.h"
#include "test_seed.h"
#include "text/chat.h"
#include "text/json_value.h"

namespace ingot {
namespace {

// Qwen3.5: the system message comes first.
constexpr const char* kFirstSystem =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be "
    "at "
    "the beginning.') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<go>{% endif "
    "%}";
// Gemma 2: no system message, and the roles alternate.
constexpr const char* kAlternating =
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for m in "
    "messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must "
    "alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
// A template that drops system messages but the first without a word.
constexpr const char* kDropping =
    "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}{% endif %}{% for m in messages %}{% if "
    "m.role "
    "!= 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
// DeepSeek R1: the last system message replaces the others, and comes first.
constexpr const char* kLastSystem =
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.system = m.content "
    "%}{% "
    "endif %}{% endfor %}{{ ns.system }}{# developer #}{% for m in messages %}{% if m.role == 'user' or m.role == "
    "'assistant' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
// Mistral: ids of nine letters and digits, alternating turns.
constexpr const char* kNineLetters =
    "{% if messages[0].role == 'system' %}[SYSTEM]{{ messages[0].content }}{% set rest = messages[1:] %}{% else %}{% "
    "set "
    "rest = messages %}{% endif %}{% set ns = namespace(i=0) %}{% for m in rest %}{% if m.role == 'user' or (m.role == "
    "'assistant' and not m.tool_calls) %}{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('roles must "
    "alternate') }}{% endif %}{% set ns.i = ns.i + 1 %}{% endif %}{% if m.tool_calls %}[TOOL_CALLS]{% for c in "
    "m.tool_calls "
    "%}{% if c.id is not defined or c.id|length != 9 %}{{ raise_exception('Tool call IDs should be alphanumeric "
    "strings "
    "with length 9!') }}{% endif %}{{ c.function|tojson }}{{ c.id }}{% endfor %}{% elif m.role == 'tool' %}{% if "
    "m.tool_call_id is not defined or m.tool_call_id|length != 9 %}{{ raise_exception('Tool call IDs should be "
    "alphanumeric strings with length 9!') }}{% endif %}[TOOL_RESULTS]{{ m.content }}{{ m.tool_call_id }}{% elif "
    "m.role == "
    "'system' %}{{ raise_exception('Only user, assistant and tool') }}{% else %}[{{ m.role }}]{{ m.content }}{% endif "
    "%}{% "
    "endfor %}{% if tools %}{{ tools|tojson }}{% endif %}";

std::vector<std::pair<std::string, ChatTemplate>> all_templates() {
  std::vector<std::pair<std::string, ChatTemplate>> all;
  for (const auto& [name, source] : {std::pair{"first system", kFirstSystem},
                                     {"alternating", kAlternating},
                                     {"dropping", kDropping},
                                     {"last system", kLastSystem},
                                     {"nine letters", kNineLetters}})
    all.emplace_back(name, ChatTemplate(source, "<s>", "</s>"));
  for (const auto& entry : std::filesystem::directory_iterator(std::string(INGOT_TEST_DATA) + "/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    ChatTemplate chat(text.str(), "<s>", "</s>");
    const JsonValue hello = JsonValue::array({{{"role", "user"}, {"content", "needle"}}});
    try {
      if (chat.render(hello, nullptr, true, nullptr).find("needle") == std::string::npos) continue;
    } catch (const std::exception&) {
      continue;  // needs variables
    }
    all.emplace_back(entry.path().filename().string(), std::move(chat));
  }
  all.emplace_back("chatml", ChatTemplate::chatml_default());
  return all;
}

// Roles in the order in which clients send them: systems anywhere, answers after questions, a question at the end.
std::vector<std::string> drawn_roles(std::mt19937& draw) {
  std::vector<std::string> roles;
  const auto maybe_system = [&] {
    while (draw() % 3 == 0) roles.push_back(draw() % 2 ? "system" : "developer");
  };
  maybe_system();
  for (size_t n = draw() % 3; n > 0; --n) {
    roles.push_back("user");
    if (draw() % 4 == 0) roles.push_back("user");
    maybe_system();
    roles.push_back("assistant");
    maybe_system();
  }
  roles.push_back("user");
  maybe_system();
  return roles;
}

TEST(ChatTurns, EachTextReachesTheModel) {
  const unsigned seed = test_seed();
  std::mt19937 draw(seed);
  for (const auto& [name, chat] : all_templates()) {
    for (int i = 0; i < 40; ++i) {
      JsonValue messages = JsonValue::array();
      std::vector<std::string> texts;
      std::string order;
      for (const std::string& role : drawn_roles(draw)) {
        texts.push_back(fmt::format("text{}x", texts.size()));
        messages.push_back({{"role", role}, {"content", texts.back()}});
        order += role + " ";
      }
      SCOPED_TRACE(fmt::format("seed {}, {}: {}", seed, name, order));
      const std::string shown = chat.render(messages, nullptr, true, nullptr);
      const bool keeps_order = name != "inst.jinja";  // this template writes the system's text in the last turn
      size_t at = 0;
      for (const std::string& text : texts) {
        at = shown.find(text, keeps_order ? at : 0);
        ASSERT_NE(at, std::string::npos) << text << " in " << shown;
      }
    }
  }
}

TEST(ChatTurns, SystemMessagesStayWhereTheTemplateTakesThem) {
  const ChatTemplate chat = ChatTemplate::chatml_default();
  const JsonValue late = JsonValue::parse(
      R"([{"role": "user", "content": "A"}, {"role": "system", "content": "B"}, {"role": "user", "content": "C"}])");
  EXPECT_EQ(chat.render(late, nullptr, false, nullptr),
            "<|im_start|>user\nA<|im_end|>\n<|im_start|>system\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n");
  EXPECT_EQ(chat.change_of(late), "");
  const ChatTemplate guarded(kFirstSystem, "", "");
  EXPECT_EQ(guarded.render(late, nullptr, false, nullptr), "<user>A<user>B<user>C");
  EXPECT_NE(guarded.change_of(late), "");
  EXPECT_EQ(guarded.change_of(JsonValue::parse(R"([{"role": "system", "content": "A"}])")), "");
}

// A late system message is passed in place, so the rendering of the messages before stays a prefix.
TEST(ChatTurns, ALaterSystemMessageKeepsThePrefix) {
  const ChatTemplate chat(kFirstSystem, "", "");
  JsonValue messages = JsonValue::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "A"}])");
  const std::string before = chat.render(messages, nullptr, false, nullptr);
  messages.push_back({{"role", "system"}, {"content", "late"}});
  EXPECT_TRUE(chat.render(messages, nullptr, false, nullptr).starts_with(before));
}

JsonValue called(const JsonValue& call_id, const JsonValue& result_id) {
  JsonValue call = {{"type", "function"}, {"function", {{"name", "now"}, {"arguments", {{"at", "needle1"}}}}}};
  JsonValue result = {{"role", "tool"}, {"name", "now"}, {"content", "needle2"}};
  if (!call_id.is_null()) call["id"] = call_id;
  if (!result_id.is_null()) result["tool_call_id"] = result_id;
  JsonValue messages = JsonValue::array({{{"role", "user"}, {"content", "Hi"}}});
  messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", JsonValue::array({call})}});
  messages.push_back(std::move(result));
  return messages;
}

TEST(ChatTurns, CallsHaveIdsThatTheTemplateTakes) {
  const JsonValue tools = JsonValue::parse(
      R"([{"type": "function", "function": {"name": "now", "description": "Tells the time.",
          "parameters": {"type": "object", "properties": {}, "required": []}}}])");
  const ChatTemplate mistral(kNineLetters, "", "");
  const auto shown = [&](const JsonValue& call, const JsonValue& result) {
    return mistral.render(called(call, result), tools, true, nullptr);
  };
  EXPECT_NE(shown("abcdefgh1", "abcdefgh1").find("[TOOL_RESULTS]needle2abcdefgh1"), std::string::npos);
  for (const char* id : {"call_0123456789abcdefghijklmn", "toolu_01A", "x", "functions.now:0"}) {
    const std::string text = shown(id, id);
    const std::string made = text.substr(text.find("needle2") + 7, 9);
    EXPECT_NE(text.find("}" + made + "[TOOL_RESULTS]"), std::string::npos) << text;
    EXPECT_EQ(text, shown(id, id)) << "the same id each time";
  }
  EXPECT_NE(shown(nullptr, nullptr).find("call00001[TOOL_RESULTS]needle2call00001"), std::string::npos);
  for (const auto& [name, chat] : all_templates()) {
    SCOPED_TRACE(name);
    for (const char* id : {"call_0123456789abcdefghijklmn", "abcdefgh1", ""}) {
      const JsonValue given = std::string(id).empty() ? JsonValue() : JsonValue(id);
      const std::string text = chat.render(called(given, given), tools, true, nullptr);
      for (const char* said : {"now", "needle1", "needle2"}) EXPECT_NE(text.find(said), std::string::npos) << text;
    }
  }
}

// The history of a family whose template does not show calls has calls in the family's own syntax.
TEST(ChatTurns, CallsBecomeTextInTheSyntaxOfTheFamily) {
  constexpr const char* kPlain =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}";
  const JsonValue tools = JsonValue::parse(R"([{"type": "function", "function": {"name": "now"}}])");
  JsonValue messages = called("call00001", "call00001");
  messages[1]["tool_calls"][0]["function"]["arguments"] =
      JsonValue::parse(R"({"s": "it's", "n": 1.5, "b": true, "l": [null, "x"], "o": {"k": false}})");
  const auto shown = [&](const char* marks) {
    const ChatTemplate chat(std::string("{#") + marks + "#}" + kPlain, "", "");
    return chat.render(messages, tools, true, nullptr);
  };
  EXPECT_NE(shown("<|tool_call_start|>")
                .find("<assistant><|tool_call_start|>[now(s=\"it's\", n=1.5, b=True, l=[None, "
                      "\"x\"], o={\"k\": False})]<|tool_call_end|><tool>needle2"),
            std::string::npos);
  EXPECT_NE(shown("<|start_of_role|><|tool_call|>")
                .find("<|tool_call|>[{\"name\": \"now\", \"arguments\": {\"s\": \"it's\", \"n\": 1.5, \"b\": true"),
            std::string::npos);
  EXPECT_NE(shown("<tool_call><function=<parameter=").find("<function=now>\n<parameter=s>\nit's\n</parameter>\n"),
            std::string::npos);
  EXPECT_NE(shown("<start_function_call>")
                .find("call:now{s:<escape>it's<escape>,n:1.5,b:true,l:[null,<escape>x<escape>],o:{k:false}}"),
            std::string::npos);
}

}  // namespace
}  // namespace ingot

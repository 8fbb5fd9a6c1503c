// The parser separates reasoning, content and calls, in each family's published format and in other model output.
#include <gtest/gtest.h>

#include <random>

#include "text/calls/calls_check.h"

namespace ingot {
namespace {

using testing::Answer;
using Json = nlohmann::ordered_json;

const Json& tools() {
  static const Json all = Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": ["string", "null"]},
      "id": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "when": {"type": "object"}, "ok": {"type": "boolean"},
      "unit": {"enum": ["C", "F"]}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}])");
  return all;
}

Answer read_answer(const char* format, std::string_view text, AnswerOptions options = {}) {
  options.tools = &tools();
  const CallFormat& row = *find_call_format(format);
  const Answer answer = testing::read_whole(row, text, options);
  EXPECT_EQ(answer.fault, "") << format << ": " << text;
  for (uint64_t seed = 0; seed < 8; ++seed)
    EXPECT_EQ(testing::described(testing::read_pieces(row, text, seed, options)), testing::described(answer))
        << format << ", pieces " << seed << ": " << text;
  return answer;
}

// The calls as `name {arguments}`, one per line. `...` follows a call that was cut.
std::string calls_of(const Answer& answer) {
  std::string text;
  for (const auto& call : answer.calls) text += call.name + " " + call.arguments + (call.whole ? "\n" : "...\n");
  return text;
}

struct Published {
  const char *format, *text, *reasoning, *content;
};

// Two calls in the published format of each family.
constexpr Published kPublished[] = {
    {"hermes",
     "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"Paris\"}}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     "", "I look."},
    {"hermes",
     "<tool_call>\n{\"arguments\": {\"city\": \"Paris\"}, \"name\": \"get_weather\"}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"now\"}\n</tool_call>\n",
     "", ""},
    {"hermes",
     "<tool_call>[{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Paris\\\"}\"}, "
     "{\"name\": \"now\", \"arguments\": null}]</tool_call>",
     "", ""},
    {"qwen3",
     "<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"Paris\"}}\n</tool_call>"
     "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     "Hm.\n", ""},
    {"qwen3_coder",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n"
     "<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "", ""},
    {"qwen3_coder",
     "<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\n</tool_call>\n<function=now></function>",
     "", ""},
    {"qwen3_5",
     "<think>\nHm.\n</think>\n\nOk.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
     "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "Hm.\n", "Ok."},
    {"nemotron3",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n"
     "<tool_call>\n<function=now>\n</function>\n</tool_call>\n",
     "", ""},
    {"llama3_json",
     "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}; {\"name\": \"now\", \"parameters\": {}}", "",
     ""},
    {"llama3_json",
     "<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}};"
     "{\"name\": \"now\", \"parameters\": {}}",
     "", ""},
    {"llama3_pythonic", "[get_weather(city='Paris'), now()]", "", ""},
    {"llama4", "[get_weather(city=\"Paris\"), now()]", "", ""},
    {"llama4", "<|python_start|>[get_weather(city=\"Paris\"), now()]<|python_end|>", "", ""},
    {"gemma3", "[get_weather(city=\"Paris\"), now()]", "", ""},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", "
     "\"arguments\": {}}]",
     "", ""},
    {"mistral",
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \"abcdefghi\"}, "
     "{\"name\": \"now\", \"arguments\": {}, \"id\": \"jklmnopqr\"}]",
     "", ""},
    {"mistral_args",
     "[THINK]Hm.[/THINK]I look.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[ARGS]{}", "Hm.",
     "I look."},
    {"mistral_args", "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now{}", "", ""},
    {"gpt_oss",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
     "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": "
     "\"Paris\"}"
     "<|call|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
     "Hm.", "I look."},
    {"gpt_oss",
     " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Paris\"}<|call|>"
     "<|start|>assistant to=functions.now<|channel|>analysis<|message|><|call|>",
     "", ""},
    {"deepseek_v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     "", ""},
    {"deepseek_v3_1",
     "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
     "\"Paris\"}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "", "I look."},
    {"deepseek_v3_2",
     "I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
     "string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
     "name=\"now\">\n\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>",
     "", "I look."},
    {"deepseek_v4",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
     "string=\"true\">Paris"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "", ""},
    {"glm",
     "\n<think>Hm.</think>\nI "
     "look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
     "\n<tool_call>now\n</tool_call>",
     "Hm.", "I look."},
    {"glm",
     "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call><tool_call>now</tool_call>",
     "", ""},
    {"ling3",
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call><tool_call>now</"
     "tool_call>",
     "", ""},
    {"kimi_k2",
     "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
     "{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "", "I look."},
    {"kimi_k2",
     "<think>Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
     "{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>now<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "Hm.", ""},
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</invoke>\n"
     "<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
     "", ""},
    {"seed_oss",
     "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</"
     "function>\n"
     "</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
     "Hm.", ""},
    {"gemma4",
     "<|channel>thought\nHm.<channel|>I "
     "look.<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|><|tool_call>"
     "call:now{}<tool_call|>",
     "Hm.", "I look."},
    {"functiongemma",
     "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call><start_function_call>"
     "call:now{}<end_function_call>",
     "", ""},
    {"lfm2", "<|tool_call_start|>[get_weather(city=\"Paris\"), now()]<|tool_call_end|>I look.", "", "I look."},
    {"lfm2",
     "<|tool_call_start|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", "
     "\"arguments\": "
     "{}}]<|tool_call_end|>",
     "", ""},
    {"olmo3", "<function_calls>\nget_weather(city='Paris')\nnow()\n</function_calls>", "", ""},
    {"command_r7b",
     "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
     "\"get_weather\", "
     "\"parameters\": {\"city\": \"Paris\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": "
     "{}}\n]"
     "<|END_ACTION|>",
     "Hm.", ""},
    {"phi4_mini",
     "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", "
     "\"arguments\": {}}]"
     "<|/tool_call|>",
     "", ""},
    {"phi4_mini",
     "<|tool_call|>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}<|/tool_call|>"
     "<|tool_call|>{\"name\": \"now\", \"arguments\": {}}<|/tool_call|>",
     "", ""},
    {"phi4_functools",
     "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": "
     "{}}]",
     "", ""},
    {"nemotron_v2",
     "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": "
     "{}}]"
     "</TOOLCALL>",
     "", ""},
    {"granite3",
     "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", "
     "\"arguments\": {}}]",
     "", ""},
    {"granite4",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     "", ""},
    {"ernie4_5",
     "Hm.\n</think>\n\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
     "Hm.\n", ""},
};

TEST(AnswerParser, ReadsWhatEachFamilyPublishes) {
  for (const Published& c : kPublished) {
    SCOPED_TRACE(std::string(c.format) + ": " + c.text);
    const bool in_reasoning = std::string_view(c.text).find("</think>") < std::string_view(c.text).find("<think>");
    const Answer answer = read_answer(c.format, c.text, {.in_reasoning = in_reasoning});
    EXPECT_EQ(answer.reasoning, c.reasoning);
    EXPECT_EQ(answer.content, c.content);
    EXPECT_EQ(calls_of(answer), "get_weather {\"city\": \"Paris\"}\nnow {}\n");
    EXPECT_TRUE(answer.warnings.empty()) << testing::described(answer);
  }
}

TEST(AnswerParser, ReadsAnAnswerWithoutCalls) {
  for (const CallFormat& row : call_formats()) {
    const std::string name(row.name);
    EXPECT_EQ(read_answer(name.c_str(), "Hello <b>you</b> [1] {x}\n").content, "Hello <b>you</b> [1] {x}\n") << name;
    EXPECT_EQ(read_answer(name.c_str(), "").content, "");
    const Answer thought = read_answer(name.c_str(), fmt::format("{}Hm.{}{}Hello{}", row.think_begin, row.think_end,
                                                                 row.answer_begin, row.answer_end));
    EXPECT_EQ(thought.reasoning, "Hm.") << name;
    EXPECT_EQ(thought.content, "Hello") << name;
    EXPECT_TRUE(thought.warnings.empty()) << name;
  }
}

struct Thought {
  const char* text;
  bool in_reasoning;
  const char *reasoning, *content;
};

TEST(AnswerParser, TellsReasoningFromContent) {
  constexpr Thought kCases[] = {
      {"Hello", false, "", "Hello"},
      {"", false, "", ""},
      {"  \n", false, "", "  \n"},
      {"<think>a b</think>\n\nHello", false, "a b", "Hello"},
      {"\n<think>\na\n</think>Hello</think>", false, "a\n", "Hello</think>"},
      {"<think></think>Hi", false, "", "Hi"},
      {"<think>never ends", false, "never ends", ""},
      {"<think>ends in </thin", false, "ends in </thin", ""},
      {"<thing>", false, "", "<thing>"},
      {"<thi", false, "", "<thi"},
      {"a <think>b</think>", false, "", "a <think>b</think>"},
      {"b</think> c", true, "b", "c"},
      {"\n\nb</think> c", true, "b", "c"},
      {"<think>b</think>", true, "<think>b", ""},
      {"<<think>", false, "", "<<think>"},
      {"<think>x<</think>>y", false, "x<", ">y"},
  };
  for (const char* format : {"plain", "hermes", "generic", "qwen3_coder"}) {
    for (const Thought& c : kCases) {
      const Answer answer = read_answer(format, c.text, {.in_reasoning = c.in_reasoning});
      EXPECT_EQ(answer.reasoning, c.reasoning) << c.text;
      EXPECT_EQ(answer.content, c.content) << c.text;
    }
  }
}

TEST(AnswerParser, ACallWithinReasoningIsReasoning) {
  const char* text =
      "<think>I write <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call> then.</think>Done";
  const Answer answer = read_answer("hermes", text);
  EXPECT_EQ(answer.reasoning, "I write <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call> then.");
  EXPECT_EQ(answer.content, "Done");
  EXPECT_TRUE(answer.calls.empty());
}

TEST(AnswerParser, DropsADoubledClosingTag) {
  const Answer answer =
      read_answer("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call></tool_call>\n");
  EXPECT_EQ(calls_of(answer), "now {}\n");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.warnings, std::vector<std::string>{"</tool_call> has no opening marker"});
}

TEST(AnswerParser, KeepsABraceTooMuchAsContent) {
  const Answer answer = read_answer("hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}}\n</tool_call>");
  EXPECT_EQ(calls_of(answer), "now {}\n");
  EXPECT_EQ(answer.content, "}");
}

TEST(AnswerParser, DropsAHeaderThatTheModelRepeats) {
  Answer answer = read_answer(
      "llama3_json", "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"now\", \"parameters\": {}}");
  EXPECT_EQ(calls_of(answer), "now {}\n");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.warnings.size(), 1u);
  answer = read_answer("gpt_oss", "<|start|>assistant<|start|>assistant<|channel|>final<|message|>Hi<|return|><|end|>");
  EXPECT_EQ(answer.content, "Hi");
  EXPECT_EQ(answer.warnings, std::vector<std::string>{"<|end|> has no opening marker"});
  answer = read_answer("gpt_oss", "<|channel|>final<|message|><|channel|>final<|message|>Hi");
  EXPECT_EQ(answer.content, "Hi");
  EXPECT_EQ(read_answer("gpt_oss", "Hi there").content, "Hi there");
  EXPECT_EQ(read_answer("gpt_oss", "today").content, "today");
}

TEST(AnswerParser, ACallCutByMaxTokensIsWhatThereWas) {
  Answer answer = read_answer("hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par");
  EXPECT_EQ(calls_of(answer), "get_weather {\"city\": \"Par...\n");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.warnings, std::vector<std::string>{"the answer ends within a call"});
  answer = read_answer("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar</para");
  EXPECT_EQ(calls_of(answer), "get_weather {\"city\": \"Par</para...\n");
  answer = read_answer("llama4", "[get_weather(city='Par");
  EXPECT_EQ(calls_of(answer), "get_weather {\"city\": \"Par...\n");
  answer = read_answer("gemma4", "<|tool_call>call:get_weather{city:<|\"|>Par");
  EXPECT_EQ(calls_of(answer), "get_weather {\"city\": \"Par...\n");
  // A call that is cut before its arguments is content.
  answer = read_answer("hermes", "Ok <tool_call>\n{\"name\": \"get_wea");
  EXPECT_EQ(answer.content, "Ok <tool_call>\n{\"name\": \"get_wea");
  EXPECT_EQ(answer.warnings.size(), 1u);
  // A call with whole arguments is whole, even if the rest is cut.
  answer = read_answer("hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}");
  EXPECT_EQ(calls_of(answer), "now {}\n");
  EXPECT_TRUE(answer.warnings.empty());
}

TEST(AnswerParser, WhatIsNoCallIsContentByteForByte) {
  for (const auto& [format, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"hermes", "Use <tool_call> to call."},
           {"hermes", "<tool_call>\n{\"name\": 5}\n</tool_call>"},
           {"hermes", "<tool_call>\n{\"arguments\": {\"a\": 1}}\n</tool_call>"},
           {"hermes", "<tool_call></tool_call>"},
           {"hermes", "\n <tool_call>{name: now}</tool_call>"},
           {"hermes", "</tool_call> alone"},
           {"mistral", "[TOOL_CALLS] nothing"},
           {"deepseek_v3_1", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"},
           {"qwen3_coder", "<function= >"},
           {"glm", "<tool_call>two words</tool_call>"},
           {"gemma4", "<|tool_call>now<tool_call|>"},
           {"gpt_oss", "<|channel|>final"},
       }) {
    const Answer answer = read_answer(format, text);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_EQ(answer.warnings.empty(), std::string_view(text).starts_with("</")) << text;
  }
}

TEST(AnswerParser, ADoubledOpeningTagStillOpens) {
  const Answer answer =
      read_answer("hermes", "<tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(calls_of(answer), "now {}\n");
  EXPECT_EQ(answer.content, "<tool_call>\n");
}

TEST(AnswerParser, AnUnmarkedCallIsOfAKnownFunction) {
  for (const char* text : {R"({"name": "Ann", "parameters": {"a": 1}})", R"({"name": "Ann"})", R"({"city": "Paris"})",
                           "{}", "{ x", R"(Call {"name": "now", "parameters": {}})"}) {
    const Answer answer = read_answer("llama3_json", text);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_TRUE(answer.warnings.empty()) << text;
  }
  for (const char* text : {"[1, 2]", "[see](http://x)", "[now](http://x)", "[Ann(a=1)]", "[]", "[now"}) {
    EXPECT_EQ(read_answer("llama4", text).content, text);
    EXPECT_TRUE(read_answer("llama4", text).warnings.empty()) << text;
  }
}

TEST(AnswerParser, KeepsTextBetweenCalls) {
  const Answer answer =
      read_answer("hermes",
                  "One.\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\nTwo. \n\n<tool_call>"
                  "{\"name\": \"now\", \"arguments\": {}}</tool_call>\nThree.\n");
  EXPECT_EQ(calls_of(answer), "now {}\nnow {}\n");
  EXPECT_EQ(answer.content, "One.\nTwo.\nThree.\n");
}

TEST(AnswerParser, PassesJsonArgumentsByteForByte) {
  const std::string arguments =
      R"({"city" :"\u00e9 \"日本\" \\ \/ 🙂","days":[ 1.50, -0e+5 ],  "x": {"}": "</tool_call>"}})";
  EXPECT_EQ(calls_of(read_answer(
                "hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": " + arguments + "}</tool_call>")),
            "get_weather " + arguments + "\n");
  EXPECT_EQ(calls_of(read_answer(
                "hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\nb\"}}</tool_call>")),
            "get_weather {\"city\": \"a\\nb\"}\n");
}

std::string tagged(std::string_view key, std::string_view value) {
  return fmt::format("<tool_call>\n<function=get_weather>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>",
                     key, value);
}

TEST(AnswerParser, TaggedValuesFollowTheSchema) {
  const std::tuple<const char*, const char*, const char*> kCases[] = {
      {"city", "75001", "\"75001\""},
      {"city", "true", "\"true\""},
      {"city", "\"a\"\n\\ <b>\n", "\"\\\"a\\\"\\n\\\\ <b>\\n\""},
      {"city", "", "\"\""},
      {"days", "3", "3"},
      {"days", " 3.0 ", "3.0"},
      {"days", "three", "\"three\""},
      {"days", "null", "null"},
      {"ok", "True", "true"},
      {"when", "{\"a\": [1]}", "{\"a\": [1]}"},
      {"when", "{'a': None}", "{\"a\": null}"},
      {"note", "null", "null"},
      {"note", "nullify", "\"nullify\""},
      {"note", "5", "\"5\""},
      {"id", "5", "5"},
      {"id", "a5", "\"a5\""},
      {"unit", "C", "\"C\""},
      {"other", "5", "\"5\""},
  };
  for (const auto& [key, value, json] : kCases)
    EXPECT_EQ(calls_of(read_answer("qwen3_coder", tagged(key, value))),
              fmt::format("get_weather {{\"{}\": {}}}\n", key, json));
  EXPECT_EQ(calls_of(read_answer(
                "glm", "<tool_call>get_weather\n<arg_key>other</arg_key>\n<arg_value>5</arg_value>\n</tool_call>")),
            "get_weather {\"other\": 5}\n");
  EXPECT_EQ(calls_of(read_answer(
                "glm", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>\n5\n</arg_value>\n</tool_call>")),
            "get_weather {\"city\": \"\\n5\\n\"}\n");
  EXPECT_EQ(calls_of(read_answer(
                "deepseek_v4",
                "<｜DSML｜invoke name=\"x\">\n<｜DSML｜parameter name=\"a\" string=\"false\">[1]</｜DSML｜parameter>"
                "<｜DSML｜parameter name=\"b\" string=\"true\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>")),
            "x {\"a\": [1], \"b\": \"[1]\"}\n");
  EXPECT_EQ(calls_of(read_answer("deepseek_v4",
                                 "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"x\">\n{\"a\": 1}\n</｜DSML｜invoke>\n"
                                 "</｜DSML｜tool_calls>")),
            "x {\"a\": 1}\n");
}

TEST(AnswerParser, StreamsStringsAsTheyAreWritten) {
  AnswerParser parser(*find_call_format("qwen3_coder"), {.tools = &tools()});
  AnswerEvents events;
  parser.feed("<tool_call>\n<function=get_weather>\n<parameter=city>\nPar", events);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().text, "Par");
  events.clear();
  parser.feed("is\n", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, AnswerEvent::Kind::kCallArguments);
  EXPECT_EQ(events[0].text, "is");
}

TEST(AnswerParser, BrokenArgumentsEndTheCallAndGoOnAsContent) {
  Answer answer =
      read_answer("hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": Paris}}</tool_call> x");
  EXPECT_EQ(calls_of(answer), "get_weather {\"city\": ...\n");
  EXPECT_EQ(answer.content, "Paris}}</tool_call> x");
  EXPECT_EQ(answer.warnings.size(), 1u);
  // A closing tag before other text is part of the value.
  answer = read_answer(
      "qwen3_coder",
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\noops</function></tool_call>");
  EXPECT_EQ(calls_of(answer), "get_weather {\"city\": \"Paris\\n</parameter>\\noops\"}\n");
  EXPECT_EQ(answer.content, "");
}

TEST(AnswerParser, MakesIdsAsTheFamilyDoes) {
  const auto id_of = [](const char* format, const char* text, uint64_t seed) {
    return read_answer(format, text, {.id_seed = seed}).calls.at(0).id;
  };
  const char* hermes = "<tool_call>{\"name\": \"now\"}</tool_call>";
  EXPECT_EQ(id_of("hermes", hermes, 1).size(), 29u);
  EXPECT_TRUE(id_of("hermes", hermes, 1).starts_with("call_"));
  EXPECT_NE(id_of("hermes", hermes, 1), id_of("hermes", hermes, 2));
  EXPECT_EQ(id_of("mistral_args", "[TOOL_CALLS]now[ARGS]{}", 1).size(), 9u);
  EXPECT_EQ(id_of("mistral_args", "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", 1), "abcdefghi");
  EXPECT_EQ(id_of("mistral_args", "[TOOL_CALLS]now[CALL_ID]abc[ARGS]{}", 1).size(), 9u);
  EXPECT_EQ(id_of("kimi_k2", "<|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}", 1), "functions.now:7");
  EXPECT_EQ(id_of("kimi_k2", "<|tool_call_begin|>now<|tool_call_argument_begin|>{}", 1), "functions.now:0");
}

TEST(AnswerParser, LooksForNoCallsWhereThereAreNoTools) {
  for (const auto& [format, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"},
           {"llama3_json", "{\"name\": \"now\", \"parameters\": {}}"},
           {"gpt_oss", "<|channel|>commentary to=functions.now<|message|>{}"}})
    EXPECT_EQ(read_answer(format, text, {.calls = false}).content, text);
}

TEST(AnswerParser, ReadsLongHostileTexts) {
  for (const char* part : {"<tool_call>", "<tool_call>{\"arguments\": {\"a\": \"", "<", " \n",
                           "<tool_call>{\"name\": \"now\"}", "[", "{"}) {
    std::string text;
    while (text.size() < 200'000) text += part;
    for (const char* format : {"hermes", "qwen3_coder", "llama4", "gpt_oss"})
      EXPECT_EQ(testing::read_whole(*find_call_format(format), text).fault, "") << format << part;
  }
}

}  // namespace
}  // namespace ingot

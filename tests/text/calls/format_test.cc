// The rows of formats: a template selects the right row, and the parser reads forced calls as the row describes them.
#include <gtest/gtest.h>

#include <set>

#include "text/calls/calls_check.h"

namespace ingot {
namespace {

using testing::Answer;

TEST(CallFormat, NamesAreUniqueAndFound) {
  std::set<std::string_view> seen;
  for (const std::string_view name : call_format_names()) {
    EXPECT_TRUE(seen.insert(name).second) << name;
    ASSERT_NE(find_call_format(name), nullptr);
    EXPECT_EQ(find_call_format(name)->name, name);
  }
  EXPECT_EQ(find_call_format("no such"), nullptr);
  EXPECT_EQ(seen.size(), call_formats().size());
}

// Text from the published templates of each family.
TEST(CallFormat, IsFoundByItsTemplate) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{{ '<|start|>assistant<|channel|>final<|message|>' }}", "gpt_oss"},
      {"{%- set dsml_token = '｜DSML｜' -%}<{{ dsml_token }}function_calls>", "deepseek_v3_2"},
      {"<｜DSML｜tool_calls>", "deepseek_v4"},
      {"'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '\\n' + '```json'", "deepseek_v3"},
      {"'<｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁sep｜>'", "deepseek_v3_1"},
      {"<|im_assistant|>assistant<|im_middle|>", "kimi_k2"},
      {"{%- set toolcall_begin_token = '<minimax:tool_call>' -%}", "minimax_m2"},
      {"<seed:tool_call>\n<function=x>\n<parameter=y>", "seed_oss"},
      {"<tool_call>\n<function=x>\n<parameter=y>", "qwen3_coder"},
      {"{%- set truncate_history_thinking = 1 %}<tool_call>\n<function=x>\n<parameter=y>", "nemotron3"},
      {"<tool_call>{name}\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>", "glm"},
      {"<role>ASSISTANT</role><tool_call>{name}\n<arg_key>k</arg_key><arg_value>", "ling3"},
      {"'<|tool_call>call:' + function['name'] + '{'", "gemma4"},
      {"<start_function_call>call:", "functiongemma"},
      {"<|tool_list_start|>[", "lfm2"},
      {"\"<|tool_call_start|>[\"", "lfm2"},
      {"<function_calls>\nget_weather(city='x')", "olmo3"},
      {"<|START_THINKING|> <|START_ACTION|>[", "command_r7b"},
      {"[TOOL_CALLS]' + name + '[ARGS]'", "mistral_args"},
      {"{{- \"[TOOL_CALLS][\" }}", "mistral"},
      {"<TOOLCALL>[", "nemotron_v2"},
      {"'<|tool|>' + message['tools'] + '<|/tool|>'", "phi4_mini"},
      {"prefix function calls with functools[", "phi4_functools"},
      {"<|start_of_role|>system respond only with <|tool_call|> followed by a JSON list", "granite3"},
      {"<|start_of_role|>assistant<|end_of_role|><tool_call>\n{\"name\"", "granite4"},
      {"<role>SYSTEM</role><tool_call>\n{\"name\"", "ling"},
      {"<tool_call>\n{\"name\" <response>", "ernie4_5"},
      {"named SmolLM <tool_call>", "smollm3"},
      {"<tool_call> </think>", "qwen3"},
      {"You are Qwen, <tool_call>", "qwen2_5"},
      {"{\"name\": 1, \"arguments\": 2} in <tool_call>", "hermes"},
      {"<tool_call>", "generic"},
      {"<|header_start|>assistant<|header_end|>", "llama4"},
      {"<|start_header_id|> [func_name1(params_name1=1)]", "llama3_pythonic"},
      {"<|start_header_id|> '\"parameters\": '", "llama3_json"},
      {"<start_of_turn>model [func_name1(params_name1=1)]", "gemma3"},
      {"<start_of_turn>model", "plain"},
      {"", "plain"},
  };
  for (const auto& [source, name] : kCases) EXPECT_EQ(call_format_of_template(source).name, name) << source;
}

// Arguments {"city": "Paris", "n": 2} in the syntax of a row.
std::string arguments_of(const CallFormat& row) {
  switch (row.syntax) {
    case CallSyntax::kTagged: return row.parameter_text("city", "Paris", true) + row.parameter_text("n", "2", false);
    case CallSyntax::kPython: return "city='Paris', n=2";
    case CallSyntax::kGemma: return fmt::format("{{city:{0}Paris{0},n:2}}", row.string_mark);
    default: return R"({"city": "Paris", "n": 2})";
  }
}

TEST(CallFormat, WhatIsForcedIsParsed) {
  const auto tools = nlohmann::ordered_json::parse(R"([
      {"function": {"name": "get_weather",
                    "parameters": {"properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}}},
      {"function": {"name": "now"}}])");
  for (const CallFormat& row : call_formats()) {
    if (row.syntax == CallSyntax::kNone) continue;
    SCOPED_TRACE(row.name);
    const std::string empty = row.syntax == CallSyntax::kTagged || row.syntax == CallSyntax::kPython ? "" : "{}";
    const std::string text = row.begin_text("get_weather") + arguments_of(row) + row.next_text("now", 1) + empty +
                             row.next_text("get_weather", 2) + arguments_of(row) + row.end_text();
    const Answer answer = testing::read_whole(row, text, {.tools = &tools});
    EXPECT_EQ(answer.content, "") << text;
    EXPECT_EQ(answer.fault, "");
    EXPECT_TRUE(answer.warnings.empty()) << testing::described(answer);
    ASSERT_EQ(answer.calls.size(), 3u) << text;
    for (const int i : {0, 2}) {
      EXPECT_EQ(answer.calls[i].name, "get_weather");
      EXPECT_EQ(answer.calls[i].arguments, R"({"city": "Paris", "n": 2})");
      EXPECT_TRUE(answer.calls[i].whole);
    }
    EXPECT_EQ(answer.calls[1].name, "now");
    EXPECT_EQ(answer.calls[1].arguments, "{}");
    if (row.ids == CallIds::kNamed) {
      EXPECT_EQ(answer.calls[2].id, "functions.get_weather:2");
    }
  }
}

TEST(CallFormat, SeesWhereAPromptOpensReasoning) {
  const CallFormat& hermes = *find_call_format("hermes");
  EXPECT_TRUE(opens_reasoning(hermes, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(opens_reasoning(hermes, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_reasoning(hermes, ""));
  EXPECT_TRUE(opens_reasoning(*find_call_format("seed_oss"), "assistant\n<seed:think>"));
  EXPECT_TRUE(opens_reasoning(*find_call_format("gpt_oss"), "<|start|>assistant<|channel|>analysis<|message|>"));
}

}  // namespace
}  // namespace ingot

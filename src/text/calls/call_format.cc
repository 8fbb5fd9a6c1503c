#include "text/calls/call_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "text/calls/value_reader.h"

namespace ingot {
namespace {

using enum CallSyntax;

// The format of Hermes 2 Pro, which most models have copied.
constexpr CallFormat kHermes = {
    .name = "hermes",
    .template_marks = {"<tool_call>", "\"arguments\""},
    .syntax = kEnvelope,
    .header = "<|im_start|>assistant\n",
    .separator = "\n",
    .call_begin = "<tool_call>\n",
    .call_end = "\n</tool_call>",
};

// The format that generic_tools.h describes to the model in words: without line breaks.
constexpr CallFormat generic(CallFormat row) {
  row.name = "generic";
  row.template_marks = {"<tool_call>"};
  row.call_begin = "<tool_call>";
  row.call_end = "</tool_call>";
  return row;
}

constexpr CallFormat kQwenXml = {
    .name = "qwen3_coder",
    .template_marks = {"<tool_call>", "<function=", "<parameter="},
    .syntax = kTagged,
    .header = "<|im_start|>assistant\n",
    .separator = "\n",
    .call_begin = "<tool_call>\n",
    .call_end = "\n</tool_call>",
    .name_begin = "<function=",
    .name_end = ">\n",
    .args_end = "</function>",
    .param_begin = "<parameter=",
    .key_end = ">\n",
    .param_end = "\n</parameter>\n",
    .bare_name = true,
    .trims_value = true,
};

constexpr CallFormat kLlama3 = {
    .name = "llama3_json",
    .template_marks = {"<|start_header_id|>", "\"parameters\": "},
    .syntax = kEnvelope,
    .header = "<|start_header_id|>assistant<|end_header_id|>\n\n",
    .separator = "; ",
    .args_key = "parameters",
    .other_begin = "<|python_tag|>",
    .keeps_special = true,
    .unmarked = true,
};

constexpr CallFormat kLlama3Pythonic = {
    .name = "llama3_pythonic",
    .template_marks = {"<|start_header_id|>", "[func_name1("},
    .syntax = kPython,
    .header = "<|start_header_id|>assistant<|end_header_id|>\n\n",
    .separator = ", ",
    .other_begin = "<|python_start|>",
    .other_end = "<|python_end|>",
    .array = true,
    .keeps_special = true,
    .unmarked = true,
};

constexpr CallFormat kDsml = {
    .name = "deepseek_v3_2",
    .template_marks = {"｜DSML｜", "function_calls>"},
    .syntax = kTagged,
    .list_begin = "<｜DSML｜function_calls>\n",
    .list_end = "\n</｜DSML｜function_calls>",
    .separator = "\n",
    .call_begin = "<｜DSML｜invoke name=\"",
    .call_end = "\n</｜DSML｜invoke>",
    .name_end = "\">\n",
    .param_begin = "<｜DSML｜parameter name=\"",
    .key_end = "\" string=\"",
    .value_begin = "false\">",
    .string_begin = "true\">",
    .param_end = "</｜DSML｜parameter>",
    .keeps_special = true,
};

constexpr CallFormat kMistral = {
    .name = "mistral",
    .template_marks = {"[TOOL_CALLS]"},
    .syntax = kEnvelope,
    .ids = CallIds::kNine,
    .think_begin = "[THINK]",
    .think_end = "[/THINK]",
    .list_begin = "[TOOL_CALLS]",
    .separator = ", ",
    .name_end = "[ARGS]",  // newer models write NAME[ARGS]{...}
    .array = true,
    .keeps_special = true,
};

constexpr CallFormat kGlm = {
    .name = "glm",
    .template_marks = {"<tool_call>", "<arg_key>", "<arg_value>"},
    .syntax = kTagged,
    .header = "<|assistant|>\n",
    .separator = "\n",
    .call_begin = "<tool_call>",
    .call_end = "</tool_call>",
    .name_end = "\n",
    .param_begin = "<arg_key>",
    .key_end = "</arg_key>\n",
    .value_begin = "<arg_value>",
    .param_end = "</arg_value>\n",
    .keeps_special = true,
    .untyped_is_json = true,
};

// The same format for another family.
constexpr CallFormat as(CallFormat row, std::string_view name, std::array<std::string_view, 3> template_marks) {
  row.name = name;
  row.template_marks = template_marks;
  return row;
}

constexpr CallFormat with_list(CallFormat row, std::string_view list_begin, std::string_view list_end) {
  row.list_begin = list_begin;
  row.list_end = list_end;
  return row;
}

constexpr CallFormat with_answer(CallFormat row, std::string_view answer_begin, std::string_view answer_end) {
  row.answer_begin = answer_begin;
  row.answer_end = answer_end;
  return row;
}

// The first row that fits a template is used, so specific rows come first. A row without marks never fits.
constexpr CallFormat kRows[] = {
    {.name = "gpt_oss",
     .template_marks = {"<|channel|>", "<|message|>"},
     .syntax = kChannel,
     .think_begin = "<|channel|>analysis<|message|>",
     .think_end = "<|end|>",
     .header = "<|start|>assistant",
     .answer_begin = "<|channel|>final<|message|>",
     .answer_end = "<|return|>",
     .separator = "<|start|>assistant",
     .call_begin = "<|channel|>commentary to=functions.",
     .call_end = "<|call|>",
     .name_end = " <|constrain|>json<|message|>",
     .keeps_special = true},
    as(kDsml, "deepseek_v3_2", {"｜DSML｜", "function_calls>"}),
    with_list(as(kDsml, "deepseek_v4", {"｜DSML｜"}), "<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>"),
    {.name = "deepseek_v3",
     .template_marks = {"<｜tool▁call▁begin｜>", "```json"},
     .syntax = kNamed,
     .list_begin = "<｜tool▁calls▁begin｜>",
     .list_end = "<｜tool▁calls▁end｜>",
     .separator = "\n",
     .call_begin = "<｜tool▁call▁begin｜>",
     .call_end = "<｜tool▁call▁end｜>",
     .name_begin = "function<｜tool▁sep｜>",
     .name_end = "\n```json\n",
     .args_end = "\n```",
     .keeps_special = true},
    {.name = "deepseek_v3_1",
     .template_marks = {"<｜tool▁call▁begin｜>"},
     .syntax = kNamed,
     .list_begin = "<｜tool▁calls▁begin｜>",
     .list_end = "<｜tool▁calls▁end｜>",
     .call_begin = "<｜tool▁call▁begin｜>",
     .call_end = "<｜tool▁call▁end｜>",
     .name_end = "<｜tool▁sep｜>",
     .keeps_special = true},
    {.name = "kimi_k2",
     .template_marks = {"<|im_middle|>"},
     .syntax = kNamed,
     .ids = CallIds::kNamed,
     .list_begin = "<|tool_calls_section_begin|>",
     .list_end = "<|tool_calls_section_end|>",
     .call_begin = "<|tool_call_begin|>",
     .call_end = "<|tool_call_end|>",
     .name_end = "<|tool_call_argument_begin|>",
     .keeps_special = true,
     .call_ends_reasoning = true},
    {.name = "minimax_m2",
     .template_marks = {"<minimax:tool_call>"},
     .syntax = kTagged,
     .list_begin = "<minimax:tool_call>\n",
     .list_end = "\n</minimax:tool_call>",
     .separator = "\n",
     .call_begin = "<invoke name=\"",
     .call_end = "</invoke>",
     .name_end = "\">\n",
     .param_begin = "<parameter name=\"",
     .key_end = "\">",
     .param_end = "</parameter>\n",
     .keeps_special = true,
     .trims_value = true},
    {.name = "seed_oss",
     .template_marks = {"<seed:tool_call>"},
     .syntax = kTagged,
     .think_begin = "<seed:think>",
     .think_end = "</seed:think>",
     .separator = "\n",
     .call_begin = "<seed:tool_call>\n",
     .call_end = "\n</seed:tool_call>",
     .name_begin = "<function=",
     .name_end = ">\n",
     .args_end = "</function>",
     .param_begin = "<parameter=",
     .key_end = ">",
     .param_end = "</parameter>\n",
     .keeps_special = true,
     .trims_value = true},
    as(kQwenXml, "nemotron3", {"<function=", "<parameter=", "truncate_history_thinking"}),
    as(kQwenXml, "qwen3_coder", {"<tool_call>", "<function=", "<parameter="}),
    as(kQwenXml, "qwen3_5", {}),
    as(kGlm, "ling3", {"<arg_key>", "<arg_value>", "<role>"}),
    as(kGlm, "glm", {"<tool_call>", "<arg_key>", "<arg_value>"}),
    {.name = "gemma4",
     .template_marks = {"<|tool_call>"},
     .syntax = kGemma,
     .think_begin = "<|channel>thought\n",
     .think_end = "<channel|>",
     .header = "<|turn>model\n",
     .call_begin = "<|tool_call>",
     .call_end = "<tool_call|>",
     .name_begin = "call:",
     .string_mark = "<|\"|>",
     .keeps_special = true,
     .call_ends_reasoning = true},
    {.name = "functiongemma",
     .template_marks = {"<start_function_call>"},
     .syntax = kGemma,
     .header = "<start_of_turn>model\n",
     .call_begin = "<start_function_call>",
     .call_end = "<end_function_call>",
     .name_begin = "call:",
     .string_mark = "<escape>",
     .keeps_special = true},
    {.name = "olmo3",
     .template_marks = {"<function_calls>"},
     .syntax = kPython,
     .header = "<|im_start|>assistant\n",
     .list_begin = "<function_calls>\n",
     .list_end = "\n</function_calls>",
     .separator = "\n"},
    {.name = "command_r7b",
     .template_marks = {"<|START_ACTION|>"},
     .syntax = kEnvelope,
     .think_begin = "<|START_THINKING|>",
     .think_end = "<|END_THINKING|>",
     .header = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
     .answer_begin = "<|START_RESPONSE|>",
     .answer_end = "<|END_RESPONSE|>",
     .list_begin = "<|START_ACTION|>",
     .list_end = "<|END_ACTION|>",
     .separator = ",\n",
     .name_key = "tool_name",
     .args_key = "parameters",
     .index_key = "tool_call_id",
     .array = true,
     .keeps_special = true},
    {.name = "mistral_args",
     .template_marks = {"[TOOL_CALLS]", "[ARGS]"},
     .syntax = kNamed,
     .ids = CallIds::kNine,
     .think_begin = "[THINK]",
     .think_end = "[/THINK]",
     .call_begin = "[TOOL_CALLS]",
     .id_begin = "[CALL_ID]",
     .name_end = "[ARGS]",
     .keeps_special = true},
    kMistral,
    {.name = "nemotron_v2",
     .template_marks = {"<TOOLCALL>"},
     .syntax = kEnvelope,
     .list_begin = "<TOOLCALL>",
     .list_end = "</TOOLCALL>",
     .separator = ", ",
     .array = true},
    {.name = "phi4_mini",
     .template_marks = {"<|/tool|>"},
     .syntax = kEnvelope,
     .header = "<|assistant|>",
     .list_begin = "<|tool_call|>",
     .list_end = "<|/tool_call|>",
     .separator = ", ",
     .array = true,
     .keeps_special = true},
    {.name = "phi4_functools",
     .template_marks = {"functools["},
     .syntax = kEnvelope,
     .header = "<|assistant|>",
     .list_begin = "functools[",
     .list_end = "]",
     .separator = ", "},
    with_answer({.name = "granite3",
                 .template_marks = {"<|start_of_role|>", "<|tool_call|>"},
                 .syntax = kEnvelope,
                 .header = "<|start_of_role|>assistant<|end_of_role|>",
                 .list_begin = "<|tool_call|>",
                 .separator = ", ",
                 .array = true,
                 .keeps_special = true},
                "<response>", "</response>"),
    {.name = "lfm2",
     .template_marks = {"<|tool_", "_start|>"},  // LFM2 has <|tool_list_start|>, LFM2.5 <|tool_call_start|>
     .syntax = kPython,
     .header = "<|im_start|>assistant\n",
     .list_begin = "<|tool_call_start|>",
     .list_end = "<|tool_call_end|>",
     .separator = ", ",
     .array = true,
     .keeps_special = true},
    as(kHermes, "granite4", {"<|start_of_role|>", "<tool_call>"}),
    as(kHermes, "ling", {"<role>", "<tool_call>"}),
    with_answer(as(kHermes, "ernie4_5", {"<response>", "<tool_call>"}), "<response>", "</response>"),
    as(kHermes, "smollm3", {"SmolLM", "<tool_call>"}),
    as(kHermes, "qwen3", {"<tool_call>", "</think>"}),
    as(kHermes, "qwen2_5", {"<tool_call>", "You are Qwen"}),
    as(kHermes, "hermes", {"<tool_call>", "\"arguments\""}),
    generic(kHermes),
    as(kLlama3Pythonic, "llama4", {"<|header_start|>"}),
    kLlama3Pythonic,
    kLlama3,
    {.name = "gemma3",
     .template_marks = {"<start_of_turn>", "[func_name1("},
     .syntax = kPython,
     .header = "<start_of_turn>model\n",
     .separator = ", ",
     .array = true,
     .unmarked = true},
    {.name = "plain"},
};

bool fits(const CallFormat& row, std::string_view template_text) {
  if (row.template_marks[0].empty()) return false;
  return std::all_of(row.template_marks.begin(), row.template_marks.end(),
                     [&](std::string_view mark) { return template_text.find(mark) != mark.npos; });
}

}  // namespace

std::string CallFormat::call_prefix(int index) const {
  std::string text(call_begin);
  if (syntax == kEnvelope) {
    text += '{';
    if (!index_key.empty()) text += fmt::format("\"{}\": \"{}\", ", index_key, index);
    return text + fmt::format("\"{}\": \"", name_key);
  }
  text += name_begin;
  return text += ids == CallIds::kNamed ? "functions." : "";
}

std::string CallFormat::call_suffix(int index) const {
  if (syntax == kEnvelope) return fmt::format("\", \"{}\": ", args_key);
  std::string text = ids == CallIds::kNamed ? fmt::format(":{}", index) : "";
  text += name_end;
  return text += syntax == kPython ? "(" : "";
}

std::string CallFormat::call_text(std::string_view function, int index) const {
  std::string text = call_prefix(index);
  append_json_escaped(text, function);  // no change: function names need no escapes
  return text + call_suffix(index);
}

std::string CallFormat::close_text() const {
  std::string text(args_end);
  if (syntax == kEnvelope) text += '}';
  if (syntax == kPython) text += ')';
  return text += call_end;
}

std::string CallFormat::begin_text(std::string_view function, int index) const {
  return std::string(list_begin) + (array ? "[" : "") + call_text(function, index);
}

std::string CallFormat::next_text(std::string_view function, int index) const {
  return close_text() + std::string(separator) + call_text(function, index);
}

std::string CallFormat::end_text() const { return close_text() + (array ? "]" : "") + std::string(list_end); }

std::string CallFormat::parameter_text(std::string_view key, std::string_view value, bool is_string) const {
  return fmt::format("{}{}{}{}{}{}", param_begin, key, key_end,
                     is_string && !string_begin.empty() ? string_begin : value_begin, value, param_end);
}

std::vector<std::string_view> CallFormat::texts() const {
  return {think_begin,  think_end,   keeps_special ? header : "",
          answer_begin, answer_end,  list_begin,
          list_end,     separator,   call_begin,
          call_end,     name_begin,  id_begin,
          name_end,     args_end,    param_begin,
          key_end,      value_begin, string_begin,
          param_end,    string_mark, other_begin,
          other_end};
}

std::span<const CallFormat> call_formats() { return kRows; }

const CallFormat* find_call_format(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const CallFormat& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row;
}

const CallFormat& call_format_of_template(std::string_view template_text) {
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const CallFormat& r) { return fits(r, template_text); });
  return row == std::end(kRows) ? *find_call_format("plain") : *row;
}

std::vector<std::string_view> call_format_names() {
  std::vector<std::string_view> names;
  for (const CallFormat& row : kRows) names.push_back(row.name);
  return names;
}

bool opens_reasoning(const CallFormat& format, std::string_view prompt_end) {
  return trim(prompt_end).ends_with(trim(format.think_begin));
}

}  // namespace ingot

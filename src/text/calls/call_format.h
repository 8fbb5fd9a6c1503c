// CallFormat: the syntax in which a model family writes reasoning and tool calls, as a row of data. AnswerParser and
// the grammar that forces calls use the same row, so forced text always parses.
//
// An answer is   [header] [think_begin REASONING think_end] [answer_begin] content and calls [answer_end]
// and calls are  list_begin CALL separator CALL ... list_end, where CALL is one of CallSyntax.
//
// The texts of a row are exactly what a model writes, including line breaks. The parser ignores the white space at both
// ends of each text, and accepts any white space between texts.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

enum class CallSyntax : uint8_t {
  kNone,      // the family has no calls
  kEnvelope,  // call_begin {"name_key": "NAME", "args_key": {...}} call_end; in brackets when `array`
  kNamed,     // call_begin name_begin NAME name_end {...} args_end call_end
  kTagged,    // like kNamed, but with a tag for each parameter instead of a JSON object
  kGemma,     // like kNamed, but with {key:value} instead of a JSON object
  kPython,    // NAME(key=value, ...); in brackets when `array`
  kChannel,   // a separate message whose header names the function, as in OpenAI's harmony
};

enum class CallIds : uint8_t {
  kLong,   // call_ and 24 letters and digits
  kNine,   // 9 letters and digits; Mistral's templates refuse other ids
  kNamed,  // functions.NAME:INDEX, as the model writes them
};

struct CallFormat {
  std::string_view name;                             // --tool-parser
  std::array<std::string_view, 3> template_marks{};  // the row is for chat templates that contain all of these texts
  CallSyntax syntax = CallSyntax::kNone;
  CallIds ids = CallIds::kLong;

  std::string_view think_begin = "<think>", think_end = "</think>";
  std::string_view header{};  // the template's text before an answer, which some models repeat
  std::string_view answer_begin{}, answer_end{};

  std::string_view list_begin{}, list_end{}, separator{};
  std::string_view call_begin{}, call_end{};
  // kEnvelope; index_key holds the number of the call.
  std::string_view name_key = "name", args_key = "arguments", index_key{};
  // id_begin ID may come before name_end. kEnvelope: NAME name_end {...} is read, too.
  std::string_view name_begin{}, id_begin{}, name_end{}, args_end{};
  // kTagged: param_begin KEY key_end VALUE param_end. value_begin comes before VALUE. If string_begin is not empty,
  // string_begin comes before strings and value_begin comes before JSON.
  std::string_view param_begin{}, key_end{}, value_begin{}, string_begin{}, param_end{};
  std::string_view string_mark{};               // kGemma: comes before and after strings
  std::string_view other_begin{}, other_end{};  // optional texts that some models write around calls

  bool array = false;
  bool keeps_special = false;        // markers are special tokens, which the decoded text must contain
  bool unmarked = false;             // an answer that begins like a call is a call; only known functions are called
  bool call_ends_reasoning = false;  // the first marker of a call also ends the reasoning
  bool bare_name = false;            // name_begin may come without call_begin
  bool trims_value = false;          // remove one line break at each end of a tagged value
  bool untyped_is_json = false;      // a tagged value of unknown type is JSON if it parses as JSON, otherwise a string

  // The text of forced calls: begin_text, then the arguments, then for each further call next_text and its arguments,
  // then end_text. The form of the arguments depends on the syntax: a JSON object (kEnvelope, kNamed, kChannel),
  // parameter_text(key, value, is_string) for each parameter (kTagged), {key:value} (kGemma), or key=value with commas
  // (kPython).
  std::string begin_text(std::string_view function, int index = 0) const;
  std::string next_text(std::string_view function, int index) const;
  std::string end_text() const;
  std::string parameter_text(std::string_view key, std::string_view value, bool is_string) const;

  // The parts of these texts: the text before the function's name, and the text after the arguments.
  std::string call_prefix(int index) const;
  std::string call_suffix(int index) const;
  std::string close_text() const;

  // All texts that the parser looks for, with the header if special tokens are kept.
  std::vector<std::string_view> texts() const;

 private:
  std::string call_text(std::string_view function, int index) const;
};

std::span<const CallFormat> call_formats();

// Null if no row has this name.
const CallFormat* find_call_format(std::string_view name);

// The first row whose template_marks are all in the template; if none fits, the row `plain`, which has no calls.
const CallFormat& call_format_of_template(std::string_view template_text);

// The names of all rows, for messages and --help.
std::vector<std::string_view> call_format_names();

// Whether the prompt ends with the marker that begins reasoning.
bool opens_reasoning(const CallFormat& format, std::string_view prompt_end);

}  // namespace ingot

// How the models of a family write reasoning and tool calls: a row of data for each family. AnswerParser reads by the
// row, and what forces a call (a grammar) writes by the same row, so what is forced is what is parsed.
//
// An answer is   [header] [think_begin REASONING think_end] [answer_begin] content and calls [answer_end]
// and calls are  list_begin CALL separator CALL ... list_end, where CALL is one of CallSyntax.
//
// Texts stand here as a model writes them, with their line breaks. The parser leaves out the white space at both ends
// of each, and takes any white space between them.
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
  kTagged,    // the same, but with a tag for each parameter instead of a JSON object
  kGemma,     // the same, but with {key:value} instead of a JSON object
  kPython,    // NAME(key=value, ...); in brackets when `array`
  kChannel,   // a message of its own, whose header names the function, as in OpenAI's harmony
};

enum class CallIds : uint8_t {
  kLong,   // call_ and 24 letters and digits
  kNine,   // 9 letters and digits: Mistral's templates refuse others
  kNamed,  // functions.NAME:INDEX, as the model writes them
};

struct CallFormat {
  std::string_view name;                             // --tool-parser
  std::array<std::string_view, 3> template_marks{};  // the row is for chat templates that hold all of these
  CallSyntax syntax = CallSyntax::kNone;
  CallIds ids = CallIds::kLong;

  std::string_view think_begin = "<think>", think_end = "</think>";
  std::string_view header{};  // what the template puts before an answer, which some models repeat
  std::string_view answer_begin{}, answer_end{};

  std::string_view list_begin{}, list_end{}, separator{};
  std::string_view call_begin{}, call_end{};
  std::string_view name_key = "name", args_key = "arguments", index_key{};  // kEnvelope; index_key counts the calls
  std::string_view name_begin{}, id_begin{}, name_end{}, args_end{};        // id_begin ID may stand before name_end
  // kTagged: param_begin KEY key_end VALUE param_end. value_begin stands before VALUE. Where there is a string_begin,
  // it stands before strings, and value_begin before JSON.
  std::string_view param_begin{}, key_end{}, value_begin{}, string_begin{}, param_end{};
  std::string_view string_mark{};               // kGemma: stands around strings
  std::string_view other_begin{}, other_end{};  // some models write these around calls; nobody has to

  bool array = false;
  bool keeps_special = false;        // markers are special tokens: the text must be decoded with them
  bool unmarked = false;             // an answer that begins as a call is one, and only a known function is called
  bool call_ends_reasoning = false;  // a call's first marker ends the reasoning too
  bool bare_name = false;            // name_begin may stand without call_begin
  bool trims_value = false;          // one line break at each end of a tagged value is layout
  bool untyped_is_json = false;      // a tagged value of no known type is JSON where it can be, else a string

  // The text of forced calls: begin_text, then the arguments, then for each further call next_text and its arguments,
  // then end_text. The arguments are, by syntax, a JSON object (kEnvelope, kNamed, kChannel), parameters (kTagged:
  // parameter_text(key, value, is_string) each), {key:value} (kGemma) or key=value with commas (kPython).
  std::string begin_text(std::string_view function, int index = 0) const;
  std::string next_text(std::string_view function, int index) const;
  std::string end_text() const;
  std::string parameter_text(std::string_view key, std::string_view value, bool is_string) const;

  // The parts of these texts: a call up to the function's name, from there to its arguments, and behind them.
  std::string call_prefix(int index) const;
  std::string call_suffix(int index) const;
  std::string close_text() const;

  // All texts by which the parser reads, the header where special tokens are kept.
  std::vector<std::string_view> texts() const;

 private:
  std::string call_text(std::string_view function, int index) const;
};

std::span<const CallFormat> call_formats();

// Null where no row has this name.
const CallFormat* find_call_format(std::string_view name);

// The first row whose template_marks are all in the template; `plain`, which has no calls, where none is.
const CallFormat& call_format_of_template(std::string_view template_text);

// The names of all rows, for messages and --help.
std::vector<std::string_view> call_format_names();

// Whether a prompt ends where reasoning begins.
bool opens_reasoning(const CallFormat& format, std::string_view prompt_end);

}  // namespace ingot

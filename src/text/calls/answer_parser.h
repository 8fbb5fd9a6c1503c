// AnswerParser: splits a model's answer into reasoning, content and tool calls while the answer streams. The parser is
// a state machine over bytes, so the result does not depend on how the text is cut into pieces. The format is a row of
// call_format.h.
//
// Guarantees for any bytes:
//   - No byte is lost. The `raw` of exactly one event counts each byte, in order. Reasoning and content are passed on
//     as written. Bytes that belong to no text are markup: markers of the format, and white space around the markers.
//   - Text that does not parse as a call is content, byte for byte, with a warning.
//   - Time is linear in the length of the text. Memory holds only the undecided part of the text.
//
// Decisions that clients see:
//   - Reasoning is recognised only at the start of the answer (in harmony: in any message). White space before the
//     reasoning and after its end marker is markup. A call inside reasoning is reasoning, unless the row sets
//     call_ends_reasoning, or complete calls end an answer whose reasoning has no end: such calls end the reasoning.
//   - A call is reported when its name and the first byte of its arguments are known. Arguments stream as JSON text.
//     JSON is passed on as written; JSON with the mistakes of models is repaired (ValueReader::Dialect::kLenient), and
//     repaired arguments must have the types of the tool's schema. That schema also converts tagged parameters: strings
//     stream, and values of other types are sent when they are complete. A closing tag ends a value only before
//     the next parameter or the end of the call. Without a closing tag, a value ends at the tag of a parameter that the
//     tool has and that was not given yet.
//   - An envelope whose arguments have another key, or no key of their own, is a call with these arguments if only one
//     reading is possible, otherwise content. Members beside the arguments are named in a warning.
//   - If the arguments of a call cannot be read or are cut, the client has already seen the call. So the call ends with
//     whole = false and the arguments so far, a prefix of a JSON object. The text after such a call, with its closing
//     markers, is content. A call that is cut before its arguments is content. AnswerReader decides what clients see.
//   - White space next to a call is markup. A closing marker without an opening marker is markup after a call,
//     otherwise content.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/calls/call_format.h"
#include "text/calls/marker_matcher.h"
#include "text/calls/parameter_types.h"
#include "text/calls/value_reader.h"

namespace ingot {

struct AnswerEvent {
  enum class Kind : uint8_t { kReasoning, kContent, kCallBegin, kCallArguments, kCallEnd, kMarkup, kWarning };
  Kind kind = Kind::kContent;
  std::string text;   // kCallBegin: the function's name; kWarning: a message for people
  std::string id;     // kCallBegin
  int call = -1;      // kCall*: the number of the call, from 0
  bool whole = true;  // kCallEnd: the arguments are a complete JSON object
  size_t raw = 0;     // the number of bytes of the answer that the event covers
};
using AnswerEvents = std::vector<AnswerEvent>;

struct AnswerOptions {
  const nlohmann::ordered_json* tools = nullptr;  // in OpenAI's form; used by the constructor only. Null: unknown
  bool calls = true;                              // false: do not look for calls
  bool in_reasoning = false;                      // the prompt has begun the reasoning (opens_reasoning)
  bool closes_tags = false;                       // a grammar makes the model close each tag of a parameter
  uint64_t id_seed = 0;                           // for the calls' ids; use a different seed for each answer
};

class AnswerParser {
 public:
  explicit AnswerParser(const CallFormat& format, const AnswerOptions& options = {});

  // Reads more text and appends its events. Text of the same kind as the last event is joined to that event.
  void feed(std::string_view text, AnswerEvents& events);
  // Ends the text. Call this once.
  void finish(AnswerEvents& events);

  int n_calls() const { return n_calls_; }

 private:
  using Kind = AnswerEvent::Kind;
  enum class State : uint8_t {
    kFront,
    kGap,
    kReasoning,
    kContent,  // kFront to kContent: text, in which the parser looks for markers
    kIdle,
    kHeader,
    kBody,  // kIdle to kBody: the same for formats with channels, between and in messages
    kExpect,
    kCallBegun,
    kName,
    kId,
    kArgsBegin,
    kArgs,
    kStringArgs,
    kNoArgs,  // kExpect to kNoArgs: a call
    kParams,
    kKey,
    kValue,
    kStringValue,
    kJsonValue,
    kValueEnd,
    kParamsEnd,  // kParams to kParamsEnd: parameters of a call in tags
    kElements,
    kFunction,  // calls of a list; the name before a parenthesis
    kMember,
    kMemberKey,
    kColon,
    kMemberValue,
    kSkip,
    kNext  // kMember to kNext: {"name": ..., "arguments": ...}
  };
  using Type = ParameterKind;
  struct Choice {
    std::string_view marker;
    State next;
    bool again = false;  // the next state reads the marker again
  };

  // answer_parser.cc: events, text, and the begin and end of calls
  void byte(char c);
  void replay(std::string_view text);
  AnswerEvent& event(Kind kind);
  void text(Kind kind, std::string_view text);
  void markup(size_t n_bytes);
  void arguments(std::string_view json, size_t raw);
  void warn(std::string message);
  void flush_markup();
  void flush_as(Kind kind);
  void enter(State state);
  void enter_content();
  void enter_rest();
  std::vector<std::string_view> markers_of(State state) const;
  bool is_text() const { return state_ <= State::kBody; }
  bool is_opener(std::string_view marker) const;
  void on_text(char c);
  bool on_plain(char c);
  bool on_front(char c);
  void try_call(std::string_view text);
  bool end_reasoning_with_calls();
  void on_marker(std::string_view marker);
  void on_closer(std::string_view marker);
  void open_block(std::string_view marker);
  void fail();
  void begin_call();
  void end_call(bool whole);
  void break_call();
  void finish_call();
  std::string make_id() const;

  // answer_calls.cc: names, arguments, parameters
  void on_call(char c);
  void expect(std::vector<Choice> choices);
  void go(State next);
  void on_expect(char c);
  void on_name(char c, std::string& name);
  void name_done();
  void begin_args(ValueReader::Dialect dialect);
  void on_args(char c);
  void on_string_args(char c);
  bool fits_types() const;
  void args_done();
  void on_key(char c);
  void begin_value(bool is_string);
  void on_value(char c);
  void on_value_marker(std::string_view marker);
  void back_to_value();
  std::vector<std::string_view> value_markers() const;
  bool is_open_parameter(std::string_view key) const;
  void value_byte(char c);
  void end_value();
  Type type_of(std::string_view parameter) const;
  Type declared_type(std::string_view parameter) const;

  // answer_lists.cc: lists of calls, envelopes and Python's calls
  void on_list(char c);
  void on_element(char c);
  void on_function(char c);
  void on_member(char c);
  void on_member_value(char c);
  void on_skip(char c);
  void member_done();
  void end_envelope();
  bool find_arguments();
  void whole_call();
  bool is_callable(std::string_view function) const;

  // answer_channels.cc
  bool on_channel_plain(char c);
  void on_channel_marker(std::string_view marker);
  void header_done(std::string_view marker);
  void enter_body(Kind kind);

  void read_tools(const nlohmann::ordered_json& tools);

  const CallFormat& format_;
  const bool calls_;
  bool knows_tools_, closes_tags_;
  const uint64_t id_seed_;
  // The format's texts, without white space at both ends.
  const std::string_view think_begin_, think_end_, header_, answer_begin_, answer_end_, list_begin_, list_end_,
      call_begin_, call_end_, name_begin_, id_begin_, name_end_, args_end_, param_begin_, key_end_, value_begin_,
      string_begin_, param_end_;
  using Tools = std::map<std::string, ParameterKinds, std::less<>>;
  std::shared_ptr<const Tools> tools_;  // not null

  AnswerEvents* out_ = nullptr;
  State state_ = State::kFront;
  MarkerMatcher matcher_;
  std::string raw_;  // read, but not yet known to be markup or content
  Kind body_ = Kind::kContent;
  bool has_reasoning_ = false, in_answer_ = false;
  bool after_call_ = false;                                      // only white space since the last call
  bool is_broken_ = false;                                       // the last call could not be read to its end
  std::unique_ptr<AnswerParser> try_;                            // reads what may be a call at the end of the reasoning
  AnswerEvents tried_;                                           // its events
  size_t n_tried_ = 0;                                           // how many of them were looked at
  bool list_due_ = false, call_due_ = false, args_due_ = false;  // closing markers that are expected
  int n_calls_ = 0, n_warnings_ = 0;

  bool marked_ = false;   // an opening marker was read
  bool bracket_ = false;  // the list is in brackets
  int block_calls_ = 0;   // calls since the last opening marker
  bool begun_ = false;    // kCallBegin was sent for the call
  std::vector<Choice> choices_;
  ValueReader reader_;
  std::string name_, id_, args_;
  bool has_repaired_args_ = false;
  std::string key_, value_;
  Type type_ = Type::kUnknown;
  bool first_param_ = true, at_start_ = false, newline_ = false;
  bool is_value_open_ = false;     // raw_ begins with a marker that may end the value, or be part of it
  std::set<std::string> given_;    // the parameters so far
  bool in_envelope_ = false;
  bool done_ = false;                       // the call of the envelope has ended
  bool is_name_ = false, is_args_ = false;  // the meaning of the member's value
  struct Member {
    std::string key, value;  // JSON text
    bool is_protocol = false;  // "type" or the like: not an argument
  };
  std::vector<Member> others_;  // members of the envelope beside the name and the arguments
};

}  // namespace ingot

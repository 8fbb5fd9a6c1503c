// AnswerParser: what a model writes, told apart into reasoning, content and tool calls as it streams. One state machine
// over bytes, so how the text is cut into pieces changes nothing. The format is a row of call_format.h.
//
// What it promises, whatever the bytes are:
//   - Nothing is lost. Each byte is counted in the `raw` of one event, in order. Reasoning and content are the bytes as
//     written. What is in no text is markup: markers of the format, and white space around them.
//   - What does not parse as a call is content, byte for byte, with a warning.
//   - Time is linear in the text. Memory is what is not decided yet, never more than the text.
//
// Decisions that clients see:
//   - Reasoning is at the front only (harmony has it in any message), without the white space in front of it and
//     behind its end. A call within it is reasoning, unless the row says that calls end reasoning.
//   - A call begins when its name and the first byte of its arguments are known. Arguments stream as JSON text. JSON is
//     passed as written. Tagged parameters follow the tool's schema: a string streams, other types come when whole.
//   - A call that breaks or is cut within its arguments has been seen by the client. So it ends with whole = false and
//     what there was, a prefix of a JSON object, as OpenAI's API has it at max_tokens. What follows is content. A call
//     that is cut before its arguments is content.
//   - White space between a call and its neighbours is markup. A closing marker without an opening one is markup where
//     calls came before it, else content.
#pragma once
#include <cstdint>
#include <map>
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
  std::string text;   // of kCallBegin the function's name, of kWarning a message for people
  std::string id;     // of kCallBegin
  int call = -1;      // of kCall*: the number of the call, from 0
  bool whole = true;  // of kCallEnd: the arguments are a whole JSON object
  size_t raw = 0;     // how many bytes of the answer it stands for
};
using AnswerEvents = std::vector<AnswerEvent>;

struct AnswerOptions {
  const nlohmann::ordered_json* tools = nullptr;  // in OpenAI's shape; read by the constructor only. Null: not known
  bool calls = true;                              // false: calls are not looked for
  bool in_reasoning = false;                      // the prompt has begun the reasoning (opens_reasoning)
  uint64_t id_seed = 0;                           // of the calls' ids: another one for each answer
};

class AnswerParser {
 public:
  explicit AnswerParser(const CallFormat& format, const AnswerOptions& options = {});

  // More text. Its events are appended; text of the same kind as the last event there is joined to it.
  void feed(std::string_view text, AnswerEvents& events);
  // The text is over. Call it once.
  void finish(AnswerEvents& events);

  int n_calls() const { return n_calls_; }

 private:
  using Kind = AnswerEvent::Kind;
  enum class State : uint8_t {
    kFront,
    kGap,
    kReasoning,
    kContent,  // text, where markers are looked for
    kIdle,
    kHeader,
    kBody,  // the same, between and in channels' messages
    kExpect,
    kCallBegun,
    kName,
    kId,
    kArgsBegin,
    kArgs,
    kNoArgs,  // a call
    kParams,
    kKey,
    kValue,
    kStringValue,
    kJsonValue,
    kParamsEnd,  // its parameters in tags
    kElements,
    kFunction,  // calls of a list; the name before a parenthesis
    kMember,
    kMemberKey,
    kColon,
    kMemberValue,
    kSkip,
    kNext  // {"name": ..., "arguments": ...}
  };
  using Type = ParameterKind;
  struct Choice {
    std::string_view marker;
    State next;
    bool again = false;  // the next state reads the marker itself
  };

  // answer_parser.cc: events, text and what begins and ends calls
  void byte(char c);
  void replay(std::string_view text);
  AnswerEvent& event(Kind kind);
  void text(Kind kind, std::string_view text);
  void markup(size_t n_bytes);
  void arguments(std::string_view json, size_t raw);
  void warn(std::string message);
  void settle();
  void spill(Kind kind);
  void enter(State state);
  void enter_content();
  void enter_rest();
  std::vector<std::string_view> markers_of(State state) const;
  bool is_text() const { return state_ <= State::kBody; }
  bool is_opener(std::string_view marker) const;
  void on_text(char c);
  bool on_plain(char c);
  bool on_front(char c);
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
  void args_done();
  void on_key(char c);
  void begin_value(bool is_string);
  void on_value(char c);
  void value_byte(char c);
  void end_value();
  Type type_of(std::string_view parameter) const;

  // answer_lists.cc: lists of calls, envelopes and Python's calls
  void on_list(char c);
  void on_element(char c);
  void on_function(char c);
  void on_member(char c);
  void on_member_value(char c);
  void on_skip(char c);
  void member_done();
  void end_envelope();
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
  const bool knows_tools_;
  const uint64_t id_seed_;
  // Of the format, without white space around.
  const std::string_view think_begin_, think_end_, header_, answer_begin_, answer_end_, list_begin_, list_end_,
      call_begin_, call_end_, name_begin_, id_begin_, name_end_, args_end_, param_begin_, key_end_, value_begin_,
      string_begin_, param_end_;
  std::map<std::string, ParameterKinds, std::less<>> tools_;

  AnswerEvents* out_ = nullptr;
  State state_ = State::kFront;
  MarkerMatcher matcher_;
  std::string raw_;  // read, and not yet known to be markup or content
  Kind body_ = Kind::kContent;
  bool has_reasoning_ = false, in_answer_ = false;
  bool after_call_ = false;                                      // nothing but white space came since a call
  bool list_due_ = false, call_due_ = false, args_due_ = false;  // closing markers
  int n_calls_ = 0, n_warnings_ = 0;

  bool marked_ = false;   // a marker said that here are calls
  bool bracket_ = false;  // the list is in brackets
  int block_calls_ = 0;   // since the last opening marker
  bool begun_ = false;    // the call has begun for the client
  std::vector<Choice> choices_;
  ValueReader reader_;
  std::string name_, id_, args_;
  std::string key_, value_;
  Type type_ = Type::kUnknown;
  bool first_param_ = true, at_start_ = false, newline_ = false;
  bool in_envelope_ = false;
  bool done_ = false;                       // the envelope's call has ended
  bool is_name_ = false, is_args_ = false;  // what the member's value is
};

}  // namespace ingot

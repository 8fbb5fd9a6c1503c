// The parts of AnswerParser that read a call after its marker: the name, and the arguments as JSON, in Gemma's syntax
// or in tags.
#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json.h"
#include "text/calls/answer_parser.h"

namespace ingot {
namespace {

constexpr size_t kMaxName = 256;

bool is_name(char c) {
  return static_cast<unsigned char>(c) > ' ' && c != 0x7F &&
         std::string_view("<>[](){}\"'`=,;|\\").find(c) == std::string_view::npos;
}

}  // namespace

void AnswerParser::on_call(char c) {
  switch (state_) {
    case State::kExpect: return on_expect(c);
    case State::kName: return on_name(c, name_);
    case State::kId: return on_name(c, id_);
    case State::kArgs: return on_args(c);
    case State::kStringArgs: return on_string_args(c);
    case State::kKey: return on_key(c);
    default: return on_value(c);
  }
}

void AnswerParser::expect(std::vector<Choice> choices) {
  choices_ = std::move(choices);
  std::vector<std::string_view> markers;
  for (const Choice& choice : choices_) markers.push_back(choice.marker);
  matcher_.look_for(std::move(markers));
  state_ = State::kExpect;
}

void AnswerParser::on_expect(char c) {
  std::string released;
  const std::string_view marker = matcher_.feed(c, released);
  const size_t n_blank = released.find_first_not_of(" \t\r\n");
  raw_ += released.substr(0, n_blank);
  if (n_blank != released.npos) {
    const std::string rest = released.substr(n_blank) + (marker.empty() ? matcher_.take() : std::string(marker));
    if (is_value_open_)
      back_to_value();
    else
      begun_ ? break_call() : fail();
    return replay(rest);
  }
  if (marker.empty()) return;
  for (const Choice& choice : choices_) {
    if (choice.marker != marker) continue;
    const bool again = choice.again;
    if (std::exchange(is_value_open_, false)) end_value();
    if (!again) raw_ += marker;
    if (marker == call_end_) call_due_ = false;
    if (marker == args_end_) args_due_ = false;
    go(choice.next);
    if (again) replay(marker);
    return;
  }
}

// Enters the next state and prepares its data.
void AnswerParser::go(State next) {
  state_ = next;
  switch (next) {
    case State::kCallBegun:
      call_due_ = true;
      name_.clear();
      id_.clear();
      if (name_begin_.empty())
        state_ = State::kName;
      else
        expect({{name_begin_, State::kName}, {"{", State::kElements, true}, {"[", State::kElements, true}});
      break;
    case State::kName:
      name_.clear();
      id_.clear();
      break;
    case State::kArgsBegin:
      if (format_.syntax == CallSyntax::kTagged) return go(State::kParams);
      expect({{"{", State::kArgs, true},
              {format_.syntax == CallSyntax::kNamed ? "\"" : "", State::kStringArgs, true},
              {args_end_, State::kNoArgs},
              {call_end_, State::kNoArgs}});
      break;
    case State::kArgs:
      begin_args(format_.syntax == CallSyntax::kGemma ? ValueReader::Dialect::kGemma : ValueReader::Dialect::kLenient);
      break;
    case State::kStringArgs:
      reader_ = ValueReader(ValueReader::Dialect::kLenient);
      value_.clear();
      break;
    case State::kParams:  // DeepSeek V4 may write a JSON object instead
      args_due_ = !args_end_.empty();
      expect({{param_begin_, State::kKey},
              {args_end_, State::kParamsEnd},
              {call_end_, State::kParamsEnd},
              {begun_ ? "" : "{", State::kArgs, true}});
      break;
    case State::kKey:
      key_.clear();
      matcher_.look_for({key_end_});
      break;
    case State::kValueEnd:  // after args_end_ in a value
      args_due_ = false;
      expect({{call_end_, State::kParamsEnd}});
      break;
    case State::kStringValue:
    case State::kJsonValue: begin_value(next == State::kStringValue); break;
    case State::kNoArgs:
    case State::kParamsEnd:
      if (begun_) {
        flush_markup();
        arguments("}", 0);
      } else {
        begin_call();
        arguments("{}", 0);
      }
      end_call(true);
      enter_rest();
      break;
    default: break;
  }
}

void AnswerParser::on_name(char c, std::string& name) {
  if (is_name(c) && name.size() < kMaxName) {
    name += c;
    raw_ += c;
  } else if (is_blank(c) && name.empty()) {
    raw_ += c;
  } else if (name.empty() && state_ == State::kName && (c == '{' || c == '[')) {  // other models write an envelope here
    state_ = State::kElements;
    byte(c);
  } else {
    if (name.empty() || is_name(c))
      fail();
    else
      name_done();
    byte(c);
  }
}

void AnswerParser::name_done() {
  if (format_.ids == CallIds::kNamed && state_ == State::kName) {
    const size_t colon = name_.rfind(':');
    const bool is_id = colon != name_.npos && name_.find_first_not_of("0123456789", colon + 1) == name_.npos;
    if (is_id) id_ = name_;
    name_ = name_.substr(0, is_id ? colon : name_.npos);
    if (name_.starts_with("functions.")) name_.erase(0, 10);
    if (name_.empty()) name_ = std::exchange(id_, {});
  }
  if (format_.ids == CallIds::kNine && id_.size() != 9) id_.clear();
  if (name_end_.empty()) return go(State::kArgsBegin);
  std::vector<Choice> choices = {{name_end_, State::kArgsBegin}};
  if (state_ == State::kName) choices.push_back({id_begin_, State::kId});
  if (format_.syntax == CallSyntax::kNamed) choices.push_back({"{", State::kArgs, true});
  expect(std::move(choices));
}

void AnswerParser::begin_args(ValueReader::Dialect dialect) {
  reader_ = ValueReader(dialect, format_.string_mark);
  args_.clear();
  state_ = State::kArgs;
}

// Without an opening marker, a Python call is reported only after its first key, because `[see](here)` is not a call.
// The arguments of an envelope are held until its name is known.
void AnswerParser::on_args(char c) {
  std::string json;
  const size_t held = reader_.held().size();
  const ValueReader::Status status = reader_.feed(c, json);
  if (status == ValueReader::Status::kBad || status == ValueReader::Status::kDoneBefore) {
    if (begun_) {
      arguments(json, held - reader_.held().size());
      raw_ = reader_.held();
    }
    begun_ ? break_call() : fail();
    return byte(c);
  }
  args_ += json;
  if (begun_) {
    arguments(json, held + 1 - reader_.held().size());
  } else {
    raw_ += c;
    const bool is_call = format_.syntax != CallSyntax::kPython || args_.size() > 1 || !format_.unmarked;
    if (!name_.empty() && is_call) {
      begin_call();
      arguments(args_, 0);
    }
  }
  if (status == ValueReader::Status::kDone) args_done();
}

// A string that contains the JSON object.
void AnswerParser::on_string_args(char c) {
  const ValueReader::Status status = reader_.feed(c, value_);
  if (status == ValueReader::Status::kBad) {
    fail();
    return byte(c);
  }
  raw_ += c;
  if (status == ValueReader::Status::kMore) return;
  args_ = lenient_as_json(string_of_json(value_));
  if (!args_.starts_with('{')) return fail();
  begin_call();
  arguments(args_, 0);
  end_call(true);
  args_due_ = !args_end_.empty();
  enter_rest();
}

// Whether the arguments have the types of the tool's parameters. Null is accepted for a missing value.
bool AnswerParser::fits_types() const {
  const auto args = nlohmann::ordered_json::parse(args_, nullptr, false);
  if (!args.is_object()) return false;
  for (const auto& [key, value] : args.items()) {
    const Type type = declared_type(key);
    const bool wants_string = type == Type::kString || type == Type::kNullableString;
    if (value.is_null() || (!wants_string && type != Type::kOther)) continue;
    if (value.is_string() != wants_string) return false;
  }
  return true;
}

void AnswerParser::args_done() {
  has_repaired_args_ = reader_.is_repaired();
  if (has_repaired_args_ && begun_ && !fits_types()) return break_call();
  if (in_envelope_) {
    if (begun_) end_call(done_ = true);
    state_ = State::kNext;
    return;
  }
  end_call(true);
  if (format_.syntax == CallSyntax::kPython) {
    state_ = State::kElements;
  } else {
    args_due_ = !args_end_.empty();
    enter_rest();
  }
}

void AnswerParser::on_key(char c) {
  std::string released;
  const std::string_view marker = matcher_.feed(c, released);
  key_ += released;
  raw_ += released;
  const bool is_bad = key_.size() > kMaxName || (!marker.empty() && is_value_open_ && !is_open_parameter(key_));
  if (is_bad) {
    const std::string rest = std::string(marker) + matcher_.take();
    if (is_value_open_) {
      back_to_value();
      return replay(rest);
    }
    raw_ += rest;
    return begun_ ? break_call() : fail();
  }
  if (marker.empty()) return;
  if (std::exchange(is_value_open_, false)) end_value();
  raw_ += marker;
  const size_t doubled = key_.rfind(param_begin_);
  if (doubled != key_.npos) key_.erase(0, doubled + param_begin_.size());
  given_.insert(key_);
  if (value_begin_.empty() && string_begin_.empty()) {
    type_ = type_of(key_);
    go(type_ == Type::kString ? State::kStringValue : State::kJsonValue);
  } else if (string_begin_.empty()) {
    type_ = type_of(key_);
    expect({{value_begin_, type_ == Type::kString ? State::kStringValue : State::kJsonValue}});
  } else {  // the model marks strings
    type_ = Type::kOther;
    expect({{value_begin_, State::kJsonValue}, {string_begin_, State::kStringValue}});
  }
}

AnswerParser::Type AnswerParser::declared_type(std::string_view parameter) const {
  const auto tool = tools_->find(name_);
  return tool == tools_->end() ? Type::kUnknown : tool->second.of(parameter);
}

AnswerParser::Type AnswerParser::type_of(std::string_view parameter) const {
  const Type type = declared_type(parameter);
  if (type == Type::kUnknown) return format_.untyped_is_json ? Type::kMixed : Type::kString;
  return type;
}

void AnswerParser::begin_value(bool is_string) {
  if (is_string) type_ = Type::kString;
  if (!begun_)
    begin_call();
  else
    flush_markup();
  std::string json = first_param_ ? "{\"" : ", \"";
  append_json_escaped(json, key_);
  json += is_string ? "\": \"" : "\": ";
  arguments(json, 0);
  first_param_ = newline_ = false;
  at_start_ = true;
  value_.clear();
  matcher_.look_for(value_markers());
  state_ = State::kValue;
}

// Whether the tool has the parameter and the call does not have it yet.
bool AnswerParser::is_open_parameter(std::string_view key) const {
  const auto tool = tools_->find(name_);
  return tool != tools_->end() && tool->second.named.contains(key) && !given_.contains(std::string(key));
}

void AnswerParser::on_value(char c) {
  std::string released;
  const std::string_view marker = matcher_.feed(c, released);
  for (const char r : released) value_byte(r);
  if (!marker.empty()) on_value_marker(marker);
}

std::vector<std::string_view> AnswerParser::value_markers() const {
  if (closes_tags_) return {param_end_};
  return {param_end_, param_begin_, args_end_};
}

// A marker within a value. What follows decides whether the marker is part of the value.
void AnswerParser::on_value_marker(std::string_view marker) {
  const bool at_line_start = newline_ || value_.ends_with('\n') || !format_.trims_value;
  raw_ += marker;
  if (marker == param_begin_ && !at_line_start) return back_to_value();
  is_value_open_ = true;
  go(marker == param_end_ ? State::kParams : marker == param_begin_ ? State::kKey : State::kValueEnd);
}

// The marker is part of the value.
void AnswerParser::back_to_value() {
  is_value_open_ = false;
  matcher_.take();
  matcher_.look_for(value_markers());
  state_ = State::kValue;
  for (const char c : std::exchange(raw_, {})) value_byte(c);
}

void AnswerParser::value_byte(char c) {
  if (std::exchange(at_start_, false) && format_.trims_value && c == '\n') return markup(1);
  if (type_ != Type::kString) {
    value_ += c;
    return;
  }
  std::string json;
  if (newline_) append_json_escaped(json, '\n');
  const size_t n_held = newline_ ? 1 : 0;
  newline_ = format_.trims_value && c == '\n';  // a last line break is layout
  if (!newline_) append_json_escaped(json, c);
  arguments(json, n_held + (newline_ ? 0 : 1));
}

void AnswerParser::end_value() {
  if (type_ == Type::kString) {
    raw_ += newline_ ? "\n" : "";
    return arguments("\"", 0);
  }
  const size_t raw = value_.size();
  if (format_.trims_value && value_.ends_with('\n')) value_.pop_back();
  std::string json;
  if (type_ != Type::kNullableString)
    json = value_as_json(value_);
  else if (value_ == "null" || value_ == "None")
    json = "null";
  if (json.empty()) {
    json = "\"";
    append_json_escaped(json, value_);
    json += '"';
  }
  arguments(json, raw);
}

}  // namespace ingot

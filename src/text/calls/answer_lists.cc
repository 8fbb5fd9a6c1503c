// The parts of AnswerParser that read calls in lists, with or without brackets: JSON objects (envelopes) with name and
// arguments in any order and perhaps other members, and calls in Python's syntax.

#include "base/ascii.h"
#include "base/json.h"
#include "text/calls/answer_parser.h"

namespace ingot {
namespace {

constexpr size_t kMaxListedName = 256;

bool is_identifier(char c) {
  return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

// The value of a JSON string.
std::string string_of(std::string_view json) {
  const auto value = nlohmann::ordered_json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

void AnswerParser::on_list(char c) {
  switch (state_) {
    case State::kElements: return on_element(c);
    case State::kFunction: return on_function(c);
    case State::kMemberValue: return on_member_value(c);
    case State::kMemberKey:
    case State::kSkip: return on_skip(c);
    default: return on_member(c);
  }
}

void AnswerParser::on_element(char c) {
  const bool python = format_.syntax == CallSyntax::kPython;
  if (is_blank(c) || ((c == ',' || c == ';') && block_calls_ > 0)) {
    raw_ += c;
  } else if (c == '[' && !bracket_ && block_calls_ == 0) {
    bracket_ = true;
    raw_ += c;
  } else if (c == '{') {
    raw_ += c;
    name_.clear();
    id_.clear();
    args_.clear();
    done_ = false;
    in_envelope_ = true;
    state_ = State::kMember;
  } else if (python && is_identifier(c)) {
    name_ = c;
    id_.clear();
    raw_ += c;
    state_ = State::kFunction;
  } else if (block_calls_ == 0) {
    fail();
    byte(c);
  } else {
    const bool closes = bracket_ && c == ']';
    if (closes) raw_ += c;
    flush_markup();
    enter_content();
    if (!closes) byte(c);
  }
}

void AnswerParser::on_function(char c) {
  if (c == '(' && is_callable(name_)) {
    in_envelope_ = false;
    begin_args(ValueReader::Dialect::kPython);
    on_args(c);
  } else if (is_identifier(c) && name_.size() < kMaxListedName) {
    name_ += c;
    raw_ += c;
  } else {
    fail();
    byte(c);
  }
}

bool AnswerParser::is_callable(std::string_view function) const {
  return !format_.unmarked || !knows_tools_ || tools_.contains(function);
}

// Reads a byte between the parts of an envelope's members.
void AnswerParser::on_member(char c) {
  if (is_blank(c)) {
    raw_ += c;
  } else if (state_ == State::kMember && c == '"') {
    value_.clear();
    reader_ = ValueReader();
    state_ = State::kMemberKey;
    on_skip(c);
  } else if (state_ == State::kColon && c == ':') {
    raw_ += c;
    state_ = State::kMemberValue;
  } else if (state_ == State::kNext && c == ',') {
    raw_ += c;
    state_ = State::kMember;
  } else if (state_ == State::kNext && c == '}') {
    raw_ += c;
    end_envelope();
  } else {
    fail();
    byte(c);
  }
}

void AnswerParser::on_member_value(char c) {
  if (is_blank(c)) {
    raw_ += c;
    return;
  }
  const bool is_args =
      !done_ && args_.empty() && (key_ == format_.args_key || key_ == "arguments" || key_ == "parameters");
  if (is_args && c == '{') {
    begin_args(ValueReader::Dialect::kJson);
    return on_args(c);
  }
  const bool is_name = !done_ && (key_ == format_.name_key || key_ == "name");
  if ((is_args && c != '"' && c != 'n') || (is_name && c != '"')) {
    fail();
    return byte(c);
  }
  is_args_ = is_args;
  is_name_ = is_name;
  value_.clear();
  reader_ = ValueReader();
  state_ = State::kSkip;
  on_skip(c);
}

// Reads a key, or a value that is not streamed.
void AnswerParser::on_skip(char c) {
  const ValueReader::Status status = reader_.feed(c, value_);
  if (status == ValueReader::Status::kBad) {
    fail();
    return byte(c);
  }
  const bool again = status == ValueReader::Status::kDoneBefore;
  if (!again) raw_ += c;
  if (status == ValueReader::Status::kMore) return;
  if (state_ == State::kMemberKey) {
    key_ = string_of(value_);
    const bool known = key_ == format_.name_key || key_ == format_.args_key || key_ == "name" || key_ == "arguments" ||
                       key_ == "parameters" || key_ == "type" || key_ == "id";
    if (format_.unmarked && !known) return fail();  // the answer itself is JSON
    state_ = State::kColon;
  } else {
    member_done();
  }
  if (again) byte(c);
}

void AnswerParser::member_done() {
  state_ = State::kNext;
  if (is_name_) {
    name_ = string_of(value_);
    if (name_.empty() || name_.size() > kMaxListedName || !is_callable(name_)) return fail();
    if (!args_.empty()) whole_call();
  } else if (is_args_) {  // a string that contains an object, or null
    args_ = value_ == "null" ? "{}" : value_as_json(string_of(value_));
    if (!args_.starts_with('{')) return fail();
    if (!name_.empty()) whole_call();
  }
}

void AnswerParser::whole_call() {
  begin_call();
  arguments(args_, 0);
  end_call(done_ = true);
}

void AnswerParser::end_envelope() {
  in_envelope_ = false;
  if (!done_) {
    if (name_.empty() || (format_.unmarked && !knows_tools_)) return fail();
    args_ = "{}";
    whole_call();
  }
  done_ = false;
  flush_markup();
  state_ = State::kElements;
}

}  // namespace ingot

// The parts of AnswerParser that read calls in lists, with or without brackets: JSON objects (envelopes) with name and
// arguments in any order and perhaps other members, and calls in Python's syntax.
#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json.h"
#include "text/calls/answer_parser.h"

namespace ingot {
namespace {

constexpr size_t kMaxListedName = 256;

bool is_identifier(char c) {
  return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

// The object that a value is, or that a string contains; otherwise empty.
std::string object_of(const std::string& json) {
  const std::string object = json.starts_with('"') ? lenient_as_json(string_of_json(json)) : json;
  return object.starts_with('{') ? object : "";
}

std::string json_member(std::string_view key, std::string_view value) {
  std::string json = "\"";
  append_json_escaped(json, key);
  return (json += "\": ") += value;
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
    others_.clear();
    done_ = has_repaired_args_ = false;
    in_envelope_ = true;
    state_ = State::kMember;
  } else if (!python && !name_end_.empty() && block_calls_ == 0 && is_identifier(c)) {
    go(State::kName);
    byte(c);
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
  return !format_.unmarked || !knows_tools_ || tools_->contains(function);
}

// Reads a byte between the parts of an envelope's members.
void AnswerParser::on_member(char c) {
  if (is_blank(c)) {
    raw_ += c;
  } else if (state_ == State::kMember && (c == '"' || c == '\'')) {
    value_.clear();
    reader_ = ValueReader(ValueReader::Dialect::kLenient);
    state_ = State::kMemberKey;
    on_skip(c);
  } else if (state_ == State::kColon && c == ':') {
    raw_ += c;
    state_ = State::kMemberValue;
  } else if (state_ == State::kNext && c == ',') {
    raw_ += c;
    state_ = State::kMember;
  } else if (c == '}' && (state_ == State::kNext || (state_ == State::kMember && (done_ || !key_.empty())))) {
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
    begin_args(ValueReader::Dialect::kLenient);
    return on_args(c);
  }
  const bool is_name = !done_ && (key_ == format_.name_key || key_ == "name");
  const bool is_quote = c == '"' || c == '\'';
  if ((is_args && !is_quote && c != 'n' && c != 'N') || (is_name && !is_quote)) {
    fail();
    return byte(c);
  }
  is_args_ = is_args;
  is_name_ = is_name;
  value_.clear();
  reader_ = ValueReader(ValueReader::Dialect::kLenient);
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
    key_ = string_of_json(value_);
    const bool known = key_ == format_.name_key || key_ == format_.args_key || key_ == "name" || key_ == "arguments" ||
                       key_ == "parameters" || key_ == "type" || key_ == "id";
    if (format_.unmarked && !known && name_.empty()) return fail();  // the answer itself is JSON
    state_ = State::kColon;
  } else {
    member_done();
  }
  if (again) byte(c);
}

void AnswerParser::member_done() {
  state_ = State::kNext;
  if (is_name_) {
    name_ = string_of_json(value_);
    if (name_.empty() || name_.size() > kMaxListedName || !is_callable(name_)) return fail();
    marked_ |= knows_tools_;  // a text with the name of a tool should be a call
    if (!args_.empty()) whole_call();
  } else if (is_args_) {  // a string that contains an object, or null
    const std::string text = string_of_json(value_);
    args_ = value_ == "null" ? "{}" : lenient_as_json(text);
    has_repaired_args_ = value_ != "null" && args_ != trim(text);
    if (!args_.starts_with('{')) return fail();
    if (!name_.empty()) whole_call();
  } else {
    const bool is_protocol = key_ == "type" || key_ == "id" || key_ == format_.index_key;
    others_.push_back({key_, value_, is_protocol});
  }
}

void AnswerParser::whole_call() {
  if (has_repaired_args_ && !fits_types()) return fail();
  begin_call();
  arguments(args_, 0);
  end_call(done_ = true);
}

void AnswerParser::end_envelope() {
  in_envelope_ = false;
  if (!done_) {
    if (name_.empty() || (format_.unmarked && !knows_tools_) || !find_arguments()) return fail();
    whole_call();
  } else {
    std::string left_out;
    for (const Member& m : others_)
      if (!m.is_protocol) left_out += (left_out.empty() ? "" : ", ") + json_member(m.key, m.value);
    if (!left_out.empty())
      warn(fmt::format("call {} has members beside its arguments, which are left out: {}", n_calls_ - 1, left_out));
  }
  done_ = false;
  flush_markup();
  state_ = State::kElements;
}

// Finds the arguments of an envelope without a member for them: the only object under another key, or the members
// beside the name. Returns false if both readings are possible.
bool AnswerParser::find_arguments() {
  const auto tool = tools_->find(name_);
  const auto is_declared = [&](const Member& m) { return tool != tools_->end() && tool->second.named.contains(m.key); };
  std::string object, members;
  int n_objects = 0, n_members = 0;
  for (const Member& m : others_) {
    if (m.is_protocol && !is_declared(m)) continue;
    ++n_members;
    members += (members.empty() ? "" : ", ") + json_member(m.key, m.value);
    if (is_declared(m) || object_of(m.value).empty()) continue;
    ++n_objects;
    object = object_of(m.value);
  }
  args_ = n_objects > 0 ? object : "{" + members + "}";
  return n_objects == 0 || n_members == 1;
}

}  // namespace ingot

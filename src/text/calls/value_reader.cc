#include "text/calls/value_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/ascii.h"
#include "base/json.h"

namespace ingot {
namespace {

constexpr size_t kMaxKey = 256;
constexpr std::string_view kReplacement = "\\ufffd";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f'); }
bool is_word_byte(char c) {
  return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

bool keeps_blanks(ValueReader::Dialect dialect) {
  return dialect == ValueReader::Dialect::kJson || dialect == ValueReader::Dialect::kLenient;
}

size_t digits(std::string_view text, size_t at) {
  size_t n = 0;
  while (at + n < text.size() && is_digit(text[at + n])) ++n;
  return n;
}

bool is_json_number(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const size_t whole = digits(text, at);
  if (whole == 0 || (whole > 1 && text[at] == '0')) return false;
  at += whole;
  if (at < text.size() && text[at] == '.') {
    const size_t n = digits(text, at + 1);
    if (n == 0) return false;
    at += 1 + n;
  }
  if (at < text.size() && lower(text[at]) == 'e') {
    at += at + 1 < text.size() && (text[at + 1] == '+' || text[at + 1] == '-') ? 2 : 1;
    const size_t n = digits(text, at);
    if (n == 0) return false;
    at += n;
  }
  return at == text.size();
}

// Many JSON parsers refuse a number beyond the range of a double. Such a number becomes the largest double.
std::string_view in_range(std::string_view number) {
  if (nlohmann::json::accept(number)) return number;
  return number[0] == '-' ? "-1.7976931348623157e308" : "1.7976931348623157e308";
}

// The JSON form of a word or number, or "".
std::string_view literal(std::string_view text, ValueReader::Dialect dialect) {
  if (text == "true" || text == "false" || text == "null") return text;
  if (is_json_number(text)) return in_range(text);
  if (dialect == ValueReader::Dialect::kJson || dialect == ValueReader::Dialect::kLenient) return {};
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return {};
}

void append_code_point(std::string& out, unsigned code) {
  if (code < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  } else {
    code -= 0x10000;
    fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
  }
}

}  // namespace

void append_json_escaped(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      if (static_cast<unsigned char>(c) < 0x20)
        append_code_point(out, static_cast<unsigned char>(c));
      else
        out += c;
  }
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) append_json_escaped(out, c);
}

ValueReader::Status ValueReader::feed(char c, std::string& out) {
  if (begins_comment(c)) return Status::kMore;
  switch (state_) {
    case State::kValue:
    case State::kFirstValue: return on_value(c, out);
    case State::kKey:
    case State::kFirstKey: return on_key(c, out);
    case State::kBareKey: return on_bare_key(c, out);
    case State::kColon:
      if (is_blank(c)) return blank(c, out);
      if (c != ':') return Status::kBad;
      out += keeps_blanks(dialect_) ? ":" : ": ";
      state_ = State::kValue;
      return Status::kMore;
    case State::kString: return on_string(c, out);
    case State::kEscape: return on_escape(c, out);
    case State::kHex: return on_hex(c, out);
    case State::kBare: return on_bare(c, out);
    case State::kMark: return on_mark(c, out);
    case State::kMarked: return on_marked(c, out);
    case State::kAfter: return on_after(c, out);
    case State::kComment: return on_comment(c);
  }
  return Status::kBad;
}

ValueReader::Status ValueReader::finish(std::string& out) {
  if (!stack_.empty() || state_ != State::kBare) return Status::kBad;
  return end_bare(out) ? Status::kDone : Status::kBad;
}

// JSON keeps the white space between tokens. The other dialects get new white space.
ValueReader::Status ValueReader::blank(char c, std::string& out) {
  if (keeps_blanks(dialect_)) (comma_.empty() ? out : comma_) += c;
  return Status::kMore;
}

// Whether a comment begins with this byte, between two tokens of lenient JSON.
bool ValueReader::begins_comment(char c) {
  const bool is_between = state_ <= State::kFirstKey || state_ == State::kColon || state_ == State::kAfter;
  if ((c != '/' && c != '#') || !is_between || stack_.empty() || !repair()) return false;
  after_comment_ = state_;
  comment_ = c;
  state_ = State::kComment;
  return true;
}

// A comment is // or # up to the end of the line, or between /* and */.
ValueReader::Status ValueReader::on_comment(char c) {
  if (comment_ == "/") {
    comment_ += c;
    return c == '/' || c == '*' ? Status::kMore : Status::kBad;
  }
  const bool is_line = !comment_.starts_with("/*");
  if (is_line ? c == '\n' : comment_ == "/**" && c == '/') state_ = after_comment_;
  if (!is_line) comment_ = c == '*' ? "/**" : "/*";
  return Status::kMore;
}

void ValueReader::begin_item(std::string& out) { out += std::exchange(comma_, {}); }

ValueReader::Status ValueReader::open(char c, std::string& out) {
  if (stack_.size() == kMaxDepth) return Status::kBad;
  begin_item(out);
  stack_ += c;
  out += c == '[' ? '[' : '{';
  state_ = c == '[' ? State::kFirstValue : State::kFirstKey;
  return Status::kMore;
}

ValueReader::Status ValueReader::close(char c, std::string& out) {
  const char open = frame();
  if (!((open == '{' && c == '}') || (open == '[' && c == ']') || (open == '(' && c == ')'))) return Status::kBad;
  if (!comma_.empty()) repair();
  comma_.clear();  // Python and lenient JSON allow a comma at the end
  stack_.pop_back();
  out += c == ']' ? ']' : '}';
  state_ = State::kAfter;
  return stack_.empty() ? Status::kDone : Status::kMore;
}

ValueReader::Status ValueReader::on_value(char c, std::string& out) {
  if (is_blank(c)) return blank(c, out);
  if (c == '{' || c == '[' || (c == '(' && stack_.empty() && dialect_ == Dialect::kPython)) return open(c, out);
  if (c == ']' && state_ == State::kFirstValue) return close(c, out);
  if (dialect_ == Dialect::kGemma && !mark_.empty() && c == mark_[0]) {
    held_ = c;
    is_key_ = false;
    state_ = State::kMark;
    return Status::kMore;
  }
  if (is_quote(c)) {
    begin_item(out);
    out += '"';
    quote_ = c;
    is_key_ = false;
    state_ = State::kString;
    return Status::kMore;
  }
  if (!is_word_byte(c) && c != '-' && (dialect_ != Dialect::kGemma || c == ',' || c == '}' || c == ']'))
    return Status::kBad;
  held_ = c;
  state_ = State::kBare;
  return Status::kMore;
}

ValueReader::Status ValueReader::on_key(char c, std::string& out) {
  if (is_blank(c)) return blank(c, out);
  if (c == (frame() == '(' ? ')' : '}') && state_ == State::kFirstKey) return close(c, out);
  if (frame() != '(' && is_quote(c)) {
    begin_item(out);
    out += '"';
    quote_ = c;
    is_key_ = true;
    state_ = State::kString;
    return Status::kMore;
  }
  if (dialect_ == Dialect::kGemma && !mark_.empty() && c == mark_[0]) {
    held_ = c;
    is_key_ = true;
    state_ = State::kMark;
    return Status::kMore;
  }
  const bool has_bare_keys = frame() == '(' || dialect_ == Dialect::kGemma || dialect_ == Dialect::kLenient;
  if (!has_bare_keys || !is_word_byte(c)) return Status::kBad;
  repair();
  held_ = c;
  state_ = State::kBareKey;
  return Status::kMore;
}

ValueReader::Status ValueReader::on_bare_key(char c, std::string& out) {
  if (c == (frame() == '(' ? '=' : ':')) {
    const std::string_view key = trim(held_);
    if (dialect_ == Dialect::kLenient && !std::ranges::all_of(key, is_word_byte)) return Status::kBad;
    begin_item(out);
    out += '"';
    append_json_escaped(out, key);
    out += keeps_blanks(dialect_) ? "\":" : "\": ";
    held_.clear();
    state_ = State::kValue;
    return Status::kMore;
  }
  const bool goes_on =
      is_word_byte(c) || (frame() == '(' ? c == ' ' : std::string_view("{}[],\"").find(c) == held_.npos);
  if (!goes_on || held_.size() == kMaxKey) return Status::kBad;
  held_ += c;
  return Status::kMore;
}

ValueReader::Status ValueReader::end_string(std::string& out) {
  out += '"';
  held_.clear();
  state_ = is_key_ ? State::kColon : State::kAfter;
  return stack_.empty() ? Status::kDone : Status::kMore;
}

// JSON's parsers refuse half of a surrogate pair.
void ValueReader::end_half(std::string& out) {
  if (std::exchange(high_half_, {}).empty()) return;
  repair();
  out += kReplacement;
}

ValueReader::Status ValueReader::on_string(char c, std::string& out) {
  if (c != '\\') end_half(out);
  if (c == quote_) return end_string(out);
  if (c == '\\') {
    held_ = c;
    state_ = State::kEscape;
  } else if (c == '"' || static_cast<unsigned char>(c) < 0x20) {
    append_json_escaped(out, c);
  } else {
    out += c;
  }
  return Status::kMore;
}

ValueReader::Status ValueReader::on_escape(char c, std::string& out) {
  const bool python = dialect_ == Dialect::kPython || dialect_ == Dialect::kGemma;
  n_hex_ = c == 'u' ? 4 : python && c == 'x' ? 2 : python && c == 'U' ? 8 : 0;
  if (c != 'u') end_half(out);
  if (n_hex_ > 0) {
    held_ += c;
    state_ = State::kHex;
    return Status::kMore;
  }
  if (std::string_view("\"\\nrtbf").find(c) != std::string_view::npos || (c == '/' && !python)) {
    out += held_ + c;
  } else if (!python && !repair()) {
    return Status::kBad;
  } else if (c == '\'') {
    out += c;
  } else if (c != '\n' || !python) {  // in Python, a backslash joins lines, and stays if it begins no escape
    out += "\\\\";
    append_json_escaped(out, c);
  }
  held_.clear();
  state_ = State::kString;
  return Status::kMore;
}

ValueReader::Status ValueReader::on_hex(char c, std::string& out) {
  if (!is_hex(c)) {
    if (!repair()) return Status::kBad;
    end_half(out);
    append_json_escaped(out, std::exchange(held_, {}));
    state_ = State::kString;
    return on_string(c, out);
  }
  held_ += c;
  if (held_.size() < static_cast<size_t>(2 + n_hex_)) return Status::kMore;
  const unsigned code = static_cast<unsigned>(std::stoul(held_.substr(2), nullptr, 16));
  const bool is_high = code >= 0xD800 && code < 0xDC00, is_low = code >= 0xDC00 && code < 0xE000;
  if (held_[1] == 'u' && is_low && !high_half_.empty()) {
    out += std::exchange(high_half_, {}) + held_;
  } else {
    end_half(out);
    if (held_[1] == 'u' && is_high)
      high_half_ = held_;
    else if (is_high || is_low || code > 0x10FFFF)
      out += kReplacement, repair();
    else if (held_[1] == 'u')
      out += held_;
    else
      append_code_point(out, code);
  }
  held_.clear();
  state_ = State::kString;
  return Status::kMore;
}

bool ValueReader::end_bare(std::string& out) {
  const std::string_view word = trim(held_);
  std::string_view json = literal(word, dialect_);
  if (json.empty() && dialect_ == Dialect::kLenient) json = literal(word, Dialect::kPython), repair();
  if (json.empty() && dialect_ != Dialect::kGemma) return false;
  begin_item(out);
  if (json.empty()) {
    out += '"';
    append_json_escaped(out, word);
    out += '"';
  } else {
    out += json;
  }
  held_.clear();
  state_ = State::kAfter;
  return true;
}

ValueReader::Status ValueReader::on_bare(char c, std::string& out) {
  const bool goes_on = dialect_ == Dialect::kGemma ? c != ',' && c != '}' && c != ']'
                                                   : is_word_byte(c) || c == '+' || c == '-' || c == '.';
  if (goes_on) {
    held_ += c;
    return Status::kMore;
  }
  if (!end_bare(out)) return Status::kBad;
  if (begins_comment(c)) return Status::kMore;
  return stack_.empty() ? Status::kDoneBefore : on_after(c, out);
}

ValueReader::Status ValueReader::on_mark(char c, std::string& out) {
  if (c != mark_[held_.size()]) return Status::kBad;
  held_ += c;
  if (held_.size() < mark_.size()) return Status::kMore;
  held_.clear();
  begin_item(out);
  out += '"';
  state_ = State::kMarked;
  return Status::kMore;
}

// A failed match restarts at c at the earliest, because a mark does not contain its first byte again.
ValueReader::Status ValueReader::on_marked(char c, std::string& out) {
  if (c == mark_[held_.size()]) {
    held_ += c;
    return held_.size() == mark_.size() ? end_string(out) : Status::kMore;
  }
  append_json_escaped(out, held_);
  held_.clear();
  if (c == mark_[0])
    held_ = c;
  else
    append_json_escaped(out, c);
  return Status::kMore;
}

ValueReader::Status ValueReader::on_after(char c, std::string& out) {
  if (is_blank(c)) return blank(c, out);
  if (c != ',') return close(c, out);
  if (dialect_ == Dialect::kJson) {
    out += c;
    state_ = frame() == '[' ? State::kValue : State::kKey;
  } else {
    comma_ = dialect_ == Dialect::kLenient ? "," : ", ";
    state_ = frame() == '[' ? State::kFirstValue : State::kFirstKey;
  }
  return Status::kMore;
}

static std::string read_value(std::string_view text, ValueReader::Dialect dialect) {
  ValueReader reader(dialect);
  std::string out;
  auto status = ValueReader::Status::kMore;
  size_t n = 0;
  while (n < text.size() && status == ValueReader::Status::kMore) status = reader.feed(text[n++], out);
  if (status == ValueReader::Status::kMore) status = reader.finish(out);
  return status == ValueReader::Status::kDone && n == text.size() ? out : "";
}

std::string value_as_json(std::string_view text) {
  text = trim(text);
  std::string json = read_value(text, ValueReader::Dialect::kJson);
  if (!json.empty() || text.starts_with('(')) return json;  // a parenthesis begins call arguments, not a value
  return read_value(text, ValueReader::Dialect::kPython);
}

std::string string_of_json(std::string_view json) {
  const auto value = nlohmann::ordered_json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string lenient_as_json(std::string_view text) { return read_value(trim(text), ValueReader::Dialect::kLenient); }

}  // namespace ingot

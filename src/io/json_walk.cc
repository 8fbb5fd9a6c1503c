// walk_json: nlohmann's parser, with an offset for every event. The parser's interface has no offsets, so the parser
// reads the text through an iterator that reports its position.
#include <algorithm>
#include <iterator>

#include "base/json.h"
#include "io/json.h"

namespace ingot {
namespace {

using Kind = JsonEvent::Kind;

class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

class Walker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Walker(std::string_view text, const std::string& source, const std::function<void(const JsonEvent&)>& on_event)
      : text_(text), source_(source), on_event_(on_event), reached_(text.data()) {}

  void walk() {
    if (text_.starts_with("\xEF\xBB\xBF")) fail(0, "begins with a byte order mark: write it without one");
    // The parser would stop at a NUL.
    if (const size_t nul = text_.find('\0'); nul != text_.npos) fail(nul, "is not JSON: a NUL byte");
    const char* end = text_.data() + text_.size();
    nlohmann::json::sax_parse(Cursor(text_.data(), &reached_), Cursor(end, &reached_), this);
  }

  bool null() override { return event({.kind = Kind::kNull}); }
  bool boolean(bool value) override { return event({.kind = Kind::kBool, .integer = value}); }
  bool number_integer(int64_t value) override { return event({.kind = Kind::kInteger, .integer = value}); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX))
      return event({.kind = Kind::kReal, .real = static_cast<double>(value)});
    return event({.kind = Kind::kInteger, .integer = static_cast<int64_t>(value)});
  }
  bool number_float(double value, const std::string&) override { return event({.kind = Kind::kReal, .real = value}); }
  bool string(std::string& value) override { return event({.kind = Kind::kString, .text = value}); }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // not in JSON
  bool key(std::string& value) override { return event({.kind = Kind::kKey, .text = value}); }
  bool start_object(size_t) override { return event({.kind = Kind::kBeginObject}); }
  bool end_object() override { return event({.kind = Kind::kEndObject}); }
  bool start_array(size_t) override { return event({.kind = Kind::kBeginArray}); }
  bool end_array() override { return event({.kind = Kind::kEndArray}); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    if (const size_t tag = reason.find("] "); tag != reason.npos) reason.remove_prefix(tag + 2);
    if (const size_t place = reason.find("column "); place != reason.npos)
      if (const size_t colon = reason.find(": ", place); colon != reason.npos) reason.remove_prefix(colon + 2);
    fail(position > 0 ? position - 1 : 0, "is not JSON: " + printable(reason));
  }

 private:
  bool event(JsonEvent event) {
    const size_t end = static_cast<size_t>(reached_ - text_.data());
    const bool closes = event.kind == Kind::kEndObject || event.kind == Kind::kEndArray;
    event.offset = closes ? end : std::min(text_.find_first_not_of(" \t\r\n,:", done_), text_.size());
    done_ = end;
    if (event.kind == Kind::kBeginObject || event.kind == Kind::kBeginArray) {
      if (++depth_ > kMaxJsonDepth)
        fail(event.offset, fmt::format("is nested more than {} levels deep", kMaxJsonDepth));
    }
    depth_ -= closes;
    on_event_(event);
    return true;
  }

  [[noreturn]] void fail(size_t offset, const std::string& message) const {
    const std::string_view before = text_.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = offset - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    throw Error("{}: line {}, column {} (offset {}): {}", printable(source_), line, column, offset, message);
  }

  std::string_view text_;
  const std::string& source_;
  const std::function<void(const JsonEvent&)>& on_event_;
  const char* reached_;  // the parser's position; after a number, the parser has read one byte more
  size_t done_ = 0;
  int depth_ = 0;
};

}  // namespace

void walk_json(std::string_view text, const std::string& source,
               const std::function<void(const JsonEvent&)>& on_event) {
  Walker(text, source, on_event).walk();
}

}  // namespace ingot

// ValueReader: converts a value that a model writes to JSON text, byte by byte. Valid JSON stays unchanged, except that
// a number beyond the range of a double becomes the largest double, and half of a surrogate pair U+FFFD. Control
// characters in strings, which JSON forbids but models write, are escaped. Other dialects become JSON:
//   kLenient JSON as models write it: also Python's literals, single quotes, bare keys, commas before a closing
//            bracket, comments, and backslashes that begin no escape. Quotes within a string are never guessed. Valid
//            JSON stays unchanged.
//   kPython  literals as in Python, and the arguments of a call: (city='Paris', n=[1, None]) is
//            {"city": "Paris", "n": [1, null]}
//   kGemma   {city:<escape>Paris<escape>,n:1}: bare keys, strings between marks; words other than literals are strings
// Time is linear in the text. Memory is a byte for each level of nesting (at most kMaxDepth) and the held() bytes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot {

// The text between the quotes of a JSON string, for one byte or for several.
void append_json_escaped(std::string& out, char c);
void append_json_escaped(std::string& out, std::string_view text);

class ValueReader {
 public:
  enum class Dialect : uint8_t { kJson, kLenient, kPython, kGemma };
  // kDoneBefore: the value ended before this byte, which is not read. kBad: no value continues with this byte, which is
  // not read either.
  enum class Status : uint8_t { kMore, kDone, kDoneBefore, kBad };
  static constexpr size_t kMaxDepth = 256;

  // `mark` is the text around strings in kGemma. `mark` must outlive the reader.
  explicit ValueReader(Dialect dialect = Dialect::kJson, std::string_view mark = {}) : dialect_(dialect), mark_(mark) {}

  Status feed(char c, std::string& out);
  Status finish(std::string& out);                   // ends the text: kDone for a complete value, otherwise kBad
  std::string held() const { return high_half_ + held_; }  // read, but not yet in `out`
  bool is_repaired() const { return is_repaired_; }  // kLenient: the text so far is not valid JSON

 private:
  enum class State : uint8_t {
    kValue,
    kFirstValue,
    kKey,
    kFirstKey,
    kBareKey,
    kColon,
    kString,
    kEscape,
    kHex,
    kBare,
    kMark,
    kMarked,
    kAfter,
    kComment
  };

  Status on_value(char c, std::string& out);
  Status on_key(char c, std::string& out);
  Status on_bare_key(char c, std::string& out);
  Status on_string(char c, std::string& out);
  Status on_escape(char c, std::string& out);
  Status on_hex(char c, std::string& out);
  Status on_bare(char c, std::string& out);
  Status on_mark(char c, std::string& out);
  Status on_marked(char c, std::string& out);
  Status on_after(char c, std::string& out);
  Status on_comment(char c);
  bool begins_comment(char c);
  bool repair() { return dialect_ == Dialect::kLenient && (is_repaired_ = true); }
  bool is_quote(char c) { return c == '"' || (c == '\'' && (dialect_ == Dialect::kPython || repair())); }
  Status open(char c, std::string& out);
  Status close(char c, std::string& out);
  Status blank(char c, std::string& out);
  Status end_string(std::string& out);
  void end_half(std::string& out);
  bool end_bare(std::string& out);
  void begin_item(std::string& out);
  char frame() const { return stack_.empty() ? '\0' : stack_.back(); }

  Dialect dialect_;
  std::string_view mark_;
  State state_ = State::kValue;
  std::string stack_;  // open '{', '[' and '('
  std::string held_;
  std::string high_half_;  // the escape of the first half of a surrogate pair
  char quote_ = 0;
  bool is_key_ = false;
  std::string comma_;       // a comma, and in kLenient blanks after it, that were read but not yet written
  std::string comment_;     // the mark of the comment, then its last byte
  State after_comment_ = State::kValue;
  bool is_repaired_ = false;
  int n_hex_ = 0;
};

// Converts a value in JSON or in Python's literals to JSON text. Returns an empty text for anything else.
std::string value_as_json(std::string_view text);
// The text of a JSON string. Empty for anything else.
std::string string_of_json(std::string_view json);
// Like value_as_json, for a value in lenient JSON.
std::string lenient_as_json(std::string_view text);

}  // namespace ingot

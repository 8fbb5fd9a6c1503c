#include "text/calls/value_machine.h"

#include "base/ascii.h"
#include "base/utf8.h"
#include "text/calls/value_reader.h"

namespace ingot {
namespace {

constexpr size_t kMaxDepth = 250;
constexpr uint16_t kMaxKey = 256;    // as in ValueReader
constexpr int kMaxKeySearch = 4096;  // maximum number of tried bytes

enum Phase : uint8_t {
  kValue,
  kFirstValue,  // or the end of the array
  kKey,
  kFirstKey,  // or the end of the object
  kBareKey,
  kColon,
  kMark,    // inside the mark before a string
  kMarked,  // inside a string between marks
  kQuoted,  // inside a string between quotes
  kEscape,
  kHex,
  kBare,     // inside a number or a JSON word
  kLiteral,  // inside a Python word; `search.held` is its rest
  kAfter,    // after a value
  kDone,
};

enum Flag : uint8_t {
  kIsKey = 1,
  kMayBlank = 2,  // a blank may follow
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }
bool is_name_byte(char c) { return is_digit(c) || is_letter(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80; }

std::string escaped(std::string_view text) {
  std::string out;
  append_json_escaped(out, text);
  return out;
}

}  // namespace

// Place::text holds the open brackets.
ValueMachine::ValueMachine(const CallFormat& format, const MarkerSpelling& spelling, std::unique_ptr<Automaton> json)
    : TranslatedMachine(std::move(json)),
      python_(format.syntax == CallSyntax::kPython),
      mark_(spelling.spell(format.string_mark).bytes),
      mark_end_(format.string_mark, spelling) {}

ValueMachine::Place ValueMachine::begin() {
  Place place;
  place.json = json_->start();
  if (!python_) return place;
  put(place, "{");
  place.text = "(";
  place.phase = kFirstKey;
  return place;
}

bool ValueMachine::may_end(const Place& place) {
  if (!python_) return place.phase == kDone;
  const bool is_between = place.phase == kAfter || place.phase == kBare || place.phase == kFirstKey;
  return is_between && place.text == "(" && can_close(place);
}

bool ValueMachine::read(Place& place, char c) {
  if (c == ' ' && (place.flags & kMayBlank)) {
    place.flags &= static_cast<uint8_t>(~kMayBlank);
    return true;
  }
  switch (place.phase) {
    case kValue:
    case kFirstValue: return on_value(place, c);
    case kKey:
    case kFirstKey: return on_key(place, c);
    case kBareKey: return on_bare_key(place, c);
    case kColon:
      place.phase = kValue;
      place.flags = python_ ? kMayBlank : 0;
      return c == ':' && put(place, ":");
    case kMark: return on_mark(place, c);
    case kMarked: return on_marked(place, c);
    case kQuoted: return on_quoted(place, c);
    case kEscape: return on_escape(place, c);
    case kHex: return on_hex(place, c);
    case kBare:
      if (!is_digit(c) && !is_letter(c) && c != '+' && c != '-' && c != '.') return on_after(place, c);
      return put(place, {&c, 1});
    case kLiteral: return on_literal(place, c);
    case kAfter: return on_after(place, c);
    default: return false;
  }
}

bool ValueMachine::open(Place& place, char c) {
  if (place.text.size() == kMaxDepth) return false;
  place.text += c;
  place.phase = c == '{' ? kFirstKey : kFirstValue;
  return put(place, {&c, 1});
}

bool ValueMachine::begin_string(Place& place, char c, bool is_key) {
  place.flags = is_key ? kIsKey : 0;
  if (python_) {
    place.quote = static_cast<uint8_t>(c);
    place.phase = kQuoted;
    return (c == '"' || c == '\'') && put(place, "\"");
  }
  place.phase = kMark;
  place.at = 0;
  return put(place, "\"") && on_mark(place, c);
}

bool ValueMachine::end_string(Place& place) {
  place.phase = place.flags & kIsKey ? kColon : kAfter;
  place.flags = place.quote = 0;
  return put(place, "\"");
}

bool ValueMachine::on_value(Place& place, char c) {
  const bool may_close = place.phase == kFirstValue;
  place.flags = 0;
  if (c == ']' && may_close) return on_after(place, c);
  if (c == '{' || c == '[') return open(place, c);
  const bool is_mark = python_ ? c == '"' || c == '\'' : c == mark_[0];
  if (is_mark) return begin_string(place, c, false);
  if (python_ && (c == 'T' || c == 'F' || c == 'N')) {
    place.phase = kLiteral;
    place.search.held = c == 'T' ? "rue" : c == 'F' ? "alse" : "one";
    return put(place, c == 'T' ? "true" : c == 'F' ? "false" : "null");
  }
  const bool is_word = !python_ && (c == 't' || c == 'f' || c == 'n');
  place.phase = kBare;
  return (is_digit(c) || c == '-' || is_word) && put(place, {&c, 1});
}

bool ValueMachine::on_key(Place& place, char c) {
  const bool may_close = place.phase == kFirstKey && place.text.back() == '{';
  place.flags = 0;
  if (c == '}' && may_close) return on_after(place, c);
  const bool is_bare = (place.text.back() == '(' || !python_) && is_name_byte(c);
  if (!is_bare) return (place.text.back() != '(' && begin_string(place, c, true));
  place.phase = kBareKey;
  place.at = 0;
  return put(place, "\"") && on_bare_key(place, c);
}

bool ValueMachine::on_bare_key(Place& place, char c) {
  if (c == (python_ ? '=' : ':')) {
    place.phase = kValue;
    place.at = 0;
    return put(place, "\":");
  }
  int budget = kMaxKeySearch;
  return add_to_key(place, c) && can_end_key(place, budget);
}

bool ValueMachine::add_to_key(Place& place, char c) {
  const bool goes_on = is_name_byte(c) || (!python_ && static_cast<unsigned char>(c) > ' ' && c != 0x7F &&
                                           std::string_view(":{}[],\"").find(c) == std::string_view::npos);
  return goes_on && place.at++ + utf8_bytes_after(c) < kMaxKey && put(place, escaped({&c, 1}));
}

// Whether a bare name can complete the key. Returns true if the search takes too long.
bool ValueMachine::can_end_key(const Place& place, int& budget) {
  if (can_put(place, "\":") || --budget < 0) return true;
  for (int byte = '!'; byte < 256; ++byte) {
    spend(1);
    Place next;
    next.json = place.json;
    next.at = place.at;
    if (add_to_key(next, static_cast<char>(byte)) && can_end_key(next, budget)) return true;
  }
  return false;
}

bool ValueMachine::on_mark(Place& place, char c) {
  if (c != mark_[place.at]) return false;
  if (++place.at < mark_.size()) return true;
  place.at = 0;
  place.phase = kMarked;
  return true;
}

bool ValueMachine::on_marked(Place& place, char c) {
  std::string released;
  const auto found = place.search.feed(mark_end_, c, released);
  if (found == TerminatorSearch::Found::kNever || !put(place, escaped(released))) return false;
  if (found == TerminatorSearch::Found::kYes) return end_string(place);
  if (place.search.may_end(mark_end_) && can_put(place, "\"")) return true;
  return place.search.n_tokens == 0 && can_put(place, escaped(place.search.held));
}

bool ValueMachine::on_quoted(Place& place, char c) {
  if (static_cast<uint8_t>(c) == place.quote) return end_string(place);
  if (c == '\\') {
    place.phase = kEscape;
    return can_put(place, "\\") || can_put(place, "'");
  }
  return static_cast<unsigned char>(c) >= 0x20 && put(place, c == '"' ? "\\\"" : std::string(1, c));
}

bool ValueMachine::on_escape(Place& place, char c) {
  place.phase = c == 'u' ? kHex : kQuoted;
  place.at = 4;
  if (c == '\'') return put(place, "'");
  return std::string_view("\"\\nrtbfu").find(c) != std::string_view::npos && put(place, std::string("\\") + c);
}

bool ValueMachine::on_hex(Place& place, char c) {
  if (--place.at == 0) place.phase = kQuoted;
  return (is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f')) && put(place, {&c, 1});
}

bool ValueMachine::on_literal(Place& place, char c) {
  std::string& rest = place.search.held;
  if (c != rest[0]) return false;
  rest.erase(0, 1);
  if (rest.empty()) place.phase = kAfter;
  return true;
}

bool ValueMachine::on_after(Place& place, char c) {
  if (place.text.empty()) return false;
  const char frame = place.text.back();
  if (c == ',') {
    place.phase = frame == '[' ? kValue : kKey;
    place.flags = python_ ? kMayBlank : 0;
    return put(place, ",");
  }
  if (c != (frame == '[' ? ']' : '}') || frame == '(') return false;
  place.text.pop_back();
  place.phase = place.text.empty() ? kDone : kAfter;
  return put(place, {&c, 1});
}

}  // namespace ingot

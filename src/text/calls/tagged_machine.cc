#include "text/calls/tagged_machine.h"

#include "base/ascii.h"
#include "base/utf8.h"
#include "text/calls/value_reader.h"

namespace ingot {
namespace {

constexpr int kMaxTagName = 256;  // as in AnswerParser
constexpr uint16_t kMaxTagDepth = 250;

enum Phase : uint8_t {
  kBetween,  // between parameters
  kBegin,    // inside param_begin
  kKey,
  kFixed,   // reads the fixed text `text`, then enters the phase `quote`
  kChoice,  // inside value_begin or string_begin
  kMixed,   // before the first byte of a value of mixed type
  kText,    // inside an unquoted string
  kJson,
};

enum Flag : uint8_t {
  kHasMembers = 1,
  kAtStart = 2,    // at the start of a value, where a line break is layout
  kNewline = 4,    // a line break was read; it is layout if the value ends here
  kMayBeNull = 8,  // the value so far is in `text` and may become null; put() was not yet called
  kInString = 16,  // inside a JSON string
  kEscaped = 32,
};

std::string escaped(std::string_view text) {
  std::string out;
  append_json_escaped(out, text);
  return out;
}

bool begins_null(std::string_view text) {
  return std::string_view("null").starts_with(text) || std::string_view("None").starts_with(text);
}
bool is_null(std::string_view text) { return text == "null" || text == "None"; }

// Whether c cannot begin a JSON value or a Python literal.
bool begins_plain_text(char c) {
  return static_cast<unsigned char>(c) > ' ' && c != 0x7F &&
         std::string_view("\"'{}[](),:-+0123456789tfnTFN").find(c) == std::string_view::npos;
}

}  // namespace

TaggedMachine::TaggedMachine(const CallFormat& format, const MarkerSpelling& spelling, ParameterKinds kinds,
                             std::unique_ptr<Automaton> json)
    : TranslatedMachine(std::move(json)),
      format_(format),
      kinds_(std::move(kinds)),
      key_end_(format.key_end, spelling),
      param_end_(format.param_end, spelling),
      param_begin_(spelling.spell(format.param_begin).bytes),
      value_begin_(spelling.spell(format.value_begin).bytes),
      string_begin_(spelling.spell(format.string_begin).bytes) {}

TaggedMachine::Place TaggedMachine::begin() {
  Place place;
  place.json = json_->start();
  put(place, "{");
  return place;
}

bool TaggedMachine::may_end(const Place& place) { return place.phase == kBetween && can_close(place); }

bool TaggedMachine::read(Place& place, char c) {
  switch (place.phase) {
    case kBetween:
    case kBegin: return on_begin(place, c);
    case kKey: return on_key(place, c);
    case kFixed: return on_fixed(place, c);
    case kChoice: return on_choice(place, c);
    case kMixed: return on_value(place, c);
    case kText: return on_text(place, c);
    default: return on_json(place, c);
  }
}

void TaggedMachine::fixed(Place& place, std::string text, uint8_t next) {
  place.phase = text.empty() ? next : uint8_t{kFixed};
  place.quote = text.empty() ? uint8_t{0} : next;
  place.text = std::move(text);
}

bool TaggedMachine::on_fixed(Place& place, char c) {
  if (c != place.text[0]) return false;
  fixed(place, place.text.substr(1), place.quote);
  return true;
}

bool TaggedMachine::on_begin(Place& place, char c) {
  if (place.phase == kBetween) {
    if (!put(place, place.flags & kHasMembers ? ",\"" : "\"")) return false;
    place.flags = kHasMembers;
    place.at = 0;
    place.phase = kBegin;
  }
  if (c != param_begin_[place.at]) return false;
  if (++place.at < param_begin_.size()) return true;
  place.at = 0;
  place.phase = kKey;
  return true;
}

// ---- The name

// `at` counts the name's bytes. `quote` counts the bytes that the last character still needs. `text` is the name while
// some parameter's name begins with the same bytes. Most tokens begin no such name, so they share their places.
bool TaggedMachine::on_key(Place& place, char c) {
  std::string released;
  const auto found = place.search.feed(key_end_, c, released);
  if (found == TerminatorSearch::Found::kNever || !put(place, escaped(released))) return false;
  for (const char r : released) add_to_key(place, r);
  if (place.at + place.quote > kMaxTagName) return false;
  if (found == TerminatorSearch::Found::kYes) return end_key(place);
  if (place.search.may_end(key_end_) && can_put(place, "\":")) return true;
  if (place.search.n_tokens > 0 || place.at + static_cast<int>(place.search.held.size()) >= kMaxTagName) return false;
  return can_put(place, escaped(place.search.held));
}

void TaggedMachine::add_to_key(Place& place, char c) {
  const bool may_be_known = place.text.size() == place.at++;
  if (may_be_known) place.text += c;
  if (!may_be_known || !begins_known(place.text)) place.text.clear();
  const int n_after = utf8_bytes_after(c);
  place.quote = static_cast<uint8_t>(n_after > 0 ? n_after : std::max(place.quote - 1, 0));
}

bool TaggedMachine::begins_known(const std::string& text) const {
  const auto first = kinds_.named.lower_bound(text);
  return first != kinds_.named.end() && first->first.starts_with(text);
}

bool TaggedMachine::end_key(Place& place) {
  if (!put(place, "\":")) return false;
  const bool may_be_known = place.text.size() == place.at;
  const ParameterKind kind = may_be_known ? kinds_.of(place.text) : kinds_.others;
  place.text.clear();
  place.at = 0;
  place.quote = 0;
  if (!string_begin_.empty()) {  // the model marks strings
    place.phase = kChoice;
    return true;
  }
  const ParameterKind untyped = format_.untyped_is_json ? ParameterKind::kMixed : ParameterKind::kString;
  if (!begin_value(place, kind == ParameterKind::kUnknown ? untyped : kind)) return false;
  const uint8_t phase = place.phase;
  fixed(place, key_end_.layout + value_begin_, phase);
  return true;
}

bool TaggedMachine::on_choice(Place& place, char c) {
  place.text += c;
  const bool may_be_string = string_begin_.starts_with(place.text) && can_put(place, "\"");
  if (!may_be_string && !value_begin_.starts_with(place.text)) return false;
  const bool is_whole = place.text == (may_be_string ? string_begin_ : value_begin_);
  if (!is_whole) return true;
  place.text.clear();
  return begin_value(place, may_be_string ? ParameterKind::kString : ParameterKind::kOther);
}

// ---- Values

bool TaggedMachine::begin_value(Place& place, ParameterKind kind) {
  const bool skips_newline = format_.trims_value && key_end_.layout.empty();
  if (skips_newline) place.flags |= kAtStart;
  place.at = 0;
  place.phase = kind == ParameterKind::kOther ? kJson : kind == ParameterKind::kMixed ? kMixed : kText;
  if (kind == ParameterKind::kNullableString) place.flags |= kMayBeNull;
  return kind != ParameterKind::kString || put(place, "\"");
}

// A text that AnswerParser does not read as JSON is a string. Any other value must be JSON.
bool TaggedMachine::on_value(Place& place, char c) {
  if (c == '\n' && (place.flags & kAtStart)) {
    place.flags &= static_cast<uint8_t>(~kAtStart);
    return true;
  }
  place.flags &= static_cast<uint8_t>(~kAtStart);
  const bool is_text = c != param_end_.plain[0] && begins_plain_text(c) && can_put(place, "\"");
  place.phase = is_text ? kText : kJson;
  if (!is_text) return on_json(place, c);
  put(place, "\"");
  return on_text(place, c);
}

bool TaggedMachine::on_text(Place& place, char c) {
  std::string released;
  const auto found = place.search.feed(param_end_, c, released);
  if (found == TerminatorSearch::Found::kNever) return false;
  for (const char r : released)
    if (!text_byte(place, r)) return false;
  return found == TerminatorSearch::Found::kYes ? end_text(place) : is_text_alive(place);
}

bool TaggedMachine::text_byte(Place& place, char c) {
  const bool at_start = place.flags & kAtStart;
  place.flags &= static_cast<uint8_t>(~kAtStart);
  if (at_start && c == '\n') return true;
  if (format_.trims_value && c == '\n' && !(place.flags & kNewline)) {
    place.flags |= kNewline;
    return true;
  }
  if (place.flags & kMayBeNull) {
    if (!(place.flags & kNewline) && begins_null(place.text + c)) {
      place.text += c;
      return true;
    }
    place.flags &= static_cast<uint8_t>(~kMayBeNull);
    if (!put(place, "\"" + std::exchange(place.text, {}))) return false;
  }
  if ((place.flags & kNewline) && !put(place, "\\n")) return false;
  place.flags &= static_cast<uint8_t>(~kNewline);
  if (format_.trims_value && c == '\n') {
    place.flags |= kNewline;
    return true;
  }
  return put(place, escaped({&c, 1}));
}

bool TaggedMachine::end_text(Place& place) {
  const bool may_be_null = place.flags & kMayBeNull;
  const std::string text = std::exchange(place.text, {});
  if (!put(place, !may_be_null ? "\"" : is_null(text) ? "null" : '"' + text + '"')) return false;
  place.flags = kHasMembers;
  fixed(place, param_end_.layout, kBetween);
  return true;
}

// Whether the text can still end here or continue.
bool TaggedMachine::is_text_alive(const Place& place) {
  const bool may_be_null = place.flags & kMayBeNull;
  const std::string before = may_be_null ? '"' + place.text : "";
  const TerminatorSearch& search = place.search;
  const bool has_ended = may_be_null && is_null(place.text);
  if (search.may_end(param_end_) && can_put(place, has_ended ? "null" : before + '"')) return true;
  if (search.n_tokens > 0) return false;
  const bool is_null_open = may_be_null && search.held.empty() && !(place.flags & kNewline);
  if (is_null_open && can_put(place, "null")) return true;
  return can_put(place, before + (place.flags & kNewline ? "\\n" : "") + escaped(search.held));
}

bool TaggedMachine::on_json(Place& place, char c) {
  std::string released;
  const auto found = place.search.feed(param_end_, c, released);
  if (found == TerminatorSearch::Found::kNever) return false;
  for (const char r : released)
    if (!json_byte(place, r)) return false;
  if (found == TerminatorSearch::Found::kNo) {
    const std::string& held = place.search.held;
    if (place.search.may_end(param_end_) && is_value_whole(place)) return true;
    return place.search.n_tokens == 0 && (held.empty() || ((place.flags & kInString) && can_put(place, held)));
  }
  if (!is_value_whole(place)) return false;
  place.flags = kHasMembers;
  place.at = 0;
  fixed(place, param_end_.layout, kBetween);
  return true;
}

// `at` counts the open brackets. Outside of brackets, some bytes would end the member, so they are refused.
bool TaggedMachine::json_byte(Place& place, char c) {
  if (place.flags & kInString) {
    const bool is_escaped = place.flags & kEscaped;
    place.flags &= static_cast<uint8_t>(~kEscaped);
    if (!is_escaped && c == '\\') place.flags |= kEscaped;
    if (!is_escaped && c == '"') place.flags &= static_cast<uint8_t>(~kInString);
    return put(place, {&c, 1});
  }
  const bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
  if (place.at == 0 && (closes || c == ',' || c == ':')) return false;
  if (opens && place.at == kMaxTagDepth) return false;
  place.at = static_cast<uint16_t>(place.at + opens - closes);
  if (c == '"') place.flags |= kInString;
  return put(place, {&c, 1});
}

bool TaggedMachine::is_value_whole(const Place& place) {
  return place.at == 0 && !(place.flags & kInString) && (can_put(place, ",") || can_put(place, "}"));
}

}  // namespace ingot

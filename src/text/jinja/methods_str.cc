// The methods of str. Methods that return a string return Markup if the input is Markup.
#include <algorithm>
#include <optional>

#include "text/jinja/format.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

std::string_view wanted_text(const Value& value, const char* what) {
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is_string()) throw Error("{} must be str, not {}", what, value.type_name());
  return value.text();
}

Value like(Runtime& rt, const Value& self, std::string text) { return rt.text(std::move(text), self.str().markup); }
Value like(Runtime& rt, const Value& self, std::string_view text) { return like(rt, self, std::string(text)); }

template <std::string (*kMap)(std::string_view)>
Value mapped(Runtime& rt, const Value& self, const Params&) {
  rt.meter.spend(self.text().size() / 8);
  return like(rt, self, kMap(self.text()));
}

template <bool kLeft, bool kRight>
Value stripped(Runtime& rt, const Value& self, const Params& p) {
  std::string_view chars;
  if (p.given(0) != nullptr) chars = wanted_text(*p[0], "strip arg");
  rt.meter.spend(1 + self.text().size() / 32 * (1 + chars.size() / 8));
  return like(rt, self, strip(self.text(), p.given(0) != nullptr ? &chars : nullptr, kLeft, kRight));
}

// ---- search

// The part of the text between start and end (in code points, as for slices); nothing if start is after the end.
struct Window {
  std::string_view text;
  size_t first_char;  // in the whole text
};

std::optional<Window> window(Runtime& rt, const Str& str, const Params& p, size_t start_slot) {
  rt.meter.read(str.text.size());
  const auto n = static_cast<Int>(str.n_chars);
  auto bound = [&](size_t slot, Int fallback) {
    Int i = p.given(slot) != nullptr ? p.integer(slot, fallback) : fallback;
    return i < 0 ? std::max<Int>(i + n, 0) : i;
  };
  const Int start = bound(start_slot, 0), end = std::min(bound(start_slot + 1, n), n);
  if (start > end) return std::nullopt;
  auto byte = [&](Int i) {
    return str.ascii() ? static_cast<size_t>(i) : byte_of_char(str.text, static_cast<size_t>(i));
  };
  const size_t from = byte(start);
  return Window{std::string_view(str.text).substr(from, byte(end) - from), static_cast<size_t>(start)};
}

template <bool kEnd>
Value affixed(Runtime& rt, const Value& self, const Params& p) {
  const auto in = window(rt, self.str(), p, 1);
  auto matches = [&](const Value& affix) {
    const std::string_view text = wanted_text(affix, kEnd ? "endswith first arg" : "startswith first arg");
    if (!in || text.size() > in->text.size()) return false;
    return in->text.substr(kEnd ? in->text.size() - text.size() : 0, text.size()) == text;
  };
  if (!p[0]->is_tuple()) return Value::boolean(matches(*p[0]));
  return Value::boolean(std::any_of(p[0]->items().begin(), p[0]->items().end(), matches));
}

template <bool kReverse, bool kMustFind>
Value found_at(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view needle = wanted_text(*p[0], "argument");
  const auto in = window(rt, self.str(), p, 1);
  size_t at = kNone;
  if (in && kReverse) rt.meter.spend(in->text.size() / 32 * (1 + needle.size() / 8));
  if (in) at = kReverse ? in->text.rfind(needle) : find_text(in->text, needle);
  if (at == kNone && kMustFind) throw Error("substring not found");
  if (at == kNone) return Value::integer(-1);
  return Value::integer(static_cast<Int>(in->first_char + count_chars(in->text.substr(0, at))));
}

Value count(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view needle = wanted_text(*p[0], "argument");
  const auto in = window(rt, self.str(), p, 1);
  Int n = 0;
  if (!in) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<Int>(count_chars(in->text)) + 1);
  for (size_t at = 0; (at = find_text(in->text, needle, at)) != kNone; at += needle.size()) ++n;
  return Value::integer(n);
}

Value replace(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view text = self.text(), old = wanted_text(*p[0], "replace() argument 1");
  std::string fresh(wanted_text(*p[1], "replace() argument 2"));
  if (self.str().markup && !p[1]->str().markup) fresh = html_escape(fresh);
  Int left = p.integer(2, -1);
  rt.meter.read(text.size());
  std::string out;
  size_t at = 0;
  while (left != 0) {
    const size_t next = find_text(text, old, at);
    if (next == kNone) break;
    const size_t skipped =
        old.empty() && next < text.size() ? char_at(text, next).n_bytes : 0;  // '' matches before each character
    rt.meter.fits(out.size() + next - at + fresh.size() + skipped);
    rt.meter.read(fresh.size());
    out += text.substr(at, next - at);
    out += fresh;
    out += text.substr(next, skipped);
    at = next + old.size() + skipped;
    --left;
    if (old.empty() && next == text.size()) break;
  }
  if (at < text.size()) out += text.substr(at);
  return like(rt, self, std::move(out));
}

// ---- split and join

Value pieces(Runtime& rt, const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (std::string_view part : parts) items.push_back(Value::string(std::string(part), self.str().markup));
  return rt.list(std::move(items));
}

void add_piece(Runtime& rt, std::vector<std::string_view>& parts, std::string_view part) {
  rt.meter.items(1);
  if (parts.size() >= Meter::kMaxItems) rt.meter.items(parts.size() + 1);
  parts.push_back(part);
}

std::vector<std::string_view> split_at_space(Runtime& rt, std::string_view text, Int max) {
  std::vector<std::string_view> parts;
  text = strip(text, nullptr, true, false);
  while (!text.empty()) {
    size_t end = 0;
    while (end < text.size() && !is_space(char_at(text, end).code)) end += char_at(text, end).n_bytes;
    if (max == 0) {
      add_piece(rt, parts, text);  // keeps the white space at its end
      break;
    }
    add_piece(rt, parts, text.substr(0, end));
    text = strip(text.substr(end), nullptr, true, false);
    --max;
  }
  return parts;
}

std::vector<std::string_view> split_at_space_from_end(Runtime& rt, std::string_view text, Int max) {
  std::vector<std::string_view> parts;
  text = strip(text, nullptr, false, true);
  while (!text.empty()) {
    if (max == 0) {
      add_piece(rt, parts, text);  // keeps the white space in front of it
      break;
    }
    size_t start = text.size();
    while (start > 0) {  // to the end of the last white space
      size_t c = start - 1;
      while (c > 0 && (static_cast<unsigned char>(text[c]) & 0xC0) == 0x80) --c;
      if (is_space(char_at(text, c).code)) break;
      start = c;
    }
    add_piece(rt, parts, text.substr(start));
    text = strip(text.substr(0, start), nullptr, false, true);
    --max;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(Runtime& rt, std::string_view text, std::string_view separator, Int max) {
  std::vector<std::string_view> parts;
  size_t at = 0;
  for (; max != 0; --max) {
    const size_t next = find_text(text, separator, at);
    if (next == kNone) break;
    add_piece(rt, parts, text.substr(at, next - at));
    at = next + separator.size();
  }
  add_piece(rt, parts, text.substr(at));
  return parts;
}

std::vector<std::string_view> split_at_from_end(Runtime& rt, std::string_view text, std::string_view separator,
                                                Int max) {
  std::vector<std::string_view> parts;
  rt.meter.spend(text.size() / 32 * (1 + separator.size() / 8));
  for (; max != 0; --max) {
    const size_t next = text.rfind(separator);
    if (next == kNone) break;
    add_piece(rt, parts, text.substr(next + separator.size()));
    text = text.substr(0, next);
  }
  add_piece(rt, parts, text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool kReverse>
Value split(Runtime& rt, const Value& self, const Params& p) {
  const Int max = p.integer(1, -1);
  rt.meter.make(self.text().size());
  if (p.given(0) == nullptr) {
    rt.meter.spend(self.text().size() / 8);
    return pieces(rt, self,
                  kReverse ? split_at_space_from_end(rt, self.text(), max) : split_at_space(rt, self.text(), max));
  }
  const std::string_view separator = wanted_text(*p[0], "separator");
  if (separator.empty()) throw Error("empty separator");
  return pieces(
      rt, self,
      kReverse ? split_at_from_end(rt, self.text(), separator, max) : split_at(rt, self.text(), separator, max));
}

template <bool kReverse>
Value partition(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view text = self.text(), separator = wanted_text(*p[0], "separator");
  if (separator.empty()) throw Error("empty separator");
  rt.meter.make(text.size());
  if (kReverse) rt.meter.spend(text.size() / 32 * (1 + separator.size() / 8));
  const size_t at = kReverse ? text.rfind(separator) : find_text(text, separator);
  std::string_view parts[3] = {text, "", ""};
  if (at != kNone) {
    parts[0] = text.substr(0, at), parts[1] = separator, parts[2] = text.substr(at + separator.size());
  } else if (kReverse) {
    std::swap(parts[0], parts[2]);
  }
  std::vector<Value> items;
  for (std::string_view part : parts) items.push_back(Value::string(std::string(part), self.str().markup));
  return rt.tuple(std::move(items));
}

Value split_into_lines(Runtime& rt, const Value& self, const Params& p) {
  rt.meter.items(std::min(self.text().size() / 4, Meter::kMaxItems));
  return pieces(rt, self, split_lines(self.text(), p.boolean(0, false)));
}

Value join(Runtime& rt, const Value& self, const Params& p) {
  std::string out;
  bool is_first = true;
  for (const Value& item : rt.iterate(*p[0])) {
    std::string text;
    if (!self.str().markup) {
      text = wanted_text(item, "sequence item");
    } else {  // Markup converts any value to text
      text = item.is_string() && item.str().markup ? item.text() : html_escape(rt.str(item));
    }
    rt.meter.fits(out.size() + self.text().size() + text.size());
    rt.meter.read(text.size());
    if (!is_first) out += self.text();
    out += text;
    is_first = false;
  }
  return like(rt, self, std::move(out));
}

// ---- padding

enum class Align { kLeft, kRight, kCenter };

template <Align kAlign>
Value justified(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view fill = p[1] != nullptr ? wanted_text(*p[1], "fill character") : std::string_view(" ");
  if (count_chars(fill) != 1) throw Error("The fill character must be exactly one character long");
  const Int width = p.integer(0, 0), n = static_cast<Int>(self.str().n_chars);
  if (width <= n) return self;
  const size_t gap = width - n > Int(1) << 40 ? size_t(1) << 40 : static_cast<size_t>(width - n);
  rt.meter.make(fill.size(), gap);
  // Python's center puts the odd space on the left only if both the gap and the width are odd.
  const size_t left = kAlign == Align::kLeft    ? 0
                      : kAlign == Align::kRight ? gap
                                                : gap / 2 + (gap & static_cast<size_t>(width) & 1);
  std::string out;
  for (size_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (size_t i = left; i < gap; ++i) out += fill;
  return like(rt, self, std::move(out));
}

Value zero_filled(Runtime& rt, const Value& self, const Params& p) {
  const Int width = p.integer(0, 0), n = static_cast<Int>(self.str().n_chars);
  if (width <= n) return self;
  const size_t gap = width - n > Int(1) << 40 ? size_t(1) << 40 : static_cast<size_t>(width - n);
  rt.meter.make(1, gap);
  std::string out = self.text();
  return like(rt, self, out.insert(!out.empty() && (out[0] == '-' || out[0] == '+'), gap, '0'));
}

template <bool kEnd>
Value without_affix(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view text = self.text(), affix = wanted_text(*p[0], "argument");
  if (affix.size() > text.size() || text.substr(kEnd ? text.size() - affix.size() : 0, affix.size()) != affix)
    return self;
  return like(rt, self, kEnd ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()));
}

// ---- questions

template <bool (*kIs)(char32_t), bool kOfEmpty = false>
Value all_are(Runtime& rt, const Value& self, const Params&) {
  rt.meter.spend(self.text().size() / 4);
  for (size_t i = 0; i < self.text().size();) {
    const Char c = char_at(self.text(), i);
    if (!kIs(c.code)) return Value::boolean(false);
    i += c.n_bytes;
  }
  return Value::boolean(kOfEmpty || !self.text().empty());
}

bool is_alnum(char32_t c) { return c != '_' && is_word(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

template <bool kUpper>
Value is_case(Runtime& rt, const Value& self, const Params&) {
  Args none;
  return Value::boolean(rt.call_test(kUpper ? "upper" : "lower", self, none));
}

Value is_title(Runtime& rt, const Value& self, const Params&) {
  rt.meter.spend(self.text().size() / 4);
  bool in_word = false, found = false;
  for (size_t i = 0; i < self.text().size();) {
    const Char c = char_at(self.text(), i);
    const bool upper = is_upper(c.code), lower = is_lower(c.code);
    if ((upper && in_word) || (lower && !in_word)) return Value::boolean(false);
    in_word = upper || lower;
    found = found || in_word;
    i += c.n_bytes;
  }
  return Value::boolean(found);
}

Value format(Runtime& rt, const Value& self, const Params& p) {
  return like(rt, self, brace_format(rt, self.str(), *p.all));
}

constexpr Builtin kMethods[] = {
    {"capitalize", mapped<to_capitalized>},
    {"center", justified<Align::kCenter>, 1, {"width", "fillchar"}},
    {"count", count, 1, {"sub", "start", "end"}},
    {"endswith", affixed<true>, 1, {"suffix", "start", "end"}},
    {"find", found_at<false, false>, 1, {"sub", "start", "end"}},
    {"format", format, 0, {}, true},
    {"index", found_at<false, true>, 1, {"sub", "start", "end"}},
    {"isalnum", all_are<is_alnum>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", all_are<is_ascii, true>},
    {"isdecimal", all_are<is_digit>},
    {"isdigit", all_are<is_digit>},
    {"islower", is_case<false>},
    {"isnumeric", all_are<is_digit>},
    {"isprintable", all_are<is_printable, true>},
    {"isspace", all_are<is_space>},
    {"istitle", is_title},
    {"isupper", is_case<true>},
    {"join", join, 1, {"iterable"}},
    {"ljust", justified<Align::kLeft>, 1, {"width", "fillchar"}},
    {"lower", mapped<to_lower>},
    {"lstrip", stripped<true, false>, 0, {"chars"}},
    {"partition", partition<false>, 1, {"sep"}},
    {"removeprefix", without_affix<false>, 1, {"prefix"}},
    {"removesuffix", without_affix<true>, 1, {"suffix"}},
    {"replace", replace, 2, {"old", "new", "count"}},
    {"rfind", found_at<true, false>, 1, {"sub", "start", "end"}},
    {"rindex", found_at<true, true>, 1, {"sub", "start", "end"}},
    {"rjust", justified<Align::kRight>, 1, {"width", "fillchar"}},
    {"rpartition", partition<true>, 1, {"sep"}},
    {"rsplit", split<true>, 0, {"sep", "maxsplit"}},
    {"rstrip", stripped<false, true>, 0, {"chars"}},
    {"split", split<false>, 0, {"sep", "maxsplit"}},
    {"splitlines", split_into_lines, 0, {"keepends"}},
    {"startswith", affixed<false>, 1, {"prefix", "start", "end"}},
    {"strip", stripped<true, true>, 0, {"chars"}},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<to_title>},
    {"upper", mapped<to_upper>},
    {"zfill", zero_filled, 1, {"width"}},
};

}  // namespace

std::span<const Builtin> string_methods() { return kMethods; }

}  // namespace ingot::jinja

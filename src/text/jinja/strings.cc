// The methods of str, then the filters that make text. Methods that return a string return Markup if the input is
// Markup.
#include <algorithm>
#include <optional>

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

Value like(Runtime& rt, const Value& self, std::string text) { return rt.text(std::move(text), self.is_markup()); }
Value like(Runtime& rt, const Value& self, std::string_view text) { return like(rt, self, std::string(text)); }

// Charges for a search from the end, whose time grows with both lengths.
void spend_for_rfind(Runtime& rt, std::string_view text, std::string_view needle) {
  rt.meter.spend(text.size() / 32 * (1 + needle.size() / 8));
}

template <Casing kCasing>
Value cased(Runtime& rt, const Value& self, const Params&) {
  rt.meter.spend(self.text().size() / 8);
  return like(rt, self, with_case(self.text(), kCasing));
}

template <bool kLeft, bool kRight>
Value stripped(Runtime& rt, const Value& self, const Params& p) {
  std::string_view chars;
  if (p.given(0) != nullptr) chars = wanted_text(*p[0], "strip arg");
  rt.meter.spend(1 + self.text().size() / 32 * (1 + chars.size() / 8));
  return like(rt, self, strip(self.text(), p.given(0) != nullptr ? &chars : nullptr, kLeft, kRight));
}

// ---- Search

// The part of the text between start and end (in code points, as for slices); nothing if start is after the end.
struct Window {
  std::string_view text;
  size_t first_char;  // in the whole text
};

std::optional<Window> window(Runtime& rt, const Str& str, const Params& p) {
  rt.meter.read(str.text.size());
  const auto n = static_cast<Int>(str.n_chars);
  auto bound = [&](size_t slot, Int fallback) {
    const Int i = p.given(slot) != nullptr ? p.integer(slot, fallback) : fallback;
    return i < 0 ? std::max<Int>(i + n, 0) : i;
  };
  const Int start = bound(1, 0), end = std::min(bound(2, n), n);
  if (start > end) return std::nullopt;
  const auto first = static_cast<size_t>(start);
  const size_t from = str.byte_of(first), to = str.byte_of(static_cast<size_t>(end));
  return Window{std::string_view(str.text).substr(from, to - from), first};
}

bool has_affix(std::string_view text, std::string_view affix, bool at_end) {
  return at_end ? text.ends_with(affix) : text.starts_with(affix);
}

template <bool kEnd>
Value affixed(Runtime& rt, const Value& self, const Params& p) {
  const auto in = window(rt, self.str(), p);
  auto matches = [&](const Value& affix) {
    const std::string_view text = wanted_text(affix, kEnd ? "endswith first arg" : "startswith first arg");
    return in && has_affix(in->text, text, kEnd);
  };
  if (!p[0]->is_tuple()) return Value::boolean(matches(*p[0]));
  return Value::boolean(std::any_of(p[0]->items().begin(), p[0]->items().end(), matches));
}

template <bool kEnd>
Value without_affix(Runtime& rt, const Value& self, const Params& p) {
  std::string_view text = self.text();
  const std::string_view affix = wanted_text(*p[0], "argument");
  if (!has_affix(text, affix, kEnd)) return self;
  kEnd ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  return like(rt, self, text);
}

template <bool kReverse, bool kMustFind>
Value found_at(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view needle = wanted_text(*p[0], "argument");
  const auto in = window(rt, self.str(), p);
  if (in && kReverse) spend_for_rfind(rt, in->text, needle);
  const size_t at = !in ? kNone : kReverse ? in->text.rfind(needle) : find_text(in->text, needle);
  if (at == kNone && kMustFind) throw Error("substring not found");
  if (at == kNone) return Value::integer(-1);
  return Value::integer(static_cast<Int>(in->first_char + count_chars(in->text.substr(0, at))));
}

Value count(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view needle = wanted_text(*p[0], "argument");
  const auto in = window(rt, self.str(), p);
  if (!in) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<Int>(count_chars(in->text)) + 1);
  Int n = 0;
  for (size_t at = 0; (at = find_text(in->text, needle, at)) != kNone; at += needle.size()) ++n;
  return Value::integer(n);
}

Value replace(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view text = self.text(), old = wanted_text(*p[0], "replace() argument 1");
  std::string fresh(wanted_text(*p[1], "replace() argument 2"));
  if (self.is_markup() && !p[1]->is_markup()) fresh = html_escape(fresh);
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

// ---- Split and join

std::vector<Value> strings_like(const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (std::string_view part : parts) items.push_back(Value::string(std::string(part), self.is_markup()));
  return items;
}

// A separator in a text.
struct Cut {
  size_t begin, end;
};

std::optional<Cut> first_space(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    if (is_space(c.code)) return Cut{i, i + c.n_bytes};
    i += c.n_bytes;
  }
  return std::nullopt;
}

std::optional<Cut> last_space(std::string_view text) {
  for (size_t end = text.size(); end > 0;) {
    const size_t begin = last_char(text.substr(0, end));
    if (is_space(char_at(text, begin).code)) return Cut{begin, end};
    end = begin;
  }
  return std::nullopt;
}

// Cuts pieces off the front of the text, or off the end for rsplit. The rest of the text is the last piece.
template <bool kReverse>
Value split(Runtime& rt, const Value& self, const Params& p) {
  Int n_left = p.integer(1, -1);  // cuts; a negative number has no limit
  std::string_view text = self.text(), separator;
  const bool at_space = p.given(0) == nullptr;
  rt.meter.make(text.size());
  if (at_space) {
    rt.meter.spend(text.size() / 8);
  } else {
    separator = wanted_text(*p[0], "separator");
    if (separator.empty()) throw Error("empty separator");
    if (kReverse) spend_for_rfind(rt, text, separator);
  }
  auto find = [&]() -> std::optional<Cut> {
    if (at_space) return kReverse ? last_space(text) : first_space(text);
    const size_t at = kReverse ? text.rfind(separator) : find_text(text, separator);
    return at == kNone ? std::nullopt : std::optional(Cut{at, at + separator.size()});
  };
  std::vector<std::string_view> parts;
  while (true) {
    if (at_space) text = strip(text, nullptr, !kReverse, kReverse);
    if (at_space && text.empty()) break;
    rt.meter.items(1);
    if (parts.size() >= Meter::kMaxItems) rt.meter.items(parts.size() + 1);
    const auto cut = n_left == 0 ? std::nullopt : find();
    parts.push_back(!cut ? text : kReverse ? text.substr(cut->end) : text.substr(0, cut->begin));
    if (!cut) break;
    text = kReverse ? text.substr(0, cut->begin) : text.substr(cut->end);
    --n_left;
  }
  if (kReverse) std::reverse(parts.begin(), parts.end());
  return rt.list(strings_like(self, parts));
}

template <bool kReverse>
Value partition(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view text = self.text(), separator = wanted_text(*p[0], "separator");
  if (separator.empty()) throw Error("empty separator");
  rt.meter.make(text.size());
  if (kReverse) spend_for_rfind(rt, text, separator);
  const size_t at = kReverse ? text.rfind(separator) : find_text(text, separator);
  if (at == kNone && kReverse) return rt.tuple(strings_like(self, {"", "", text}));
  if (at == kNone) return rt.tuple(strings_like(self, {text, "", ""}));
  return rt.tuple(strings_like(self, {text.substr(0, at), separator, text.substr(at + separator.size())}));
}

Value split_into_lines(Runtime& rt, const Value& self, const Params& p) {
  rt.meter.items(std::min(self.text().size() / 4, Meter::kMaxItems));
  return rt.list(strings_like(self, split_lines(self.text(), p.boolean(0, false))));
}

Value join(Runtime& rt, const Value& self, const Params& p) {
  std::string out;
  bool is_first = true;
  for (const Value& item : rt.iterate(*p[0])) {
    std::string text;
    if (!self.is_markup()) {
      text = wanted_text(item, "sequence item");
    } else {  // Markup converts any value to text
      text = item.is_markup() ? item.text() : html_escape(rt.str(item));
    }
    rt.meter.fits(out.size() + self.text().size() + text.size());
    rt.meter.read(text.size());
    if (!is_first) out += self.text();
    out += text;
    is_first = false;
  }
  return like(rt, self, std::move(out));
}

// ---- Padding

enum class Align { kLeft, kRight, kCenter };

template <Align kAlign>
Value justified(Runtime& rt, const Value& self, const Params& p) {
  const std::string_view fill = p[1] != nullptr ? wanted_text(*p[1], "fill character") : std::string_view(" ");
  if (count_chars(fill) != 1) throw Error("The fill character must be exactly one character long");
  const Int width = p.integer(0, 80), n = static_cast<Int>(self.str().n_chars);
  if (width <= n) return self;
  const size_t gap = rt.meter.make_repeated(fill.size(), width - n);
  // Python's center puts the odd space on the left only if both the gap and the width are odd.
  const size_t left = kAlign == Align::kLeft    ? 0
                      : kAlign == Align::kRight ? gap
                                                : gap / 2 + (gap & static_cast<size_t>(width) & 1);
  return like(rt, self, repeat(fill, left) + self.text() + repeat(fill, gap - left));
}

Value zero_filled(Runtime& rt, const Value& self, const Params& p) {
  const Int width = p.integer(0, 0), n = static_cast<Int>(self.str().n_chars);
  if (width <= n) return self;
  const size_t gap = rt.meter.make_repeated(1, width - n);
  std::string out = self.text();
  return like(rt, self, out.insert(!out.empty() && (out[0] == '-' || out[0] == '+'), gap, '0'));
}

// ---- Questions

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

Value brace_formatted(Runtime& rt, const Value& self, const Params& p) {
  return like(rt, self, brace_format(rt, self.str(), *p.all));
}

constexpr Builtin kMethods[] = {
    {"capitalize", cased<Casing::kCapitalized>},
    {"center", justified<Align::kCenter>, 1, {"width", "fillchar"}},
    {"count", count, 1, {"sub", "start", "end"}},
    {"endswith", affixed<true>, 1, {"suffix", "start", "end"}},
    {"find", found_at<false, false>, 1, {"sub", "start", "end"}},
    {"format", brace_formatted, 0, {}, true},
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
    {"lower", cased<Casing::kLower>},
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
    {"swapcase", cased<Casing::kSwapped>},
    {"title", cased<Casing::kTitle>},
    {"upper", cased<Casing::kUpper>},
    {"zfill", zero_filled, 1, {"width"}},
};

// ---- Filters

Value string(Runtime& rt, const Value& self, const Params&) { return self.is_string() ? self : rt.text(rt.str(self)); }

// A method of str as a filter of any value. Markup stays Markup.
template <Value (*kMethod)(Runtime&, const Value&, const Params&)>
Value of_string(Runtime& rt, const Value& self, const Params& p) {
  return kMethod(rt, string(rt, self, p), p);
}

// jinja2's own title: words begin after white space, hyphens and opening brackets.
Value title(Runtime& rt, const Value& self, const Params&) {
  const std::string text = rt.str(self);
  rt.meter.spend(text.size() / 4);
  auto breaks = [](char32_t c) {
    return is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const bool gap = breaks(char_at(text, i).code);
    while (i < text.size() && breaks(char_at(text, i).code) == gap) i += char_at(text, i).n_bytes;
    const std::string_view run = std::string_view(text).substr(start, i - start);
    const size_t first = char_at(run, 0).n_bytes;
    out += gap ? std::string(run)
               : with_case(run.substr(0, first), Casing::kUpper) + with_case(run.substr(first), Casing::kLower);
  }
  return rt.text(std::move(out));
}

Value replace_any(Runtime& rt, const Value& self, const Params& p) {
  const Value old = rt.text(rt.str(*p[0])), fresh = rt.text(rt.str(*p[1]));
  Params texts;
  texts.slots = {&old, &fresh, p.given(2)};
  return replace(rt, rt.text(rt.str(self)), texts);
}

Value safe(Runtime& rt, const Value& self, const Params&) {
  return self.is_markup() ? self : rt.text(rt.str(self), true);
}
Value force_escape(Runtime& rt, const Value& self, const Params&) { return rt.text(html_escape(rt.str(self)), true); }
Value escape(Runtime& rt, const Value& self, const Params& p) {
  return self.is_markup() ? self : force_escape(rt, self, p);
}

Value format(Runtime& rt, const Value& self, const Params& p) {
  if (!p.all->positional.empty() && !p.all->keyword.empty()) {
    throw Error("format cannot handle positional and keyword arguments at the same time");
  }
  Value values;
  if (p.all->keyword.empty()) {
    values = rt.tuple(p.all->positional);
  } else {
    auto dict = std::make_shared<Dict>();
    p.all->add_keywords_to(*dict, rt.meter);
    values = Value::dict(std::move(dict));
  }
  return rt.binary(Op::kMod, string(rt, self, p), values);
}

// An indentation: the argument's text, or as many spaces as the argument says.
std::string indentation(Runtime& rt, const Params& p, size_t slot, Int fallback) {
  if (p[slot] != nullptr && p[slot]->is_string()) return p[slot]->text();
  return std::string(rt.meter.make_repeated(1, p.integer(slot, fallback)), ' ');
}

Value indent(Runtime& rt, const Value& self, const Params& p) {
  if (self.is_undefined()) self.fail_undefined();
  if (!self.is_string()) throw Error("indent works on text, not on {}", self.type_name());
  const std::string unit = indentation(rt, p, 0, 4);
  const bool first = p.boolean(1, false), blank = p.boolean(2, false);
  const std::string text = self.text() + "\n";
  rt.meter.items(text.size() / 16);
  std::string out;
  bool is_first = true;
  for (std::string_view line : split_lines(text, false)) {
    if (!is_first) out += '\n';
    const bool indents = is_first ? first : blank || !line.empty();
    rt.meter.fits(out.size() + unit.size() + line.size());
    if (indents) out += unit;
    out += line;
    is_first = false;
  }
  return like(rt, self, std::move(out));
}

Value truncate(Runtime& rt, const Value& self, const Params& p) {
  const std::string end = p[2] != nullptr ? rt.str(*p[2]) : "...";
  const Int length = p.integer(0, 255), leeway = p.given(3) != nullptr ? p.integer(3, 5) : 5,
            tail = static_cast<Int>(count_chars(end));
  if (length < tail) throw Error("truncate: expected length >= {}, got {}", tail, length);
  if (leeway < 0) throw Error("truncate: expected leeway >= 0, got {}", leeway);
  if (self.is_undefined() || static_cast<Int>(rt.length(self)) <= length + leeway) return self;
  if (!self.is_string()) throw Error("truncate works on text, not on {}", self.type_name());
  std::string cut = self.text().substr(0, byte_of_char(self.text(), static_cast<size_t>(length - tail)));
  if (!p.boolean(1, false)) cut.resize(std::min(cut.rfind(' '), cut.size()));
  return like(rt, self, cut + end);
}

Value word_count(Runtime& rt, const Value& self, const Params&) {
  const std::string text = rt.str(self);
  Int n = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    n += !in_word && is_word(c.code);
    in_word = is_word(c.code);
    i += c.n_bytes;
  }
  return Value::integer(n);
}

JsonStyle json_style(Runtime& rt, const Params& p) {
  JsonStyle style;
  style.ensure_ascii = p.boolean(0, false);
  if (p.given(1) != nullptr) {
    style.multiline = true;
    style.item_separator = ",";
    style.indent = indentation(rt, p, 1, 0);
  }
  if (p.given(2) != nullptr) {
    const std::vector<Value> separators = rt.iterate(*p[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      throw Error("tojson: separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  style.sort_keys = p.boolean(3, false);
  return style;
}

Value tojson(Runtime& rt, const Value& self, const Params& p) {
  return rt.text(to_json(self, json_style(rt, p), rt.meter));
}

Value from_json_text(Runtime& rt, const Value& self, const Params&) {
  if (!self.is_string()) throw Error("from_json works on text, not on {}", self.type_name());
  return parse_json(self.text(), rt.meter);
}

constexpr Builtin kStringFilters[] = {
    {"capitalize", of_string<cased<Casing::kCapitalized>>},
    {"center", of_string<justified<Align::kCenter>>, 0, {"width"}},
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"format", format, 0, {}, true},
    {"from_json", from_json_text},
    {"indent", indent, 0, {"width", "first", "blank"}},
    {"lower", of_string<cased<Casing::kLower>>},
    {"replace", replace_any, 2, {"old", "new", "count"}},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", tojson, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", of_string<stripped<true, true>>, 0, {"chars"}},
    {"truncate", truncate, 0, {"length", "killwords", "end", "leeway"}},
    {"upper", of_string<cased<Casing::kUpper>>},
    {"wordcount", word_count},
};

}  // namespace

Builtins string_filters() { return kStringFilters; }
Builtins string_methods() { return kMethods; }

}  // namespace ingot::jinja

// Filters that work on one text or number, and the filters for JSON.
#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

bool is_markup(const Value& value) { return value.is_string() && value.str().markup; }

// Calls a method of str on the value as a string. Markup stays Markup.
template <size_t kArgs>
Value string_method(Runtime& rt, const Value& self, const Params& p, std::string_view name) {
  const Value text = self.is_string() ? self : rt.text(rt.str(self));
  Args args;
  for (size_t i = 0; i < kArgs && p[i] != nullptr; ++i) args.positional.push_back(*p[i]);
  return call_builtin(rt, *find_row(string_methods(), name), text, args);
}

Value upper(Runtime& rt, const Value& self, const Params& p) { return string_method<0>(rt, self, p, "upper"); }
Value lower(Runtime& rt, const Value& self, const Params& p) { return string_method<0>(rt, self, p, "lower"); }
Value capitalize(Runtime& rt, const Value& self, const Params& p) {
  return string_method<0>(rt, self, p, "capitalize");
}
Value trim(Runtime& rt, const Value& self, const Params& p) { return string_method<1>(rt, self, p, "strip"); }

Value center(Runtime& rt, const Value& self, const Params& p) {
  Args args;
  args.positional.push_back(p[0] != nullptr ? *p[0] : Value::integer(80));
  const Value text = self.is_string() ? self : rt.text(rt.str(self));
  return call_builtin(rt, *find_row(string_methods(), "center"), text, args);
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
    out += gap ? std::string(run) : to_upper(run.substr(0, first)) + to_lower(run.substr(first));
  }
  return rt.text(std::move(out));
}

Value replace(Runtime& rt, const Value& self, const Params& p) {
  Args args;
  for (size_t i = 0; i < 2; ++i) args.positional.push_back(rt.text(rt.str(*p[i])));
  if (p.given(2) != nullptr) args.positional.push_back(*p[2]);
  return call_builtin(rt, *find_row(string_methods(), "replace"), rt.text(rt.str(self)), args);
}

Value string(Runtime& rt, const Value& self, const Params&) { return self.is_string() ? self : rt.text(rt.str(self)); }
Value safe(Runtime& rt, const Value& self, const Params&) {
  return is_markup(self) ? self : rt.text(rt.str(self), true);
}
Value escape(Runtime& rt, const Value& self, const Params&) {
  return is_markup(self) ? self : rt.text(html_escape(rt.str(self)), true);
}
Value force_escape(Runtime& rt, const Value& self, const Params&) { return rt.text(html_escape(rt.str(self)), true); }

Value format(Runtime& rt, const Value& self, const Params& p) {
  if (!p.all->positional.empty() && !p.all->keyword.empty()) {
    throw Error("format cannot handle positional and keyword arguments at the same time");
  }
  Value values;
  if (p.all->keyword.empty()) {
    values = rt.tuple(p.all->positional);
  } else {
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, value] : p.all->keyword) dict->set(Value::string(name), value, rt.meter);
    values = Value::dict(std::move(dict));
  }
  const Value text = string(rt, self, p);
  return rt.binary(Op::kMod, text, values);
}

Value indent(Runtime& rt, const Value& self, const Params& p) {
  if (self.is_undefined()) self.fail_undefined();
  if (!self.is_string()) throw Error("indent works on text, not on {}", self.type_name());
  std::string unit;
  if (p[0] != nullptr && p[0]->is_string()) {
    unit = p[0]->text();
  } else {
    const Int width = p.integer(0, 4);
    rt.meter.make(1, width <= 0 ? 0 : width > Int(1) << 40 ? size_t(1) << 40 : static_cast<size_t>(width));
    unit.assign(width <= 0 ? 0 : static_cast<size_t>(width), ' ');
  }
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
  return rt.text(std::move(out), is_markup(self));
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
  return rt.text(cut + end, is_markup(self));
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

Value absolute(Runtime& rt, const Value& self, const Params&) {
  if (self.is_undefined()) self.fail_undefined();
  if (!self.is_number()) throw Error("bad operand type for abs(): '{}'", self.type_name());
  if (self.is_float()) return Value::real(std::fabs(self.as_float()));
  return self.as_int() < 0 ? rt.binary(Op::kSub, Value::integer(0), self) : Value::integer(self.as_int());
}

// int(value) of a float: nothing for NaN, an error for an infinity.
std::optional<Int> truncated(double value) {
  if (std::isnan(value)) return std::nullopt;
  if (!(std::fabs(value) < 0x1p126)) throw Error("cannot convert float infinity or a number this large to integer");
  return static_cast<Int>(value);
}

Value to_int(Runtime&, const Value& self, const Params& p) {
  if (self.is_undefined()) self.fail_undefined();
  const Value fallback = p[0] != nullptr ? *p[0] : Value::integer(0);
  std::optional<Int> found;
  if (self.is_string()) {
    const Int base = p.integer(1, 10);
    found = int_of_text(self.text(), base < 0 || base > 36 ? 99 : static_cast<int>(base));
    const auto real = found ? std::nullopt : float_of_text(self.text());
    if (real && std::isfinite(*real)) found = truncated(*real);
  } else if (self.is_number()) {
    found = self.is_float() ? truncated(self.as_float()) : self.as_int();
  }
  return found ? Value::integer(*found) : fallback;
}

Value to_float(Runtime&, const Value& self, const Params& p) {
  if (self.is_undefined()) self.fail_undefined();
  if (self.is_number()) return Value::real(self.as_float());
  const auto found = self.is_string() ? float_of_text(self.text()) : std::nullopt;
  if (found) return Value::real(*found);
  return p[0] != nullptr ? *p[0] : Value::real(0.0);
}

Value round(Runtime& rt, const Value& self, const Params& p) {
  const std::string method = p[1] != nullptr ? rt.str(*p[1]) : "common";
  const Int digits = p.given(0) != nullptr ? p.integer(0, 0) : 0;
  if (method != "common" && method != "ceil" && method != "floor") throw Error("method must be common, ceil or floor");
  if (self.is_undefined()) self.fail_undefined();
  if (!self.is_number()) throw Error("type {} doesn't define __round__ method", self.type_name());
  const int places = static_cast<int>(std::clamp<Int>(digits, -400, 400));
  if (method == "common") {
    if (self.is_float()) return Value::real(round_float(self.as_float(), places));
    if (places >= 0) return Value::integer(self.as_int());
    return Value::integer(*truncated(round_float(self.as_float(), places)));
  }
  const Value scale = rt.binary(Op::kPow, Value::integer(10), Value::integer(places));
  const double scaled = rt.binary(Op::kMul, self, scale).as_float();
  const auto whole = truncated(method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  if (!whole) throw Error("cannot convert float NaN to integer");
  return rt.binary(Op::kDiv, Value::integer(*whole), scale);
}

JsonStyle json_style(Runtime& rt, const Params& p) {
  JsonStyle style;
  style.ensure_ascii = p.boolean(0, false);
  if (p.given(1) != nullptr) {
    style.multiline = true;
    style.item_separator = ",";
    if (p[1]->is_string()) {
      style.indent = p[1]->text();
    } else {
      const Int width = p.integer(1, 0);
      rt.meter.make(1, width <= 0 ? 0 : width > Int(1) << 40 ? size_t(1) << 40 : static_cast<size_t>(width));
      style.indent.assign(width <= 0 ? 0 : static_cast<size_t>(width), ' ');
    }
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

Value fall_back(Runtime&, const Value& self, const Params& p) {
  if (!self.is_undefined() && !(p.boolean(1, false) && !truthy(self))) return self;
  return p[0] != nullptr ? *p[0] : Value::string("");
}

constexpr Builtin kFilters[] = {
    {"abs", absolute},
    {"capitalize", capitalize},
    {"center", center, 0, {"width"}},
    {"d", fall_back, 0, {"default_value", "boolean"}},
    {"default", fall_back, 0, {"default_value", "boolean"}},
    {"e", escape},
    {"escape", escape},
    {"float", to_float, 0, {"default"}},
    {"forceescape", force_escape},
    {"format", format, 0, {}, true},
    {"from_json", from_json_text},
    {"indent", indent, 0, {"width", "first", "blank"}},
    {"int", to_int, 0, {"default", "base"}},
    {"lower", lower},
    {"replace", replace, 2, {"old", "new", "count"}},
    {"round", round, 0, {"precision", "method"}},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", tojson, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", trim, 0, {"chars"}},
    {"truncate", truncate, 0, {"length", "killwords", "end", "leeway"}},
    {"upper", upper},
    {"wordcount", word_count},
};

}  // namespace

std::span<const Builtin> scalar_filters() { return kFilters; }

}  // namespace ingot::jinja

// The tables of builtins and the binding of their arguments; the tests of `is`, the filters of numbers, and the global
// functions. The filters and methods of strings and of containers are in strings.cc and lists.cc.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>

#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

// Fills the slots from positional and keyword arguments, with Python's error messages.
Params bind(const Builtin& builtin, Args& args) {
  Params params;
  params.all = &args;
  if (builtin.any_args) return params;
  size_t n_params = 0;
  while (n_params < Params::kMax && !builtin.params[n_params].empty()) ++n_params;
  if (args.positional.size() > n_params) {
    throw Error("{}() takes at most {} argument(s) ({} given)", builtin.name, n_params, args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) params.slots[i] = &args.positional[i];
  for (const auto& [name, value] : args.keyword) {
    const auto* end = builtin.params.begin() + n_params;
    const auto* found = std::find(builtin.params.begin(), end, name);
    if (found == end) throw Error("{}() got an unexpected keyword argument '{}'", builtin.name, printable(name, 64));
    const auto i = static_cast<size_t>(found - builtin.params.begin());
    if (params.slots[i] != nullptr) throw Error("{}() got multiple values for argument '{}'", builtin.name, name);
    params.slots[i] = &value;
  }
  for (size_t i = 0; i < builtin.n_required; ++i) {
    if (params.slots[i] == nullptr) throw Error("{}() needs the argument '{}'", builtin.name, builtin.params[i]);
  }
  return params;
}

// ---- Tests

bool is_not_undefined(const Value& v) { return !v.is_undefined(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_callable(const Value& v) { return v.is_undefined() || (v.is_object() && v.object().callable()); }
bool is_collection(const Value& v) { return v.is_undefined() || v.is_string() || v.is_seq() || v.is_dict(); }
bool is_iterable(const Value& v) { return is_collection(v) || (v.is_object() && v.object().iterable()); }
bool is_sequence(const Value& v) { return is_collection(v) || (v.is_object() && v.object().sequence()); }

// A test of the value alone, as a function or a member function of Value.
template <auto kTest>
Value is(Runtime&, const Value& self, const Params&) {
  return Value::boolean(std::invoke(kTest, self));
}

template <Relation kRelation>
Value relation(Runtime& rt, const Value& self, const Params& p) {
  return Value::boolean(rt.holds(kRelation, self, *p[0]));
}

Value same_as(Runtime&, const Value& self, const Params& p) { return Value::boolean(self.same(*p[0])); }

// Whether the value names a filter or test.
template <const Builtin* (*kFind)(std::string_view)>
Value is_name_of(Runtime& rt, const Value& self, const Params&) {
  return Value::boolean(kFind(rt.str(self)) != nullptr);
}

Value leaves(Runtime& rt, const Value& value, const Value& divisor, Int remainder) {
  return Value::boolean(equal(rt.binary(Op::kMod, value, divisor), Value::integer(remainder), rt.meter));
}
Value divisible_by(Runtime& rt, const Value& self, const Params& p) { return leaves(rt, self, *p[0], 0); }
template <Int kRemainder>
Value of_parity(Runtime& rt, const Value& self, const Params&) {
  return leaves(rt, self, Value::integer(2), kRemainder);
}

// Whether the text has cased letters, and all of them have this case.
template <bool (*kCase)(char32_t), bool (*kOtherCase)(char32_t)>
Value all_of_case(Runtime& rt, const Value& self, const Params&) {
  const std::string text = rt.str(self);
  rt.meter.spend(text.size() / 4);
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    if (kOtherCase(c.code)) return Value::boolean(false);
    found = found || kCase(c.code);
    i += c.n_bytes;
  }
  return Value::boolean(found);
}

constexpr Builtin kTests[] = {
    {"!=", relation<Relation::kNe>, 1, {"other"}},
    {"boolean", is<&Value::is_bool>},
    {"callable", is<is_callable>},
    {"defined", is<is_not_undefined>},
    {"divisibleby", divisible_by, 1, {"num"}},
    {"eq", relation<Relation::kEq>, 1, {"other"}},
    {"equalto", relation<Relation::kEq>, 1, {"other"}},
    {"==", relation<Relation::kEq>, 1, {"other"}},
    {"escaped", is<&Value::is_markup>},
    {"even", of_parity<0>},
    {"false", is<is_false>},
    {"filter", is_name_of<find_filter>},
    {"float", is<&Value::is_float>},
    {"ge", relation<Relation::kGe>, 1, {"other"}},
    {">=", relation<Relation::kGe>, 1, {"other"}},
    {"greaterthan", relation<Relation::kGt>, 1, {"other"}},
    {"gt", relation<Relation::kGt>, 1, {"other"}},
    {">", relation<Relation::kGt>, 1, {"other"}},
    {"in", relation<Relation::kIn>, 1, {"seq"}},
    {"integer", is<&Value::is_int>},
    {"iterable", is<is_iterable>},
    {"le", relation<Relation::kLe>, 1, {"other"}},
    {"<=", relation<Relation::kLe>, 1, {"other"}},
    {"lessthan", relation<Relation::kLt>, 1, {"other"}},
    {"lt", relation<Relation::kLt>, 1, {"other"}},
    {"<", relation<Relation::kLt>, 1, {"other"}},
    {"lower", all_of_case<is_lower, is_upper>},
    {"mapping", is<&Value::is_dict>},
    {"ne", relation<Relation::kNe>, 1, {"other"}},
    {"none", is<&Value::is_none>},
    {"number", is<&Value::is_number>},
    {"odd", of_parity<1>},
    {"sameas", same_as, 1, {"other"}},
    {"sequence", is<is_sequence>},
    {"string", is<&Value::is_string>},
    {"test", is_name_of<find_test>},
    {"true", is<is_true>},
    {"undefined", is<&Value::is_undefined>},
    {"upper", all_of_case<is_upper, is_lower>},
};

// ---- Filters of numbers, and `default`

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
  std::optional<Int> found;
  if (self.is_string()) {
    const Int base = p.integer(1, 10);
    found = int_of_text(self.text(), base < 0 || base > 36 ? 99 : static_cast<int>(base));
    const auto real = found ? std::nullopt : float_of_text(self.text());
    if (real && std::isfinite(*real)) found = truncated(*real);
  } else if (self.is_number()) {
    found = self.is_float() ? truncated(self.as_float()) : self.as_int();
  }
  return found ? Value::integer(*found) : p.value(0, Value::integer(0));
}

Value to_float(Runtime&, const Value& self, const Params& p) {
  if (self.is_undefined()) self.fail_undefined();
  if (self.is_number()) return Value::real(self.as_float());
  const auto found = self.is_string() ? float_of_text(self.text()) : std::nullopt;
  if (found) return Value::real(*found);
  return p.value(0, Value::real(0.0));
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

Value fall_back(Runtime&, const Value& self, const Params& p) {
  if (!self.is_undefined() && !(p.boolean(1, false) && !truthy(self))) return self;
  return p.value(0, Value::string(""));
}

constexpr Builtin kOtherFilters[] = {
    {"abs", absolute},
    {"d", fall_back, 0, {"default_value", "boolean"}},
    {"default", fall_back, 0, {"default_value", "boolean"}},
    {"float", to_float, 0, {"default"}},
    {"int", to_int, 0, {"default", "base"}},
    {"round", round, 0, {"precision", "method"}},
};

// ---- Global functions

struct IsoWeek {
  int year, week;
};
// The ISO 8601 week. A week belongs to the year of its Thursday.
IsoWeek iso_week(const std::tm& time) {
  const int year = time.tm_year + 1900, thursday = time.tm_yday + 3 - (time.tm_wday + 6) % 7;  // a day of the year
  const auto days_of = [](int y) { return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0 ? 366 : 365; };
  if (thursday < 0) return {year - 1, (thursday + days_of(year - 1)) / 7 + 1};
  if (thursday >= days_of(year)) return {year + 1, 1};
  return {year, thursday / 7 + 1};
}

struct TimeNumber {
  char directive;
  int value, width;
  char pad = '0';
};
// The number that a directive prints; null for all other directives. Windows' strftime supports too few directives.
std::optional<TimeNumber> time_number(const std::tm& time, char directive) {
  const int year = time.tm_year + 1900, hour = time.tm_hour, monday = (time.tm_wday + 6) % 7;
  const IsoWeek iso = iso_week(time);
  const TimeNumber numbers[] = {{'C', year / 100, 2},
                                {'d', time.tm_mday, 2},
                                {'e', time.tm_mday, 2, ' '},
                                {'g', iso.year % 100, 2},
                                {'G', iso.year, 1},
                                {'H', hour, 2},
                                {'I', (hour + 11) % 12 + 1, 2},
                                {'j', time.tm_yday + 1, 3},
                                {'m', time.tm_mon + 1, 2},
                                {'M', time.tm_min, 2},
                                {'S', time.tm_sec, 2},
                                {'u', monday + 1, 1},
                                {'U', (time.tm_yday + 7 - time.tm_wday) / 7, 2},
                                {'V', iso.week, 2},
                                {'w', time.tm_wday, 1},
                                {'W', (time.tm_yday + 7 - monday) / 7, 2},
                                {'y', year % 100, 2},
                                {'Y', year, 1}};
  const auto* found = std::ranges::find(numbers, directive, &TimeNumber::directive);
  return found == std::end(numbers) ? std::nullopt : std::optional(*found);
}

// Formats in the C locale, independent of the program's locale.
std::string format_time(const std::tm& time, std::string_view format) {
  static constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  const std::string_view day = kDays[std::clamp(time.tm_wday, 0, 6)], month = kMonths[std::clamp(time.tm_mon, 0, 11)];
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (out.size() > 256) throw Error("strftime_now: the text is longer than 256 bytes");
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const bool no_pad = i + 1 < format.size() && format[i + 1] == '-';  // glibc's "%-d"
    i += no_pad ? 2 : 1;
    const char what = i < format.size() ? format[i] : '%';
    if (const auto number = time_number(time, what)) {
      const std::string digits = std::to_string(number->value);
      const auto width = static_cast<size_t>(no_pad ? 1 : number->width);
      out.append(width - std::min(width, digits.size()), number->pad) += digits;
      continue;
    }
    switch (what) {
      case '%': out += '%'; break;
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'a': out += day.substr(0, 3); break;
      case 'A': out += day; break;
      case 'b':
      case 'h': out += month.substr(0, 3); break;
      case 'B': out += month; break;
      case 'p': out += time.tm_hour < 12 ? "AM" : "PM"; break;
      case 'f': out += "000000"; break;  // the clock has whole seconds
      case 'x':
      case 'D': out += format_time(time, "%m/%d/%y"); break;
      case 'X':
      case 'T': out += format_time(time, "%H:%M:%S"); break;
      case 'F': out += format_time(time, "%Y-%m-%d"); break;
      case 'R': out += format_time(time, "%H:%M"); break;
      case 'c': out += format_time(time, "%a %b %e %H:%M:%S %Y"); break;
      case 's': {
        std::tm same = time;
        out += std::to_string(std::mktime(&same));
        break;
      }
      case 'z':
      case 'Z': {  // from the system's time zone
        char text[64];
        out.append(text, std::strftime(text, sizeof text, what == 'z' ? "%z" : "%Z", &time));
        break;
      }
      default: throw Error("strftime_now: unknown directive '%{}'", printable({&what, 1}));
    }
  }
  if (out.size() > 256) throw Error("strftime_now: the text is longer than 256 bytes");
  return out;
}

Value range(Runtime& rt, const Value&, const Params& p) {
  static constexpr size_t kMaxRange = 100'000;  // the limit of jinja2's sandbox
  const bool from_zero = p[1] == nullptr;
  const Int start = from_zero ? 0 : p.integer(0, 0), stop = p.integer(from_zero ? 0 : 1, 0), step = p.integer(2, 1);
  if (step == 0) throw Error("range() arg 3 must not be zero");
  const Value made = make_range(start, stop, step);
  const size_t n = rt.length(made);
  if (n > kMaxRange) throw Error("range() of {} items: the sandbox stops at {}", n, kMaxRange);
  return made;
}

// dict(mapping or pairs, name=value, ...)
std::shared_ptr<Dict> dict_of(Runtime& rt, const Args& args) {
  auto made = std::make_shared<Dict>();
  if (args.positional.size() > 1) throw Error("dict expected at most 1 argument, got {}", args.positional.size());
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    for (const auto& [key, value] : args.positional[0].dict().entries()) made->set(key, value, rt.meter);
  } else if (!args.positional.empty()) {
    for (const Value& pair : rt.iterate(args.positional[0])) {
      const std::vector<Value> both = rt.iterate(pair);
      if (both.size() != 2) throw Error("dictionary update sequence element has length {}; 2 is required", both.size());
      made->set(both[0], both[1], rt.meter);
    }
  }
  args.add_keywords_to(*made, rt.meter);
  return made;
}

Value dict(Runtime& rt, const Value&, const Params& p) { return Value::dict(dict_of(rt, *p.all)); }

Value name_space(Runtime& rt, const Value&, const Params& p) {
  const Value made = make_namespace();
  const std::shared_ptr<Dict> given = dict_of(rt, *p.all);
  for (const auto& [key, value] : given->entries()) {
    if (!key.is_string()) throw Error("namespace() takes names, not {}", key.type_name());
    made.object().set_attribute(key.text(), value, rt.meter);
  }
  rt.keep(made);
  return made;
}

Value raise_exception(Runtime& rt, const Value&, const Params& p) { throw Error("{}", printable(rt.str(*p[0]), 1024)); }

Value strftime_now(Runtime& rt, const Value&, const Params& p) {
  if (!p[0]->is_string()) throw Error("strftime_now needs a format string");
  return rt.text(format_time(rt.now(), p[0]->text()));
}

constexpr Builtin kGlobals[] = {
    {"dict", dict, 0, {}, true},
    {"namespace", name_space, 0, {}, true},
    {"raise_exception", raise_exception, 1, {"message"}},
    {"range", range, 1, {"start", "stop", "step"}},
    {"strftime_now", strftime_now, 1, {"format"}},
};

}  // namespace

std::optional<Value> Args::take(std::string_view name) {
  auto found = std::find_if(keyword.begin(), keyword.end(), [&](auto& given) { return given.first == name; });
  if (found == keyword.end()) return std::nullopt;
  Value value = std::move(found->second);
  keyword.erase(found);
  return value;
}

void Args::add_keywords_to(Dict& dict, Meter& meter) const {
  for (const auto& [name, value] : keyword) dict.set(Value::string(name), value, meter);
}

Int Params::integer(size_t i, Int fallback) const {
  if (slots[i] == nullptr) return fallback;
  if (slots[i]->is_undefined()) slots[i]->fail_undefined();
  if (!slots[i]->is_integral()) {
    throw Error("'{}' object cannot be interpreted as an integer", slots[i]->type_name());
  }
  return slots[i]->as_int();
}

const Builtin* find_row(Builtins rows, std::string_view name) {
  auto found = std::find_if(rows.begin(), rows.end(), [&](const Builtin& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

const Builtin* find_filter(std::string_view name) {
  for (Builtins rows : {Builtins(kOtherFilters), string_filters(), list_filters()}) {
    if (const Builtin* found = find_row(rows, name)) return found;
  }
  return nullptr;
}

const Builtin* find_test(std::string_view name) { return find_row(kTests, name); }

const Builtin* find_global(std::string_view name) { return find_row(kGlobals, name); }

const Builtin* find_method(const Value& self, std::string_view name) {
  return self.is_string() ? find_row(string_methods(), name) : find_container_method(self, name);
}

Value call_builtin(Runtime& rt, const Builtin& builtin, const Value& self, Args& args) {
  return builtin.function(rt, self, bind(builtin, args));
}

}  // namespace ingot::jinja

// The functions that a template can call by name: range, dict, namespace, raise_exception and strftime_now.
#include <algorithm>
#include <ctime>
#include <iterator>
#include <optional>
#include <string>

#include "text/jinja/objects.h"
#include "text/jinja/runtime.h"

namespace ingot::jinja {
namespace {

Value range(Runtime&, const Value&, const Params& p) {
  static constexpr size_t kMaxRange = 100'000;  // the limit of jinja2's sandbox
  const bool from_zero = p[1] == nullptr;
  const Int start = from_zero ? 0 : p.integer(0, 0), stop = p.integer(from_zero ? 0 : 1, 0), step = p.integer(2, 1);
  if (step == 0) throw Error("range() arg 3 must not be zero");
  auto made = std::make_shared<Range>(start, stop, step);
  size_t n = 0;
  if (made->length(n) && n > kMaxRange) throw Error("range() of {} items: the sandbox stops at {}", n, kMaxRange);
  return Value::object(std::move(made));
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
  for (const auto& [name, value] : args.keyword) made->set(Value::string(name), value, rt.meter);
  return made;
}

Value dict(Runtime& rt, const Value&, const Params& p) { return Value::dict(dict_of(rt, *p.all)); }

Value name_space(Runtime& rt, const Value&, const Params& p) {
  auto space = std::make_shared<Namespace>();
  const std::shared_ptr<Dict> given = dict_of(rt, *p.all);
  for (const auto& [key, value] : given->entries()) {
    if (!key.is_string()) throw Error("namespace() takes names, not {}", key.type_name());
    space->set(key.text(), value, rt.meter);
  }
  const Value made = Value::object(std::move(space));
  rt.keep(made);
  return made;
}

Value raise_exception(Runtime& rt, const Value&, const Params& p) { throw Error("{}", printable(rt.str(*p[0]), 1024)); }

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

const Builtin* find_global(std::string_view name) { return find_row(kGlobals, name); }

}  // namespace ingot::jinja

// Python's two ways to fill a format string, "{}".format(values) and "%s" % values, with the parts that both share:
// the specification of a conversion, formatted numbers, and padding.
#include <algorithm>
#include <cmath>

#include "text/jinja/runtime.h"
#include "text/jinja/text.h"
#include "text/tokenizers/unicode.h"

namespace ingot::jinja {
namespace {

// One conversion in either way: [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0 for the default of the type
  char sign = '-';
  bool alternate = false, zero = false;
  char group = 0;  // , or _
  Int width = 0, precision = -1;
  char type = 0;

  bool has_type(std::string_view types) const { return type != 0 && types.find(type) != std::string_view::npos; }
  bool is_float() const { return has_type("eEfFgG%n"); }
  void fill_with_zeros(char with_align) {
    if (zero && align == 0) fill.assign(1, '0'), align = with_align;
  }
};

// Reads a format string from front to back.
struct FormatReader {
  std::string_view text;
  size_t i = 0;

  bool done() const { return i >= text.size(); }
  bool at(std::string_view chars) const { return !done() && chars.find(text[i]) != std::string_view::npos; }
  char take(std::string_view chars) { return at(chars) ? text[i++] : '\0'; }  // 0 for any other character

  // Returns 0 if there are no digits. Throws Error for a number that is too large.
  Int number() {
    Int value = 0;
    while (const char digit = take("0123456789")) {
      value = value * 10 + (digit - '0');
      if (value > 1'000'000'000) throw Error("the width or precision of a format is too large");
    }
    return value;
  }
};

// The number that is the whole text, if it is one.
std::optional<Int> whole_number(std::string_view text) {
  FormatReader reader{text};
  const Int number = reader.number();
  return reader.i > 0 && reader.done() ? std::optional(number) : std::nullopt;
}

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  FormatReader reader{text, char_at(text, 0).n_bytes};
  spec.align = reader.take("<>=^");
  if (spec.align != 0) {
    spec.fill = text.substr(0, reader.i - 1);
  } else {
    reader.i = 0;
    spec.align = reader.take("<>=^");
  }
  if (const char sign = reader.take("+- ")) spec.sign = sign;
  spec.alternate = reader.take("#") != 0;
  spec.zero = reader.take("0") != 0;
  spec.width = reader.number();
  spec.group = reader.take(",_");
  if (reader.take(".") != 0) {
    if (!reader.at("0123456789")) throw Error("format specifier missing precision");
    spec.precision = reader.number();
  }
  if (!reader.done()) spec.type = text[reader.i++];
  if (!reader.done()) throw Error("invalid format specifier");
  return spec;
}

// Pads text to the width; longer text stays unchanged.
std::string padded(Runtime& rt, const std::string& text, const FormatSpec& spec, char default_align) {
  const auto n = static_cast<Int>(count_chars(text));
  if (n >= spec.width) return text;
  const size_t gap = rt.meter.make_repeated(spec.fill.size(), spec.width - n);
  auto fill = [&](size_t count) { return repeat(spec.fill, count); };
  const char align = spec.align != 0 ? spec.align : default_align;
  const size_t sign = align == '=' && !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
  switch (align) {
    case '<': return text + fill(gap);
    case '^': return fill(gap / 2) + text + fill(gap - gap / 2);
    case '=': return text.substr(0, sign) + fill(gap) + text.substr(sign);
    default: return fill(gap) + text;
  }
}

std::string grouped(std::string digits, char separator, size_t every) {
  if (separator == 0) return digits;
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (size_t i = end; i > every; i -= every) digits.insert(i - every, 1, separator);
  return digits;
}

std::string with_sign(bool negative, const std::string& digits, const FormatSpec& spec) {
  return (negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign)) + digits;
}

std::string int_text(Int value, const FormatSpec& spec) {
  // The magnitude of the lowest number has one more bit than the largest positive number.
  const auto magnitude = value < 0 ? ~static_cast<unsigned __int128>(value) + 1 : static_cast<unsigned __int128>(value);
  std::string digits, prefix;
  switch (spec.type) {
    case 'x': digits = fmt::format("{:x}", magnitude), prefix = "0x"; break;
    case 'X': digits = fmt::format("{:X}", magnitude), prefix = "0X"; break;
    case 'o': digits = fmt::format("{:o}", magnitude), prefix = "0o"; break;
    case 'b': digits = fmt::format("{:b}", magnitude), prefix = "0b"; break;
    default: digits = fmt::format("{}", magnitude);
  }
  digits = grouped(digits, spec.group, prefix.empty() ? 3 : 4);
  return with_sign(value < 0, (spec.alternate ? prefix : "") + digits, spec);
}

// The digits of a finite number that is not negative.
std::string float_digits(Runtime& rt, double value, const FormatSpec& spec) {
  const bool is_default = spec.type == 0;
  if (is_default && spec.precision < 0) return float_repr(value);
  if (spec.precision > 100'000) throw Error("the precision of a format is too large");
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  rt.meter.make(static_cast<size_t>(precision) + 320);
  const char type = spec.type == '%' ? 'f' : is_default || spec.type == 'n' ? 'g' : spec.type;
  const std::string format = fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", precision, type);
  const std::string digits = fmt::format(fmt::runtime(format), spec.type == '%' ? value * 100 : value);
  return is_default && digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

std::string float_text(Runtime& rt, double value, const FormatSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits = std::isnan(value) ? "nan" : "inf";
  if (std::isfinite(value)) {
    digits = grouped(float_digits(rt, std::fabs(value), spec), spec.group, 3);
  } else if (spec.type >= 'A' && spec.type <= 'Z') {
    digits = with_case(digits, Casing::kUpper);
  }
  return with_sign(negative, digits + (spec.type == '%' ? "%" : ""), spec);
}

// What a field shows, with special characters escaped if the format is Markup and the value is not.
std::string in_markup(const Str& format, const Value& value, std::string shown) {
  return format.markup && !value.is_markup() ? html_escape(shown) : shown;
}

class BraceFormat {
 public:
  BraceFormat(Runtime& rt, const Str& format, const Args& args) : rt_(rt), format_(format), args_(args) {}

  std::string run(std::string_view text, int depth) {
    if (depth > 1) throw Error("max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t next = std::min(text.find_first_of("{}", i), text.size());
      out += text.substr(i, next - i);
      rt_.meter.fits(out.size());
      if (next == text.size()) break;
      i = next + 1;
      if (i < text.size() && text[i] == text[next]) {
        out += text[i++];
      } else if (text[next] == '}') {
        throw Error("single '}}' encountered in format string");
      } else {
        const size_t end = field_end(text, i);
        out += field(text.substr(i, end - i), depth);
        i = end + 1;
      }
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view text, size_t i) {
    for (int open = 1; i < text.size(); ++i) {
      if (text[i] == '{') ++open;
      if (text[i] == '}' && --open == 0) return i;
    }
    throw Error("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    size_t end = 0;  // of the name
    for (int brackets = 0; end < text.size() && (brackets > 0 || (text[end] != '!' && text[end] != ':')); ++end) {
      brackets += text[end] == '[' ? 1 : text[end] == ']' ? -1 : 0;
    }
    Value value = look_up(text.substr(0, end));
    if (end < text.size() && text[end] == '!') {
      if (end + 1 >= text.size()) throw Error("end of string while looking for conversion specifier");
      const char how = text[end + 1];
      if (how != 'r' && how != 's' && how != 'a')
        throw Error("unknown conversion specifier '{}'", printable({&how, 1}));
      value = rt_.text(how == 's' ? rt_.str(value) : to_repr(value, rt_.meter));
      end += 2;
      if (end < text.size() && text[end] != ':') throw Error("expected ':' after conversion specifier");
    }
    const std::string spec = end < text.size() ? run(text.substr(end + 1), depth + 1) : std::string();
    return in_markup(format_, value, spec.empty() ? rt_.str(value) : converted(value, parse_spec(spec)));
  }

  Value look_up(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    for (size_t i = end; i < name.size();) {
      const bool is_item = name[i] == '[';
      if (!is_item && name[i] != '.') throw Error("only '.' or '[' may follow ']' in format field specifier");
      const size_t stop = is_item ? name.find(']', i) : std::min(name.find_first_of(".[", i + 1), name.size());
      if (stop == std::string_view::npos || stop == i + 1) throw Error("empty attribute in format string");
      const std::string_view part = name.substr(i + 1, stop - i - 1);
      const auto index = whole_number(part);
      value = !is_item ? rt_.get_attr(value, part)
                       : rt_.get_item(value, index ? Value::integer(*index) : Value::string(std::string(part)));
      i = stop + is_item;
    }
    return value;
  }

  Value argument(std::string_view name) {
    const auto number = whole_number(name);
    if (name.empty() || number) {
      if (name.empty() ? next_ < 0 : next_ > 0) throw Error("cannot mix automatic and manual field numbering");
      const Int i = name.empty() ? next_++ : *number;
      if (!name.empty()) next_ = -1;
      if (i >= static_cast<Int>(args_.positional.size())) {
        throw Error("Replacement index {} out of range for positional args tuple", i);
      }
      return args_.positional[static_cast<size_t>(i)];
    }
    for (const auto& [key, value] : args_.keyword) {
      if (key == name) return value;
    }
    throw Error("the format names a missing argument '{}'", printable(name, 64));
  }

  std::string converted(const Value& value, FormatSpec spec) {
    spec.fill_with_zeros(value.is_string() ? '<' : '=');
    if (value.is_string()) {
      if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.group != 0 || spec.sign != '-' ||
          spec.alternate) {
        throw Error("invalid format specifier for 'str'");
      }
      std::string text = value.text();
      if (spec.precision >= 0) text.resize(byte_of_char(text, static_cast<size_t>(spec.precision)));
      return padded(rt_, text, spec, '<');
    }
    if (!value.is_number()) throw Error("unsupported format string passed to {}.__format__", value.type_name());
    if (value.is_bool() && spec.type == 0) return padded(rt_, value.as_bool() ? "1" : "0", spec, '>');
    if (spec.type != 0 && !spec.is_float() && (value.is_float() || !spec.has_type("bdoxXc"))) {
      throw Error("unknown format code '{}' for object of type '{}'", printable({&spec.type, 1}), value.type_name());
    }
    if (value.is_float() || spec.is_float()) return padded(rt_, float_text(rt_, value.as_float(), spec), spec, '>');
    if (spec.precision >= 0) throw Error("precision not allowed in integer format specifier");
    if (spec.type == 'c') throw Error("format code 'c' is not supported");
    return padded(rt_, int_text(value.as_int(), spec), spec, '>');
  }

  Runtime& rt_;
  const Str& format_;
  const Args& args_;
  Int next_ = 0;  // number of the next automatic field; -1 after a field with a number
};

class PercentFormat {
 public:
  PercentFormat(Runtime& rt, const Str& format, const Value& values)
      : rt_(rt), format_(format), reader_{format.text}, values_(values) {}

  std::string run() {
    std::string out;
    while (!reader_.done()) {
      const size_t start = reader_.i, next = std::min(reader_.text.find('%', start), reader_.text.size());
      out += reader_.text.substr(start, next - start);
      reader_.i = next + 1;
      if (next < reader_.text.size()) out += conversion();
      rt_.meter.fits(out.size());
    }
    // In Python, every value that can be indexed counts as a mapping here.
    const bool is_mapping = values_.is_dict() || values_.is_list() || values_.is_undefined() ||
                            (values_.is_object() && values_.object().sequence());
    if (!is_mapping && n_taken_ < n_values()) throw Error("not all arguments converted during string formatting");
    return out;
  }

 private:
  size_t n_values() const { return values_.is_tuple() ? values_.items().size() : 1; }

  Value take() {
    if (n_taken_ >= n_values()) throw Error("not enough arguments for format string");
    const size_t i = n_taken_++;
    return values_.is_tuple() ? values_.items()[i] : values_;
  }

  Int star_or_number() {
    if (reader_.take("*") == 0) return reader_.number();
    const Value width = take();
    if (!width.is_int() || width.as_int() > 1'000'000'000 || width.as_int() < -1'000'000'000)
      throw Error("* wants int");
    return width.as_int();
  }

  // The value of "%(key)s"; nothing if the conversion has no key.
  std::optional<Value> named_value() {
    if (reader_.take("(") == 0) return std::nullopt;
    const size_t end = reader_.text.find(')', reader_.i);
    if (end == std::string_view::npos) throw Error("incomplete format key");
    if (!values_.is_dict()) throw Error("format requires a mapping");
    const std::string_view key = reader_.text.substr(reader_.i, end - reader_.i);
    const Value* found = values_.dict().find(key);
    if (found == nullptr) throw Error("the format names a missing key '{}'", printable(key, 64));
    reader_.i = end + 1;
    return *found;
  }

  std::string conversion() {
    FormatSpec spec;
    const auto named = named_value();
    while (const char flag = reader_.take("#0- +")) {
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.zero = true;
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign == '-')) spec.sign = flag;
    }
    spec.width = star_or_number();
    if (spec.width < 0) spec.align = '<', spec.width = -spec.width;
    if (reader_.take(".") != 0) spec.precision = std::max<Int>(star_or_number(), 0);
    while (reader_.take("hlL") != 0) continue;
    if (reader_.done()) throw Error("incomplete format");
    spec.type = reader_.text[reader_.i++];
    if (spec.type == '%') return "%";
    return padded(rt_, converted(named ? *named : take(), spec), spec, '>');
  }

  std::string converted(const Value& value, FormatSpec& spec) {
    if (spec.has_type("sra")) {
      std::string shown = in_markup(format_, value, spec.type == 's' ? rt_.str(value) : to_repr(value, rt_.meter));
      if (spec.precision >= 0) shown.resize(byte_of_char(shown, static_cast<size_t>(spec.precision)));
      return shown;
    }
    if (spec.type == 'c') return character(value);
    if (!spec.has_type("diuoxX") && !spec.is_float())
      throw Error("unsupported format character '{}'", printable({&spec.type, 1}));
    if (value.is_undefined()) value.fail_undefined();
    if (!value.is_number()) throw Error("%{} format: a real number is required, not {}", spec.type, value.type_name());
    spec.fill_with_zeros('=');
    if (spec.is_float()) return float_text(rt_, value.as_float(), spec);
    if (value.is_float() && spec.has_type("xXo"))
      throw Error("%{} format: an integer is required, not float", spec.type);
    if (value.is_float() && !(std::fabs(value.as_float()) < 0x1p126)) throw Error("the number is too large");
    return integer(value.is_float() ? static_cast<Int>(value.as_float()) : value.as_int(), spec);
  }

  // Precision as in C: the least number of digits.
  std::string integer(Int value, const FormatSpec& spec) {
    std::string digits = int_text(value, spec);
    if (spec.precision < 0) return digits;
    const size_t start = digits.find_first_of("0123456789abcdefABCDEF") + (spec.alternate && spec.type != 'd' ? 2 : 0);
    const size_t n = digits.size() - start;
    if (spec.precision <= static_cast<Int>(n)) return digits;
    rt_.meter.make(static_cast<size_t>(spec.precision));
    return digits.insert(start, static_cast<size_t>(spec.precision) - n, '0');
  }

  std::string character(const Value& value) {
    if (value.is_string() && value.str().n_chars == 1) return value.text();
    if (!value.is_int()) throw Error("%c requires int or char");
    const Int code = value.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw Error("%c arg not in range(0x110000)");
    std::string out;
    utf8_append(out, static_cast<char32_t>(code));
    return out;
  }

  Runtime& rt_;
  const Str& format_;
  FormatReader reader_;
  const Value& values_;
  size_t n_taken_ = 0;
};

}  // namespace

std::string brace_format(Runtime& rt, const Str& format, const Args& args) {
  return BraceFormat(rt, format, args).run(format.text, 0);
}

std::string percent_format(Runtime& rt, const Str& format, const Value& values) {
  return PercentFormat(rt, format, values).run();
}

}  // namespace ingot::jinja

#include "text/jinja_format.h"

#include <cmath>

#include "text/jinja_objects.h"
#include "text/jinja_print.h"
#include "text/jinja_runtime.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace ingot::jinja {
namespace {

// One conversion of either way: [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0 for the default of the type
  char sign = '-';
  bool alternate = false, zero = false;
  char group = 0;  // , or _
  Int width = 0, precision = -1;
  char type = 0;
};

bool is_digit_at(std::string_view text, size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; }

Int read_number(std::string_view text, size_t& i) {
  Int value = 0;
  for (; is_digit_at(text, i); ++i) {
    value = value * 10 + (text[i] - '0');
    if (value > 1'000'000'000) throw Error("the width or precision of a format is too large");
  }
  return value;
}

// Text in a field of the width, which may be shorter than it.
std::string padded(Runtime& rt, const std::string& text, const Spec& spec, char default_align) {
  const auto n = static_cast<Int>(count_chars(text));
  if (n >= spec.width) return text;
  const auto gap = static_cast<size_t>(spec.width - n);
  rt.meter.make(spec.fill.size(), gap);
  const char align = spec.align != 0 ? spec.align : default_align;
  auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  const size_t sign = align == '=' && !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
  switch (align) {
    case '<': return text + fill(gap);
    case '^': return fill(gap / 2) + text + fill(gap - gap / 2);
    case '=': return text.substr(0, sign) + fill(gap) + text.substr(sign);
    default: return fill(gap) + text;
  }
}

std::string grouped(std::string digits, char separator, size_t every) {
  size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (end == std::string::npos) end = digits.size();
  for (size_t i = end; i > every; i -= every) digits.insert(i - every, 1, separator);
  return digits;
}

std::string with_sign(bool negative, const std::string& digits, const Spec& spec) {
  return (negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign)) + digits;
}

std::string int_text(Int value, const Spec& spec) {
  // The magnitude of the least number has one more bit than a positive one can hold.
  const auto magnitude = value < 0 ? ~static_cast<unsigned __int128>(value) + 1 : static_cast<unsigned __int128>(value);
  std::string digits, prefix;
  switch (spec.type) {
    case 'x': digits = fmt::format("{:x}", magnitude), prefix = "0x"; break;
    case 'X': digits = fmt::format("{:X}", magnitude), prefix = "0X"; break;
    case 'o': digits = fmt::format("{:o}", magnitude), prefix = "0o"; break;
    case 'b': digits = fmt::format("{:b}", magnitude), prefix = "0b"; break;
    default: digits = fmt::format("{}", magnitude);
  }
  if (spec.group != 0) digits = grouped(digits, spec.group, prefix.empty() ? 3 : 4);
  return with_sign(value < 0, (spec.alternate ? prefix : "") + digits, spec);
}

std::string float_text(Runtime& rt, double value, const Spec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  std::string digits;
  if (std::isnan(value) || std::isinf(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type >= 'A' && spec.type <= 'Z') digits = to_upper(digits);
    return with_sign(negative, digits + (spec.type == '%' ? "%" : ""), spec);
  }
  const bool is_default = spec.type == 0;
  if (is_default && spec.precision < 0) {
    digits = float_repr(magnitude);
  } else {
    if (spec.precision > 100'000) throw Error("the precision of a format is too large");
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    rt.meter.make(static_cast<size_t>(precision) + 320);
    const char type = spec.type == '%' ? 'f' : is_default || spec.type == 'n' ? 'g' : spec.type;
    const double shown = spec.type == '%' ? magnitude * 100 : magnitude;
    digits = fmt::format(fmt::runtime(fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", precision, type)), shown);
    if (is_default && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    if (spec.type == '%') digits += '%';
  }
  if (spec.group != 0) digits = grouped(digits, spec.group, 3);
  return with_sign(negative, digits, spec);
}

bool is_float_type(char type) { return type != 0 && std::string_view("eEfFgG%n").find(type) != std::string_view::npos; }

// ---- "%s" % values

class PercentFormat {
 public:
  PercentFormat(Runtime& rt, const Str& format, const Value& values)
      : rt_(rt), format_(format), text_(format.text), values_(values) {}

  std::string run() {
    std::string out;
    while (i_ < text_.size()) {
      const size_t next = std::min(text_.find('%', i_), text_.size());
      out += text_.substr(i_, next - i_);
      i_ = next + 1;
      if (next < text_.size()) out += conversion();
      rt_.meter.fits(out.size());
    }
    // To Python all that can be indexed is a mapping here.
    const bool is_mapping = values_.is_dict() || values_.is_list() || values_.is_undefined() || values_.as<Range>() != nullptr;
    if (!is_mapping && n_taken_ < (values_.is_tuple() ? values_.items().size() : 1)) {
      throw Error("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  Value take() {
    const size_t n = values_.is_tuple() ? values_.items().size() : 1;
    if (n_taken_ >= n) throw Error("not enough arguments for format string");
    const size_t i = n_taken_++;
    return values_.is_tuple() ? values_.items()[i] : values_;
  }

  Int star_or_number() {
    if (i_ >= text_.size() || text_[i_] != '*') return read_number(text_, i_);
    ++i_;
    const Value width = take();
    if (!width.is_int() || width.as_int() > 1'000'000'000 || width.as_int() < -1'000'000'000) throw Error("* wants int");
    return width.as_int();
  }

  std::string conversion() {
    Spec spec;
    Value named;
    bool has_name = false;
    if (i_ < text_.size() && text_[i_] == '(') {
      const size_t end = text_.find(')', i_);
      if (end == std::string_view::npos) throw Error("incomplete format key");
      if (!values_.is_dict()) throw Error("format requires a mapping");
      const std::string_view key = text_.substr(i_ + 1, end - i_ - 1);
      const Value* found = values_.dict().find(key);
      if (found == nullptr) throw Error("the format names a missing key '{}'", printable(key, 64));
      named = *found;
      has_name = true;
      i_ = end + 1;
    }
    for (; i_ < text_.size() && std::string_view("#0- +").find(text_[i_]) != std::string_view::npos; ++i_) {
      const char flag = text_[i_];
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.zero = true;
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign == '-')) spec.sign = flag;
    }
    spec.width = star_or_number();
    if (spec.width < 0) spec.align = '<', spec.width = -spec.width;
    if (i_ < text_.size() && text_[i_] == '.') {
      ++i_;
      spec.precision = std::max<Int>(star_or_number(), 0);
    }
    while (i_ < text_.size() && std::string_view("hlL").find(text_[i_]) != std::string_view::npos) ++i_;
    if (i_ >= text_.size()) throw Error("incomplete format");
    spec.type = text_[i_++];
    if (spec.type == '%') return "%";
    return converted(has_name ? named : take(), spec);
  }

  std::string converted(const Value& value, Spec spec) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      std::string shown = spec.type == 's' ? rt_.str(value) : to_repr(value, rt_.meter);
      if (format_.markup && !(value.is_string() && value.str().markup)) shown = html_escape(shown);
      if (spec.precision >= 0) shown.resize(byte_of_char(shown, static_cast<size_t>(spec.precision)));
      return padded(rt_, shown, spec, '>');
    }
    if (spec.type == 'c') return padded(rt_, character(value), spec, '>');
    const bool is_int = std::string_view("diuoxX").find(spec.type) != std::string_view::npos;
    if (!is_int && !is_float_type(spec.type)) throw Error("unsupported format character '{}'", printable({&spec.type, 1}));
    if (value.is_undefined()) value.fail_undefined();
    if (!value.is_number()) throw Error("%{} format: a real number is required, not {}", spec.type, value.type_name());
    if (spec.zero && spec.align == 0) spec.fill = "0", spec.align = '=';
    if (!is_int) return padded(rt_, float_text(rt_, value.as_float(), spec), spec, '>');
    if (value.is_float() && (spec.type == 'x' || spec.type == 'X' || spec.type == 'o')) {
      throw Error("%{} format: an integer is required, not float", spec.type);
    }
    if (value.is_float() && !(std::fabs(value.as_float()) < 0x1p126)) throw Error("the number is too large");
    return padded(rt_, integer(value.is_float() ? static_cast<Int>(value.as_float()) : value.as_int(), spec), spec, '>');
  }

  // With C's meaning of precision: the least number of digits.
  std::string integer(Int value, const Spec& spec) {
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
  std::string_view text_;
  const Value& values_;
  size_t i_ = 0, n_taken_ = 0;
};

// ---- "{}".format(values)

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  auto is_align = [&](size_t at) { return at < text.size() && std::string_view("<>=^").find(text[at]) != std::string_view::npos; };
  const size_t first = text.empty() ? 0 : char_at(text, 0).n_bytes;
  if (first > 0 && is_align(first)) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    i = first + 1;
  } else if (is_align(0)) {
    spec.align = text[i++];
  }
  if (i < text.size() && std::string_view("+- ").find(text[i]) != std::string_view::npos) spec.sign = text[i++];
  if (i < text.size() && text[i] == '#') spec.alternate = true, ++i;
  if (i < text.size() && text[i] == '0') spec.zero = true, ++i;
  spec.width = read_number(text, i);
  if (i < text.size() && (text[i] == ',' || text[i] == '_')) spec.group = text[i++];
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!is_digit_at(text, i)) throw Error("format specifier missing precision");
    spec.precision = read_number(text, i);
  }
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) throw Error("invalid format specifier");
  return spec;
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
      if (how != 'r' && how != 's' && how != 'a') throw Error("unknown conversion specifier '{}'", printable({&how, 1}));
      value = rt_.text(how == 's' ? rt_.str(value) : to_repr(value, rt_.meter));
      end += 2;
      if (end < text.size() && text[end] != ':') throw Error("expected ':' after conversion specifier");
    }
    const std::string spec = end < text.size() ? run(text.substr(end + 1), depth + 1) : std::string();
    const std::string shown = converted(value, spec);
    return format_.markup && !(value.is_string() && value.str().markup) ? html_escape(shown) : shown;
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
      size_t digits = 0;
      const Int number = is_digit_at(part, 0) ? read_number(part, digits) : 0;
      const bool is_index = digits > 0 && digits == part.size();
      value = !is_item ? rt_.get_attr(value, part)
                       : rt_.get_item(value, is_index ? Value::integer(number) : Value::string(std::string(part)));
      i = stop + is_item;
    }
    return value;
  }

  Value argument(std::string_view name) {
    size_t digits = 0;
    const Int number = read_number(name, digits);
    if (name.empty() || (digits > 0 && digits == name.size())) {
      if (name.empty() ? next_ < 0 : next_ > 0) throw Error("cannot mix automatic and manual field numbering");
      const Int i = name.empty() ? next_++ : number;
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

  std::string converted(const Value& value, const std::string& spec_text) {
    if (spec_text.empty()) return rt_.str(value);
    Spec spec = parse_spec(spec_text);
    if (spec.zero && spec.align == 0) spec.fill = "0", spec.align = value.is_string() ? '<' : '=';
    if (value.is_string()) {
      if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.group != 0 || spec.sign != '-' || spec.alternate) {
        throw Error("invalid format specifier for 'str'");
      }
      std::string text = value.text();
      if (spec.precision >= 0) text.resize(byte_of_char(text, static_cast<size_t>(spec.precision)));
      return padded(rt_, text, spec, '<');
    }
    if (!value.is_number()) throw Error("unsupported format string passed to {}.__format__", value.type_name());
    const bool as_float = value.is_float() || is_float_type(spec.type);
    if (value.is_bool() && spec.type == 0) return padded(rt_, value.as_bool() ? "1" : "0", spec, '>');
    if (spec.type != 0 && !is_float_type(spec.type) && (value.is_float() || std::string_view("bdoxXc").find(spec.type) == std::string_view::npos)) {
      throw Error("unknown format code '{}' for object of type '{}'", printable({&spec.type, 1}), value.type_name());
    }
    if (!as_float && spec.precision >= 0) throw Error("precision not allowed in integer format specifier");
    if (spec.type == 'c') throw Error("format code 'c' is not supported");
    return padded(rt_, as_float ? float_text(rt_, value.as_float(), spec) : int_text(value.as_int(), spec), spec, '>');
  }

  Runtime& rt_;
  const Str& format_;
  const Args& args_;
  Int next_ = 0;  // of the fields without a number; -1 once one with a number was seen
};

}  // namespace

std::string percent_format(Runtime& rt, const Str& format, const Value& values) {
  return PercentFormat(rt, format, values).run();
}

std::string brace_format(Runtime& rt, const Str& format, const Args& args) {
  return BraceFormat(rt, format, args).run(format.text, 0);
}

}  // namespace ingot::jinja

// "{}".format(values): fields by position or name, their attributes and elements, and their specifications.
#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/format_number.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  size_t i = 0;
  auto is_align = [&](size_t at) {
    return at < text.size() && std::string_view("<>=^").find(text[at]) != std::string_view::npos;
  };
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
      if (how != 'r' && how != 's' && how != 'a')
        throw Error("unknown conversion specifier '{}'", printable({&how, 1}));
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
    FormatSpec spec = parse_spec(spec_text);
    if (spec.zero && spec.align == 0) spec.fill.assign(1, '0'), spec.align = value.is_string() ? '<' : '=';
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
    const bool as_float = value.is_float() || is_float_type(spec.type);
    if (value.is_bool() && spec.type == 0) return padded(rt_, value.as_bool() ? "1" : "0", spec, '>');
    if (spec.type != 0 && !is_float_type(spec.type) &&
        (value.is_float() || std::string_view("bdoxXc").find(spec.type) == std::string_view::npos)) {
      throw Error("unknown format code '{}' for object of type '{}'", printable({&spec.type, 1}), value.type_name());
    }
    if (!as_float && spec.precision >= 0) throw Error("precision not allowed in integer format specifier");
    if (spec.type == 'c') throw Error("format code 'c' is not supported");
    return padded(rt_, as_float ? float_text(rt_, value.as_float(), spec) : int_text(value.as_int(), spec), spec, '>');
  }

  Runtime& rt_;
  const Str& format_;
  const Args& args_;
  Int next_ = 0;  // number of the next automatic field; -1 after a field with a number
};

}  // namespace

std::string brace_format(Runtime& rt, const Str& format, const Args& args) {
  return BraceFormat(rt, format, args).run(format.text, 0);
}

}  // namespace ingot::jinja

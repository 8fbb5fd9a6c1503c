// "%s" % values, with Python's flags, widths and types.
#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/format_number.h"
#include "text/jinja/objects.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"
#include "text/tokenizers/unicode.h"

namespace ingot::jinja {
namespace {

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
    // In Python, every value that can be indexed counts as a mapping here.
    const bool is_mapping =
        values_.is_dict() || values_.is_list() || values_.is_undefined() || values_.as<Range>() != nullptr;
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
    if (!width.is_int() || width.as_int() > 1'000'000'000 || width.as_int() < -1'000'000'000)
      throw Error("* wants int");
    return width.as_int();
  }

  std::string conversion() {
    FormatSpec spec;
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

  std::string converted(const Value& value, FormatSpec spec) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      std::string shown = spec.type == 's' ? rt_.str(value) : to_repr(value, rt_.meter);
      if (format_.markup && !(value.is_string() && value.str().markup)) shown = html_escape(shown);
      if (spec.precision >= 0) shown.resize(byte_of_char(shown, static_cast<size_t>(spec.precision)));
      return padded(rt_, shown, spec, '>');
    }
    if (spec.type == 'c') return padded(rt_, character(value), spec, '>');
    const bool is_int = std::string_view("diuoxX").find(spec.type) != std::string_view::npos;
    if (!is_int && !is_float_type(spec.type))
      throw Error("unsupported format character '{}'", printable({&spec.type, 1}));
    if (value.is_undefined()) value.fail_undefined();
    if (!value.is_number()) throw Error("%{} format: a real number is required, not {}", spec.type, value.type_name());
    if (spec.zero && spec.align == 0) spec.fill.assign(1, '0'), spec.align = '=';
    if (!is_int) return padded(rt_, float_text(rt_, value.as_float(), spec), spec, '>');
    if (value.is_float() && (spec.type == 'x' || spec.type == 'X' || spec.type == 'o')) {
      throw Error("%{} format: an integer is required, not float", spec.type);
    }
    if (value.is_float() && !(std::fabs(value.as_float()) < 0x1p126)) throw Error("the number is too large");
    return padded(rt_, integer(value.is_float() ? static_cast<Int>(value.as_float()) : value.as_int(), spec), spec,
                  '>');
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
  std::string_view text_;
  const Value& values_;
  size_t i_ = 0, n_taken_ = 0;
};

}  // namespace

std::string percent_format(Runtime& rt, const Str& format, const Value& values) {
  return PercentFormat(rt, format, values).run();
}

}  // namespace ingot::jinja

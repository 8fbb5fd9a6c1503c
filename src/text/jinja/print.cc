#include "text/jinja/print.h"

#include <charconv>
#include <cmath>

#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

void append_string_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    const std::string_view bytes = text.substr(i, c.n_bytes);
    i += c.n_bytes;
    if (c.code == static_cast<unsigned char>(quote) || c.code == '\\') {
      out += '\\';
      out += bytes;
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out += c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
    } else if (c.code == kBadByte) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[0]));
    } else if (is_printable(c.code)) {
      out += bytes;
    } else {
      const auto code = static_cast<uint32_t>(c.code);
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  out += quote;
}

// Writes reprs to one string, and charges for each.
class ReprWriter {
 public:
  explicit ReprWriter(Meter& meter) : meter_(meter) {}

  void write(const Value& value, size_t depth) {
    meter_.nested(depth);
    meter_.spend();
    switch (value.kind()) {
      case Kind::kUndefined: add("Undefined"); break;
      case Kind::kNone: add("None"); break;
      case Kind::kBool: add(value.as_bool() ? "True" : "False"); break;
      case Kind::kInt: add(int_repr(value.as_int())); break;
      case Kind::kFloat: add(float_repr(value.as_float())); break;
      case Kind::kString: write_string(value.str()); break;
      case Kind::kList: write_items(value.items(), "[", "]", depth); break;
      case Kind::kTuple: write_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")", depth); break;
      case Kind::kDict: write_dict(value.dict(), depth); break;
      case Kind::kObject: add(value.object().repr(meter_, depth)); break;
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void add(std::string_view text) {
    meter_.fits(out_.size() + text.size());
    meter_.read(text.size());
    out_ += text;
  }
  void write_string(const Str& str) {
    meter_.make(str.text.size() + 2);
    std::string quoted;
    append_string_repr(quoted, str.text);
    add(str.markup ? "Markup(" + quoted + ")" : quoted);
  }
  void write_items(const std::vector<Value>& items, std::string_view open, std::string_view close, size_t depth) {
    add(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(", ");
      write(items[i], depth + 1);
    }
    add(close);
  }
  void write_dict(const Dict& dict, size_t depth) {
    add("{");
    for (size_t i = 0; i < dict.entries().size(); ++i) {
      if (i > 0) add(", ");
      write(dict.entries()[i].key, depth + 1);
      add(": ");
      write(dict.entries()[i].value, depth + 1);
    }
    add("}");
  }

  Meter& meter_;
  std::string out_;
};

}  // namespace

std::string int_repr(Int value) { return fmt::format("{}", value); }

// The shortest digits that read back as the same number, in Python's notation.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = text[0] == '-' ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.insert(whole, ".");
}

std::string to_str(const Value& value, Meter& meter) {
  if (value.is_string()) return value.text();
  return value.is_undefined() ? "" : to_repr(value, meter);
}

std::string to_repr(const Value& value, Meter& meter, size_t depth) {
  ReprWriter writer(meter);
  writer.write(value, depth);
  return writer.take();
}

}  // namespace ingot::jinja

// Values as text: Python's repr, and JSON as Python's json.dumps writes it. The conversion from JSON to values.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace ingot::jinja {
namespace {

// A string literal in Python's notation.
std::string python_quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    const std::string_view bytes = text.substr(i, c.n_bytes);
    i += c.n_bytes;
    if (c.code == static_cast<unsigned char>(quote) || c.code == '\\') {
      (out += '\\') += bytes;
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out += c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c.code)) {
      out += bytes;
    } else {
      const uint32_t code = c.code == kBadByte ? static_cast<unsigned char>(bytes[0]) : c.code;
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  return out += quote;
}

std::string json_quoted(std::string_view text, bool ensure_ascii) {
  static constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    const size_t named = c.code < 0x80 ? kNamed.find(text[i]) : std::string_view::npos;
    if (named != std::string_view::npos) {
      (out += '\\') += kNames[named];
    } else if (c.code < 0x20 || (ensure_ascii && c.code >= 0x80 && c.code < 0x10000)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c.code));
    } else if (ensure_ascii && c.code >= 0x10000 && c.code != kBadByte) {
      const auto rest = static_cast<uint32_t>(c.code) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out += text.substr(i, c.n_bytes);
    }
    i += c.n_bytes;
  }
  return out += '"';
}

// Writes values to one string in Python's notation or as JSON, and charges for each part.
class Writer {
 public:
  Writer(bool is_json, const JsonStyle& style, Meter& meter) : is_json_(is_json), style_(style), meter_(meter) {}
  std::string take() { return std::move(out_); }

  void write(const Value& value, size_t depth) {
    meter_.nested(depth);
    meter_.spend();
    switch (value.kind()) {
      case Kind::kString: write_string(value.text(), value.is_markup()); break;
      case Kind::kTuple:
        if (!is_json_) return write_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")", depth + 1);
        [[fallthrough]];
      case Kind::kList: write_items(value.items(), "[", "]", depth + 1); break;
      case Kind::kDict: write_dict(value.dict(), depth + 1); break;
      default:
        if (is_json_ && (value.is_undefined() || value.is_object())) {
          throw Error("Object of type {} is not JSON serializable", value.type_name());
        }
        add(value.is_object() ? value.object().repr(meter_, depth) : scalar(value));
    }
  }

 private:
  void add(std::string_view text) {
    meter_.fits(out_.size() + text.size());
    meter_.read(text.size());
    out_ += text;
  }

  std::string scalar(const Value& value) const {
    if (value.is_undefined()) return "Undefined";
    if (value.is_none()) return is_json_ ? "null" : "None";
    if (value.is_bool() && is_json_) return value.as_bool() ? "true" : "false";
    if (value.is_bool()) return value.as_bool() ? "True" : "False";
    if (value.is_int()) return fmt::format("{}", value.as_int());
    const double number = value.as_float();
    if (!is_json_ || std::isfinite(number)) return float_repr(number);
    return std::isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity";
  }

  void write_string(std::string_view text, bool markup) {
    meter_.make(text.size() + 2);
    const std::string quoted = is_json_ ? json_quoted(text, style_.ensure_ascii) : python_quoted(text);
    add(markup && !is_json_ ? "Markup(" + quoted + ")" : quoted);
  }

  void write_key(const Value& key, size_t depth) {
    if (!is_json_) return write(key, depth);
    if (key.is_string()) return write_string(key.text(), false);
    if (!key.is_none() && !key.is_number()) {
      throw Error("keys must be str, int, float, bool or None, not {}", key.type_name());
    }
    write_string(scalar(key), false);
  }

  void new_line(size_t level) {
    if (!style_.multiline) return;
    meter_.make(style_.indent.size(), level);
    add("\n" + repeat(style_.indent, level));
  }

  // level: the nesting inside of the brackets.
  template <class Items, class WriteItem>
  void enclose(const Items& items, std::string_view open, std::string_view close, size_t level, const WriteItem& item) {
    if (is_json_ && items.empty()) return add(std::string(open) + std::string(close));
    add(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line(level);
      item(items[i]);
    }
    new_line(level - 1);
    add(close);
  }

  void write_items(const std::vector<Value>& items, std::string_view open, std::string_view close, size_t level) {
    enclose(items, open, close, level, [&](const Value& item) { write(item, level); });
  }

  void write_dict(const Dict& dict, size_t level) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](auto* a, auto* b) { return compare(a->key, b->key, "<", meter_) == -1; });
    }
    enclose(entries, "{", "}", level, [&](const Dict::Entry* entry) {
      write_key(entry->key, level);
      add(style_.key_separator);
      write(entry->value, level);
    });
  }

  const bool is_json_;
  const JsonStyle& style_;
  Meter& meter_;
  std::string out_;
};

std::string written(bool is_json, const Value& value, const JsonStyle& style, Meter& meter, size_t depth) {
  Writer writer(is_json, style, meter);
  writer.write(value, depth);
  return writer.take();
}

// Reads a document, and sums its size for the rendering's fuel.
struct JsonReader {
  Meter& meter;
  size_t n_bytes = 0;

  Value read(const nlohmann::ordered_json& json, size_t depth) {
    using Type = nlohmann::ordered_json::value_t;
    meter.nested(depth);
    n_bytes += 2;
    switch (json.type()) {
      case Type::boolean: return Value::boolean(json.get<bool>());
      case Type::number_integer: return Value::integer(json.get<int64_t>());
      case Type::number_unsigned: return Value::integer(json.get<uint64_t>());
      case Type::number_float: return Value::real(json.get<double>());
      case Type::string: return text(json.get_ref<const std::string&>());
      case Type::array: {
        std::vector<Value> items;
        items.reserve(json.size());
        for (const auto& item : json) items.push_back(read(item, depth + 1));
        return Value::list(std::move(items), meter);
      }
      case Type::object: {
        auto made = std::make_shared<Dict>();
        for (const auto& [key, item] : json.items()) made->set(text(key), read(item, depth + 1), meter);
        return Value::dict(std::move(made));
      }
      default: return Value::none();
    }
  }

  Value text(const std::string& string) {
    n_bytes += string.size();
    return Value::string(string);
  }
};

}  // namespace

// The shortest digits that read back as the same number, in Python's notation.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  const bool whole = std::isfinite(value) && text.find_first_of(".e") == std::string::npos;
  return whole ? text + ".0" : text;
}

std::string to_str(const Value& value, Meter& meter) {
  if (value.is_string()) return value.text();
  return value.is_undefined() ? "" : to_repr(value, meter);
}

std::string to_repr(const Value& value, Meter& meter, size_t depth) {
  return written(false, value, JsonStyle(), meter, depth);
}

std::string to_json(const Value& value, const JsonStyle& style, Meter& meter) {
  return written(true, value, style, meter, 0);
}

Value from_json(const nlohmann::ordered_json& json, Meter& meter, size_t& n_bytes) {
  JsonReader reader{meter};
  Value value = reader.read(json, 0);
  n_bytes += reader.n_bytes;
  return value;
}

Value parse_json(std::string_view text, Meter& meter) {
  meter.items(text.size() / 4);
  try {
    size_t n_bytes = 0;
    return from_json(nlohmann::ordered_json::parse(text), meter, n_bytes);
  } catch (const nlohmann::json::exception&) {
    throw Error("from_json: the text is not JSON");
  }
}

}  // namespace ingot::jinja

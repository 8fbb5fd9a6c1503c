// Values to JSON, as Python's json.dumps writes it, and JSON to values.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Meter& meter) : style_(style), meter_(meter) {}

  void write(const Value& value, size_t depth) {
    meter_.nested(depth);
    meter_.spend();
    switch (value.kind()) {
      case Kind::kNone: add("null"); break;
      case Kind::kBool: add(value.as_bool() ? "true" : "false"); break;
      case Kind::kInt: add(int_repr(value.as_int())); break;
      case Kind::kFloat: add(number(value.as_float())); break;
      case Kind::kString: write_string(value.text()); break;
      case Kind::kList:
      case Kind::kTuple: write_list(value.items(), depth + 1); break;
      case Kind::kDict: write_dict(value.dict(), depth + 1); break;
      default: throw Error("Object of type {} is not JSON serializable", value.type_name());
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void add(std::string_view text) {
    meter_.fits(out_.size() + text.size());
    meter_.read(text.size());
    out_ += text;
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void write_string(std::string_view text) {
    meter_.make(text.size() + 2);
    std::string quoted = "\"";
    for (size_t i = 0; i < text.size();) {
      const Char c = char_at(text, i);
      append_escaped(quoted, c.code, text.substr(i, c.n_bytes));
      i += c.n_bytes;
    }
    add(quoted + "\"");
  }

  void append_escaped(std::string& out, char32_t c, std::string_view bytes) const {
    static constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
    const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
    if (named != std::string_view::npos) {
      out += '\\';
      out += kNames[named];
    } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x80 && c < 0x10000)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (style_.ensure_ascii && c >= 0x10000 && c != kBadByte) {
      const auto rest = static_cast<uint32_t>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out += bytes;
    }
  }

  void new_line(size_t level) {
    if (!style_.multiline) return;
    meter_.make(style_.indent.size(), level);
    std::string line = "\n";
    for (size_t i = 0; i < level; ++i) line += style_.indent;
    add(line);
  }

  void write_list(const std::vector<Value>& items, size_t level) {
    if (items.empty()) return add("[]");
    add("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line(level);
      write(items[i], level);
    }
    new_line(level - 1);
    add("]");
  }

  void write_dict(const Dict& dict, size_t level) {
    if (dict.entries().empty()) return add("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](auto* a, auto* b) { return compare(a->key, b->key, "<", meter_) == -1; });
    }
    add("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line(level);
      write_string(key_text(entries[i]->key));
      add(style_.key_separator);
      write(entries[i]->value, level);
    }
    new_line(level - 1);
    add("}");
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString: return key.text();
      case Kind::kNone: return "null";
      case Kind::kBool: return key.as_bool() ? "true" : "false";
      case Kind::kInt: return int_repr(key.as_int());
      case Kind::kFloat: return number(key.as_float());
      default: throw Error("keys must be str, int, float, bool or None, not {}", key.type_name());
    }
  }

  const JsonStyle& style_;
  Meter& meter_;
  std::string out_;
};

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
      case Type::array: return list(json, depth + 1);
      case Type::object: return dict(json, depth + 1);
      default: return Value::none();
    }
  }
  Value text(const std::string& string) {
    n_bytes += string.size();
    return Value::string(string);
  }
  Value list(const nlohmann::ordered_json& json, size_t depth) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const auto& item : json) items.push_back(read(item, depth));
    return Value::list(std::move(items), meter);
  }
  Value dict(const nlohmann::ordered_json& json, size_t depth) {
    auto made = std::make_shared<Dict>();
    for (const auto& [key, item] : json.items()) made->set(text(key), read(item, depth), meter);
    return Value::dict(std::move(made));
  }
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Meter& meter) {
  JsonWriter writer(style, meter);
  writer.write(value, 0);
  return writer.take();
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

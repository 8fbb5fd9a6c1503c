#include "io/json.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <span>

#include "base/file.h"
#include "io/name_index.h"
#include "io/sniff.h"

namespace ingot {
namespace {

using Kind = JsonEvent::Kind;

constexpr size_t kMaxTextBytes = std::numeric_limits<uint32_t>::max();

struct Text {
  uint32_t begin, size;
};

struct Node {
  Kind kind;
  uint32_t offset;
  uint32_t end;  // the node after this node and all its contents
  union {
    int64_t integer;
    double real;
    Text text;     // a string or key: its position in `strings`
    size_t count;  // an object or array: the number of its members or elements
  };
};
static_assert(sizeof(Node) == 24);

}  // namespace

struct JsonDocument::Table {
  std::string source;
  std::deque<Node> nodes;  // in the order of the text; a member is its key node, then its value node
  std::string strings;

  std::string_view text(const Node& node) const {
    return std::string_view(strings).substr(node.text.begin, node.text.size);
  }
};

class JsonBuilder {
 public:
  explicit JsonBuilder(JsonDocument::Table& table) : table_(table) {}

  void add(const JsonEvent& event) {
    if (event.kind == Kind::kEndObject || event.kind == Kind::kEndArray) {
      close();
      return;
    }
    const auto index = static_cast<uint32_t>(table_.nodes.size());
    Node node{
        .kind = event.kind, .offset = static_cast<uint32_t>(event.offset), .end = index + 1, .integer = event.integer};
    if (event.kind == Kind::kReal) node.real = event.real;
    if (event.kind == Kind::kString || event.kind == Kind::kKey) {
      node.text = {static_cast<uint32_t>(table_.strings.size()), static_cast<uint32_t>(event.text.size())};
      table_.strings += event.text;
    }
    if (event.kind != Kind::kKey && !open_.empty()) ++table_.nodes[open_.back()].count;
    if (event.kind == Kind::kBeginObject || event.kind == Kind::kBeginArray) {
      node.count = 0;
      open_.push_back(index);
    }
    table_.nodes.push_back(node);
  }

 private:
  void close() {
    Node& node = table_.nodes[open_.back()];
    node.end = static_cast<uint32_t>(table_.nodes.size());
    if (node.kind == Kind::kBeginObject) refuse_duplicates(node);
    open_.pop_back();
  }

  void refuse_duplicates(const Node& object) {
    std::vector<uint32_t> keys;
    keys.reserve(object.count);
    for (uint32_t i = open_.back() + 1; i < object.end; i = table_.nodes[i + 1].end) keys.push_back(i);
    auto name_of = [&](size_t i) { return table_.text(table_.nodes[keys[i]]); };
    if (const auto twice = NameIndex(keys.size(), name_of).duplicate(name_of))
      throw Error("{}: offset {}: the key '{}' occurs twice in one object", printable(table_.source),
                  table_.nodes[keys[*twice]].offset, printable(name_of(*twice), 64));
  }

  JsonDocument::Table& table_;
  std::vector<uint32_t> open_;
};

JsonDocument JsonDocument::parse(std::string_view text, std::string source) {
  if (text.size() >= kMaxTextBytes)
    throw Error("{}: {} bytes of JSON; the limit is {}", printable(source), text.size(), kMaxTextBytes - 1);
  auto table = std::make_shared<Table>();
  table->source = std::move(source);
  JsonBuilder builder(*table);
  walk_json(text, table->source, [&](const JsonEvent& event) { builder.add(event); });
  JsonDocument document;
  document.table_ = std::move(table);
  return document;
}

// Python writes infinity as Infinity, which JSON lacks. The number in its place is as long, so offsets stay right.
static void replace_infinities(std::string& text) {
  constexpr std::string_view kPythons = "Infinity", kNumber = "1.79e308";
  static_assert(kPythons.size() == kNumber.size());
  if (text.find(kPythons) == text.npos) return;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (text[i] == '\\' && in_string) ++i;
    if (!in_string && text.compare(i, kPythons.size(), kPythons) == 0) text.replace(i, kNumber.size(), kNumber);
  }
}

JsonDocument JsonDocument::read(const std::string& path, size_t max_bytes) {
  std::string text = read_file(path, max_bytes);
  replace_infinities(text);
  const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == text.npos || (text[first] != '{' && text[first] != '['))
    throw Error(
        "{}: not a JSON file but {}", printable(path),
        describe_file({reinterpret_cast<const uint8_t*>(text.data()), std::min<size_t>(text.size(), 64)}, text.size()));
  return parse(text, path);
}

Json JsonDocument::root() const { return {table_.get(), 0}; }
const std::string& JsonDocument::source() const { return table_->source; }

const char* json_kind_name(Kind kind) {
  constexpr const char* kNames[] = {"null", "bool",   "integer", "real",  "str",
                                    "key",  "object", "object",  "array", "array"};
  return kNames[static_cast<size_t>(kind)];
}

Kind Json::kind() const { return table_->nodes[index_].kind; }
size_t Json::offset() const { return table_->nodes[index_].offset; }

std::optional<Json> Json::member(std::string_view key) const {
  if (!is_object()) throw error("expected an object, got {}", describe());
  const auto& nodes = table_->nodes;
  for (uint32_t i = index_ + 1; i < nodes[index_].end; i = nodes[i + 1].end)
    if (table_->text(nodes[i]) == key) return Json(table_, i + 1);
  return std::nullopt;
}

std::optional<Json> Json::find(std::string_view key) const {
  const std::optional<Json> value = member(key);
  return value && value->is_null() ? std::nullopt : value;
}

Json Json::at(std::string_view key) const {
  const std::optional<Json> value = member(key);
  if (!value) throw error("'{}' is missing", printable(key));
  if (value->is_null()) throw value->error("is null, and has no default");
  return *value;
}

std::vector<std::pair<std::string_view, Json>> Json::members() const {
  if (!is_object()) throw error("expected an object, got {}", describe());
  const auto& nodes = table_->nodes;
  std::vector<std::pair<std::string_view, Json>> list;
  list.reserve(nodes[index_].count);
  for (uint32_t i = index_ + 1; i < nodes[index_].end; i = nodes[i + 1].end)
    list.emplace_back(table_->text(nodes[i]), Json(table_, i + 1));
  return list;
}

std::vector<Json> Json::elements() const {
  if (!is_array()) throw error("expected an array, got {}", describe());
  const auto& nodes = table_->nodes;
  std::vector<Json> list;
  list.reserve(nodes[index_].count);
  for (uint32_t i = index_ + 1; i < nodes[index_].end; i = nodes[i].end) list.push_back(Json(table_, i));
  return list;
}

int64_t Json::integer(int64_t low, int64_t high) const {
  const Node& node = table_->nodes[index_];
  int64_t value = node.integer;
  constexpr double kExact = 9007199254740992.0;  // 2^53: below it, a double represents every integer
  if (node.kind == Kind::kReal && std::trunc(node.real) == node.real && std::abs(node.real) <= kExact) {
    value = static_cast<int64_t>(node.real);
  } else if (node.kind != Kind::kInteger) {
    throw error("expected an integer, got {}", describe());
  }
  if (value < low || value > high) throw error("{} is out of range: expected {} to {}", value, low, high);
  return value;
}

double Json::number() const {
  const Node& node = table_->nodes[index_];
  if (node.kind == Kind::kInteger) return static_cast<double>(node.integer);
  if (node.kind != Kind::kReal) throw error("expected a number, got {}", describe());
  return node.real;
}

bool Json::boolean() const {
  if (kind() != Kind::kBool) throw error("expected a bool, got {}", describe());
  return table_->nodes[index_].integer != 0;
}

std::string_view Json::string() const {
  if (!is_string()) throw error("expected a string, got {}", describe());
  return table_->text(table_->nodes[index_]);
}

std::string Json::describe() const {
  const Node& node = table_->nodes[index_];
  switch (node.kind) {
    case Kind::kBool: return node.integer ? "true" : "false";
    case Kind::kInteger: return fmt::format("integer {}", node.integer);
    case Kind::kReal: return fmt::format("{}", node.real);
    case Kind::kString: return fmt::format("str \"{}\"", printable(table_->text(node), 64));
    case Kind::kBeginObject: return fmt::format("object of {}", node.count);
    case Kind::kBeginArray: return fmt::format("array of {}", node.count);
    default: return json_kind_name(node.kind);
  }
}

std::string Json::render() const {
  std::string out;
  append_rendered(out);
  return out;
}

void Json::append_rendered(std::string& out) const {
  constexpr size_t kMaxBytes = 400;
  const Node& node = table_->nodes[index_];
  const bool in_object = node.kind == Kind::kBeginObject;
  if (node.kind == Kind::kString) {
    out += fmt::format("\"{}\"", printable(table_->text(node)));
  } else if (node.kind == Kind::kInteger) {
    out += fmt::format("{}", node.integer);
  } else if (!in_object && node.kind != Kind::kBeginArray) {
    out += describe();
  } else {
    out += in_object ? '{' : '[';
    for (uint32_t i = index_ + 1; i < node.end; i = table_->nodes[i + in_object].end) {
      if (i > index_ + 1) out += ", ";
      if (out.size() > kMaxBytes) {
        out += "...";
        break;
      }
      if (in_object) out += printable(table_->text(table_->nodes[i]), 64) + ": ";
      Json(table_, i + in_object).append_rendered(out);
    }
    out += in_object ? '}' : ']';
  }
}

// Walks from the root to the node. Slow, but used only for error messages.
std::string Json::path() const {
  std::string path;
  for (uint32_t at = 0; at != index_;) {
    const Node& parent = table_->nodes[at];
    const bool in_object = parent.kind == Kind::kBeginObject;
    size_t position = 0;
    uint32_t child = at + 1 + in_object;
    for (; table_->nodes[child].end <= index_; ++position) child = table_->nodes[child].end + in_object;
    if (in_object) {
      path += (path.empty() ? "" : ".") + printable(table_->text(table_->nodes[child - 1]), 64);
    } else {
      path += fmt::format("[{}]", position);
    }
    at = child;
  }
  return path;
}

Error Json::make_error(const std::string& message) const {
  const std::string where = path();
  if (where.empty()) return Error("{}: {}", printable(table_->source), message);
  return Error("{}: '{}' at offset {}: {}", printable(table_->source), where, offset(), message);
}

}  // namespace ingot

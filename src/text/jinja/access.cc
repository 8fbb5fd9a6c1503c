// Attributes, elements, slices, containment and iteration of values, as in jinja2's sandbox.
#include <algorithm>

#include "text/jinja/objects.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

// Names that Python's sandbox hides: names that begin with two underscores, and mutating methods that are not offered.
bool is_hidden(const Value& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"clear", "sort", "reverse", "remove"}, kDict[] = {"clear", "popitem"};
  if (name.substr(0, 2) == "__") return true;
  if (object.is_list()) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  return object.is_dict() && std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

std::string described(const Value& value) {
  return value.is_none() ? std::string("None") : fmt::format("{} object", value.type_name());
}

Value missing(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", described(object), printable(name, 64)));
}

// The position that an index selects in a sequence of n items; n if there is none.
size_t item_at(const Value& index, size_t n) {
  if (!index.is_int() && !index.is_bool()) return n;
  const Int i = index.as_int() < 0 ? index.as_int() + static_cast<Int>(n) : index.as_int();
  return i < 0 || i >= static_cast<Int>(n) ? n : static_cast<size_t>(i);
}

// Python's slice.indices: the items start, start + step, ... of a sequence, `count` items in all.
struct Slice {
  Int start, step;
  size_t count;
};

Slice resolve_slice(const Value* start, const Value* stop, const Value* step, size_t n_items) {
  const auto n = static_cast<Int>(n_items);
  const Int stride = step == nullptr ? 1 : std::clamp(step->as_int(), -n - 1, n + 1);  // longer steps are equivalent
  if (stride == 0) throw Error("slice step cannot be zero");
  const Int low = stride > 0 ? 0 : -1, high = stride > 0 ? n : n - 1;
  auto bound = [&](const Value* value, Int fallback) {
    if (value == nullptr) return fallback;
    const Int i = value->as_int();
    return i < 0 ? std::max(i + n, low) : std::min(i, high);
  };
  const Int from = bound(start, stride > 0 ? low : high), to = bound(stop, stride > 0 ? high : low);
  const Int span = stride > 0 ? to - from : from - to, size = stride > 0 ? stride : -stride;
  return {from, stride, span > 0 ? static_cast<size_t>((span + size - 1) / size) : 0};
}

Value slice_string(Runtime& rt, const Str& str, const Slice& slice) {
  rt.meter.make(str.text.size());
  if (slice.step == 1) {
    if (str.ascii()) return Value::string(str.text.substr(static_cast<size_t>(slice.start), slice.count), str.markup);
    const std::string_view from =
        std::string_view(str.text).substr(byte_of_char(str.text, static_cast<size_t>(slice.start)));
    return Value::string(std::string(from.substr(0, byte_of_char(from, slice.count))), str.markup);
  }
  rt.meter.spend(str.text.size() / 4);
  const std::vector<std::string_view> chars = split_chars(str.text);
  std::string out;
  for (size_t i = 0; i < slice.count; ++i)
    out += chars[static_cast<size_t>(slice.start + static_cast<Int>(i) * slice.step)];
  return Value::string(std::move(out), str.markup);
}

Value slice_range(const Range& range, const Slice& slice) {
  const Int start = range.start() + slice.start * range.step(), step = slice.step * range.step();
  return Value::object(std::make_shared<Range>(start, start + static_cast<Int>(slice.count) * step, step));
}

}  // namespace

bool Runtime::attribute(const Value& object, std::string_view name, Value& out) {
  meter.read(name.size());
  if (is_hidden(object, name)) {
    out = Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", printable(name, 64), object.type_name()));
    return true;
  }
  if (object.is_object()) return object.object().attribute(*this, name, out);
  if (object.is_seq() && object.seq().group && (name == "grouper" || name == "list")) {
    out = object.items()[name == "list"];
    return true;
  }
  const Builtin* method = find_method(object, name);
  if (method != nullptr) out = Value::object(std::make_shared<BoundMethod>(object, *method));
  return method != nullptr;
}

// object[index] as in Python; false for a TypeError or LookupError.
bool Runtime::element(const Value& object, const Value& index, Value& out) {
  if (object.is_seq()) {
    const size_t i = item_at(index, object.items().size());
    if (i == object.items().size()) return false;
    out = object.items()[i];
    return true;
  }
  if (object.is_string()) {
    const Str& str = object.str();
    const size_t i = item_at(index, str.n_chars);
    if (i == str.n_chars) return false;
    meter.read(str.ascii() ? 1 : str.text.size());
    const size_t byte = str.ascii() ? i : byte_of_char(str.text, i);
    out = Value::string(str.text.substr(byte, char_at(str.text, byte).n_bytes), str.markup);
    return true;
  }
  if (object.is_dict()) {
    if (index.is_seq() ? !index.is_tuple() : index.is_dict()) return false;  // unhashable
    const Value* found = object.dict().find(index, meter);
    if (found != nullptr) out = *found;
    return found != nullptr;
  }
  return object.is_object() && object.object().subscript(*this, index, out);
}

Value Runtime::get_attr(const Value& object, std::string_view name) {
  if (object.is_undefined()) object.fail_undefined();
  meter.read(name.size());
  Value out;
  const bool private_name = name.substr(0, 2) == "__";
  if (private_name && object.is_dict() && object.dict().find(name) != nullptr) return *object.dict().find(name);
  if (attribute(object, name, out)) return out;
  if (object.is_dict()) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return missing(object, name);
}

Value Runtime::get_item(const Value& object, const Value& index) {
  if (object.is_undefined()) object.fail_undefined();
  Value out;
  if (element(object, index, out)) return out;
  if (index.is_string()) return attribute(object, index.text(), out) ? out : missing(object, index.text());
  return Value::undefined(fmt::format("'{}' has no such element", described(object)));
}

Value Runtime::get_slice(const Value& object, const Value* start, const Value* stop, const Value* step) {
  if (object.is_undefined()) object.fail_undefined();
  for (const Value* bound : {start, stop, step}) {
    if (bound != nullptr && !bound->is_int() && !bound->is_bool())
      throw Error("slice indices must be integers or none");
  }
  if (object.is_string())
    return slice_string(*this, object.str(), resolve_slice(start, stop, step, object.str().n_chars));
  if (object.is_seq()) {
    const Slice slice = resolve_slice(start, stop, step, object.items().size());
    std::vector<Value> items;
    items.reserve(slice.count);
    for (size_t i = 0; i < slice.count; ++i) {
      items.push_back(object.items()[static_cast<size_t>(slice.start + static_cast<Int>(i) * slice.step)]);
    }
    return object.is_tuple() ? tuple(std::move(items)) : list(std::move(items));
  }
  if (const auto* range = object.as<Range>()) {
    return slice_range(*range, resolve_slice(start, stop, step, length(object)));
  }
  throw Error("'{}' cannot be sliced", described(object));
}

bool Runtime::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) throw Error("'in <string>' requires string as left operand, not {}", item.type_name());
    meter.read(container.text().size());
    return find_text(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) return container.dict().find(item, meter) != nullptr;
  if (const auto* range = container.as<Range>(); range != nullptr && (item.is_int() || item.is_bool())) {
    return range->contains(item.as_int());
  }
  if (auto* iterator = container.as<Iterator>()) {  // consumes the items that it checks
    Value value;
    while (iterator->next(value)) {
      if (value.same(item) || equal(value, item, meter)) return true;
    }
    return false;
  }
  auto is_item = [&](const Value& value) { return value.same(item) || equal(value, item, meter); };
  if (container.is_seq()) return std::any_of(container.items().begin(), container.items().end(), is_item);
  if (!container.is_undefined() && !(container.is_object() && container.object().iterable())) {
    throw Error("argument of type '{}' is not iterable", container.type_name());
  }
  const std::vector<Value> items = iterate(container);
  return std::any_of(items.begin(), items.end(), is_item);
}

std::vector<Value> Runtime::iterate(const Value& value) {
  if (value.is_seq()) {
    meter.spend(1 + value.items().size() / 4);
    return value.items();
  }
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    meter.items(value.str().n_chars);
    for (std::string_view c : split_chars(value.text()))
      items.push_back(Value::string(std::string(c)));  // not Markup, even if the string is Markup
  } else if (value.is_dict()) {
    meter.items(value.dict().entries().size());
    for (const Dict::Entry& entry : value.dict().entries()) items.push_back(entry.key);
  } else if (value.is_object() && value.object().iterable()) {
    items = value.object().drain(meter);
  } else {
    throw Error("'{}' object is not iterable", value.type_name());
  }
  return items;
}

size_t Runtime::length(const Value& value) {
  size_t n = 0;
  if (value.is_undefined()) return 0;
  if (value.is_string()) return value.str().n_chars;
  if (value.is_seq()) return value.items().size();
  if (value.is_dict()) return value.dict().entries().size();
  if (value.is_object() && value.object().length(n)) return n;
  throw Error("object of type '{}' has no len()", value.type_name());
}

}  // namespace ingot::jinja

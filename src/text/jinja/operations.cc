// What an expression can do with values: arithmetic and comparison with Python's rules and errors, then attributes,
// elements, slices, containment and iteration as in jinja2's sandbox.
#include <algorithm>
#include <cmath>

#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_overflow() { throw Error("the number is too large"); }

Int checked(Op op, Int a, Int b) {
  Int out = 0;
  const bool over = op == Op::kAdd   ? __builtin_add_overflow(a, b, &out)
                    : op == Op::kSub ? __builtin_sub_overflow(a, b, &out)
                                     : __builtin_mul_overflow(a, b, &out);
  if (over) fail_overflow();
  return out;
}

Int floor_div(Int a, Int b) {
  if (b == -1) return checked(Op::kSub, 0, a);  // the only quotient that can overflow
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int floor_mod(Int a, Int b) {
  if (b == -1) return 0;
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Int int_power(Int base, Int exponent) {
  Int out = 1;
  while (exponent > 0) {
    if (exponent & 1) out = checked(Op::kMul, out, base);
    exponent >>= 1;
    if (exponent > 0) base = checked(Op::kMul, base, base);
  }
  return out;
}

double float_power(double base, double exponent) {
  if (base == 0 && exponent < 0) throw Error("0.0 cannot be raised to a negative power");
  if (base < 0 && std::trunc(exponent) != exponent && !std::isinf(exponent))
    throw Error("complex numbers are not supported");
  const double out = std::pow(base, exponent);
  if (std::isinf(out) && !std::isinf(base) && !std::isinf(exponent)) fail_overflow();
  return out;
}

// a - floor(a / b) * b. A result of zero has the sign of b.
double float_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_floor_div(double a, double b) {
  const double quotient = (a - float_mod(a, b)) / b, floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value of_ints(Op op, Int a, Int b) {
  switch (op) {
    case Op::kFloorDiv:
    case Op::kMod:
      if (b == 0) throw Error("integer division or modulo by zero");
      return Value::integer(op == Op::kMod ? floor_mod(a, b) : floor_div(a, b));
    case Op::kDiv:
      if (b == 0) throw Error("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Op::kPow:
      if (b < 0) return Value::real(float_power(static_cast<double>(a), static_cast<double>(b)));
      return Value::integer(int_power(a, b));
    default: return Value::integer(checked(op, a, b));
  }
}

double of_floats(Op op, double a, double b) {
  if (b == 0 && (op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod))
    throw Error("float division or modulo by zero");
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kSub: return a - b;
    case Op::kMul: return a * b;
    case Op::kDiv: return a / b;
    case Op::kPow: return float_power(a, b);
    case Op::kMod: return float_mod(a, b);
    default: return float_floor_div(a, b);
  }
}

Value add_strings(Runtime& rt, const Str& a, const Str& b) {
  const bool markup = a.markup || b.markup;
  rt.meter.fits(a.text.size() + b.text.size());
  std::string out = markup && !a.markup ? html_escape(a.text) : a.text;
  out += markup && !b.markup ? html_escape(b.text) : b.text;
  return rt.text(std::move(out), markup);
}

Value add_seqs(Runtime& rt, const Value& a, const Value& b) {
  rt.meter.items(a.items().size() + b.items().size());
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is_tuple() ? rt.tuple(std::move(items)) : rt.list(std::move(items));
}

// A string or sequence, repeated n times.
Value repeated(Runtime& rt, const Value& value, Int n) {
  if (value.is_string()) {
    const size_t times = rt.meter.make_repeated(value.text().size(), n);
    return Value::string(repeat(value.text(), times), value.str().markup);
  }
  const std::vector<Value>& from = value.items();
  std::vector<Value> items;
  if (!from.empty()) {
    const size_t times = Meter::times(n);
    rt.meter.items(times > Meter::kMaxItems ? times : from.size() * times);
    for (size_t i = 0; i < times; ++i) items.insert(items.end(), from.begin(), from.end());
  }
  return value.is_tuple() ? rt.tuple(std::move(items)) : rt.list(std::move(items));
}

bool repeats(const Value& value) { return value.is_string() || value.is_seq(); }

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

// Python's slice.indices: the items start, start + step, ... of a sequence, `count` items in all.
struct Slice {
  Int start, step;
  size_t count;
  size_t at(size_t i) const { return static_cast<size_t>(start + static_cast<Int>(i) * step); }
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
    const std::string_view from = std::string_view(str.text).substr(str.byte_of(slice.at(0)));
    const size_t n_bytes = str.ascii() ? slice.count : byte_of_char(from, slice.count);
    return Value::string(std::string(from.substr(0, n_bytes)), str.markup);
  }
  rt.meter.spend(str.text.size() / 4);
  const std::vector<std::string_view> chars = split_chars(str.text);
  std::string out;
  for (size_t i = 0; i < slice.count; ++i) out += chars[slice.at(i)];
  return Value::string(std::move(out), str.markup);
}

}  // namespace

Value Runtime::binary(Op op, const Value& a, const Value& b) {
  if (op == Op::kMod && a.is_string()) return text(percent_format(*this, a.str(), b), a.str().markup);
  if (a.is_undefined()) a.fail_undefined();
  if (b.is_undefined()) b.fail_undefined();
  if (a.is_integral() && b.is_integral()) return of_ints(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return Value::real(of_floats(op, a.as_float(), b.as_float()));
  if (op == Op::kAdd && a.is_string() && b.is_string()) return add_strings(*this, a.str(), b.str());
  if (op == Op::kAdd && a.is_seq() && a.kind() == b.kind()) return add_seqs(*this, a, b);
  if (op == Op::kMul && repeats(a) && b.is_integral()) return repeated(*this, a, b.as_int());
  if (op == Op::kMul && repeats(b) && a.is_integral()) return repeated(*this, b, a.as_int());
  throw Error("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<int>(op)], a.type_name(),
              b.type_name());
}

bool Runtime::holds(Relation relation, const Value& a, const Value& b) {
  auto order = [&](const char* op) { return compare(a, b, op, meter); };  // -1, 0, 1, or 2 if there is none
  switch (relation) {
    case Relation::kEq: return equal(a, b, meter);
    case Relation::kNe: return !equal(a, b, meter);
    case Relation::kLt: return order("<") == -1;
    case Relation::kGt: return order(">") == 1;
    case Relation::kLe: return order("<=") <= 0;
    case Relation::kGe: {
      const int found = order(">=");
      return found == 0 || found == 1;
    }
    case Relation::kIn: return contains(b, a);
    case Relation::kNotIn: return !contains(b, a);
  }
  return false;
}

std::optional<Value> Runtime::attribute(const Value& object, std::string_view name) {
  meter.read(name.size());
  if (is_hidden(object, name)) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", printable(name, 64), object.type_name()));
  }
  if (object.is_object()) return object.object().attribute(*this, name);
  if (object.is_seq() && object.seq().group && (name == "grouper" || name == "list")) {
    return object.items()[name == "list"];
  }
  return bound_method(object, find_method(object, name));
}

// object[index] as in Python; nothing for a TypeError or LookupError.
std::optional<Value> Runtime::element(const Value& object, const Value& index) {
  if (object.is_seq()) {
    const auto i = index.as_index(object.items().size());
    return i ? std::optional(object.items()[*i]) : std::nullopt;
  }
  if (object.is_string()) {
    const Str& str = object.str();
    const auto i = index.as_index(str.n_chars);
    if (!i) return std::nullopt;
    meter.read(str.ascii() ? 1 : str.text.size());
    const size_t byte = str.byte_of(*i);
    return Value::string(str.text.substr(byte, char_at(str.text, byte).n_bytes), str.markup);
  }
  if (object.is_dict()) {
    if (index.is_list() || index.is_dict()) return std::nullopt;  // unhashable
    const Value* found = object.dict().find(index, meter);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  return object.is_object() ? object.object().subscript(index) : std::nullopt;
}

Value Runtime::get_attr(const Value& object, std::string_view name) {
  if (object.is_undefined()) object.fail_undefined();
  meter.read(name.size());
  const Value* entry = object.is_dict() ? object.dict().find(name) : nullptr;
  if (entry != nullptr && name.substr(0, 2) == "__") return *entry;
  if (auto found = attribute(object, name)) return std::move(*found);
  return entry != nullptr ? *entry : missing(object, name);
}

Value Runtime::get_item(const Value& object, const Value& index) {
  if (object.is_undefined()) object.fail_undefined();
  if (auto found = element(object, index)) return std::move(*found);
  if (!index.is_string()) return Value::undefined(fmt::format("'{}' has no such element", described(object)));
  return attribute(object, index.text()).value_or(missing(object, index.text()));
}

Value Runtime::get_slice(const Value& object, const Value* start, const Value* stop, const Value* step) {
  if (object.is_undefined()) object.fail_undefined();
  for (const Value* bound : {start, stop, step}) {
    if (bound != nullptr && !bound->is_integral()) throw Error("slice indices must be integers or none");
  }
  const bool is_range = object.is_object() && object.object().sequence();
  if (!repeats(object) && !is_range) throw Error("'{}' cannot be sliced", described(object));
  const Slice slice = resolve_slice(start, stop, step, length(object));
  if (object.is_string()) return slice_string(*this, object.str(), slice);
  if (is_range) return *object.object().slice(slice.start, slice.step, slice.count);
  std::vector<Value> items;
  items.reserve(slice.count);
  for (size_t i = 0; i < slice.count; ++i) items.push_back(object.items()[slice.at(i)]);
  return object.is_tuple() ? tuple(std::move(items)) : list(std::move(items));
}

bool Runtime::contains(const Value& container, const Value& item) {
  auto is_item = [&](const Value& value) { return value.same(item) || equal(value, item, meter); };
  if (container.is_string()) {
    if (!item.is_string()) throw Error("'in <string>' requires string as left operand, not {}", item.type_name());
    meter.read(container.text().size());
    return find_text(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) return container.dict().find(item, meter) != nullptr;
  if (container.is_seq()) return std::any_of(container.items().begin(), container.items().end(), is_item);
  if (container.is_undefined()) return false;
  if (!container.is_object() || !container.object().iterable()) {
    throw Error("argument of type '{}' is not iterable", container.type_name());
  }
  if (const auto known = container.object().contains(item)) return *known;
  if (container.object().consumable()) {  // consumes the items that it checks
    while (const auto value = container.object().next()) {
      if (is_item(*value)) return true;
    }
    return false;
  }
  const std::vector<Value> items = iterate(container);
  return std::any_of(items.begin(), items.end(), is_item);
}

std::vector<Value> Runtime::iterate(const Value& value) {
  if (value.is_seq()) {
    meter.spend(1 + value.items().size() / 4);
    return value.items();
  }
  if (value.is_object() && value.object().iterable()) return value.object().drain(meter);
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    meter.items(value.str().n_chars);
    for (std::string_view c : split_chars(value.text()))
      items.push_back(Value::string(std::string(c)));  // not Markup, even if the string is Markup
  } else if (value.is_dict()) {
    meter.items(value.dict().entries().size());
    for (const Dict::Entry& entry : value.dict().entries()) items.push_back(entry.key);
  } else {
    throw Error("'{}' object is not iterable", value.type_name());
  }
  return items;
}

size_t Runtime::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return value.str().n_chars;
  if (value.is_seq()) return value.items().size();
  if (value.is_dict()) return value.dict().entries().size();
  const auto n = value.is_object() ? value.object().length() : std::nullopt;
  if (!n) throw Error("object of type '{}' has no len()", value.type_name());
  return *n;
}

}  // namespace ingot::jinja

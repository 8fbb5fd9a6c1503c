// Arithmetic of values, with Python's rules and errors.
#include <cmath>

#include "text/jinja/format.h"
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

Value float_power(double base, double exponent) {
  if (base == 0 && exponent < 0) throw Error("0.0 cannot be raised to a negative power");
  if (base < 0 && std::trunc(exponent) != exponent && !std::isinf(exponent))
    throw Error("complex numbers are not supported");
  const double out = std::pow(base, exponent);
  if (std::isinf(out) && !std::isinf(base) && !std::isinf(exponent)) fail_overflow();
  return Value::real(out);
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
      if (b < 0) return float_power(static_cast<double>(a), static_cast<double>(b));
      return Value::integer(int_power(a, b));
    default: return Value::integer(checked(op, a, b));
  }
}

Value of_floats(Op op, double a, double b) {
  if (b == 0 && (op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod))
    throw Error("float division or modulo by zero");
  double rest = 0;
  switch (op) {
    case Op::kAdd: return Value::real(a + b);
    case Op::kSub: return Value::real(a - b);
    case Op::kMul: return Value::real(a * b);
    case Op::kDiv: return Value::real(a / b);
    case Op::kPow: return float_power(a, b);
    default: break;
  }
  rest = std::fmod(a, b);
  const bool differs = rest != 0 && (rest < 0) != (b < 0);
  if (op == Op::kMod) return Value::real(differs ? rest + b : rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - (differs ? rest + b : rest)) / b;
  const double floored = std::floor(quotient);
  return Value::real(quotient - floored > 0.5 ? floored + 1 : floored);
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
  const size_t times = n <= 0 ? 0 : n > Int(1) << 40 ? size_t(1) << 40 : static_cast<size_t>(n);
  if (value.is_string()) {
    rt.meter.make(value.text().size(), times);
    std::string out;
    if (!value.text().empty()) {
      out.reserve(value.text().size() * times);
      for (size_t i = 0; i < times; ++i) out += value.text();
    }
    return Value::string(std::move(out), value.str().markup);
  }
  const std::vector<Value>& from = value.items();
  std::vector<Value> items;
  if (!from.empty()) {
    rt.meter.items(times > Meter::kMaxItems ? times : from.size() * times);
    for (size_t i = 0; i < times; ++i) items.insert(items.end(), from.begin(), from.end());
  }
  return value.is_tuple() ? rt.tuple(std::move(items)) : rt.list(std::move(items));
}

bool repeats(const Value& value) { return value.is_string() || value.is_seq(); }
bool integral(const Value& value) { return value.is_int() || value.is_bool(); }

}  // namespace

Value Runtime::binary(Op op, const Value& a, const Value& b) {
  if (op == Op::kMod && a.is_string()) return text(percent_format(*this, a.str(), b), a.str().markup);
  if (a.is_undefined()) a.fail_undefined();
  if (b.is_undefined()) b.fail_undefined();
  if (integral(a) && integral(b)) return of_ints(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return of_floats(op, a.as_float(), b.as_float());
  if (op == Op::kAdd && a.is_string() && b.is_string()) return add_strings(*this, a.str(), b.str());
  if (op == Op::kAdd && a.is_seq() && a.kind() == b.kind()) return add_seqs(*this, a, b);
  if (op == Op::kMul && repeats(a) && integral(b)) return repeated(*this, a, b.as_int());
  if (op == Op::kMul && repeats(b) && integral(a)) return repeated(*this, b, a.as_int());
  throw Error("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<int>(op)], a.type_name(),
              b.type_name());
}

}  // namespace ingot::jinja

// The evaluation of a template's expressions.
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"

namespace ingot::jinja {
namespace {

bool holds(Runtime& rt, Relation relation, const Value& a, const Value& b) {
  switch (relation) {
    case Relation::kEq: return equal(a, b, rt.meter);
    case Relation::kNe: return !equal(a, b, rt.meter);
    case Relation::kLt: return compare(a, b, "<", rt.meter) == -1;
    case Relation::kGt: return compare(a, b, ">", rt.meter) == 1;
    case Relation::kLe: {
      const int order = compare(a, b, "<=", rt.meter);
      return order == -1 || order == 0;
    }
    case Relation::kGe: {
      const int order = compare(a, b, ">=", rt.meter);
      return order == 1 || order == 0;
    }
    case Relation::kIn: return rt.contains(b, a);
    case Relation::kNotIn: return !rt.contains(b, a);
  }
  return false;
}

}  // namespace

Value Name::eval(Runtime& rt) const { return rt.lookup(id); }

Value Captured::eval(Runtime& rt) const { return rt.captured; }

Value Items::eval(Runtime& rt) const {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items) values.push_back(rt.eval(*item));
  return tuple ? rt.tuple(std::move(values)) : rt.list(std::move(values));
}

Value DictLiteral::eval(Runtime& rt) const {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : entries) {
    Value k = rt.eval(*key);
    dict->set(std::move(k), rt.eval(*value), rt.meter);
  }
  return Value::dict(std::move(dict));
}

Value Unary::eval(Runtime& rt) const {
  const Value x = rt.eval(*operand);
  rt.at(line);
  if (x.is_undefined()) x.fail_undefined();
  if (!x.is_number()) throw Error("bad operand type for unary {}: '{}'", op == Op::kNeg ? '-' : '+', x.type_name());
  if (op == Op::kPos) return x.is_bool() ? Value::integer(x.as_int()) : x;
  return x.is_float() ? Value::real(-x.as_float()) : rt.binary(Op::kSub, Value::integer(0), x);
}

Value Binary::eval(Runtime& rt) const {
  const Value a = rt.eval(*left);
  const Value b = rt.eval(*right);
  rt.at(line);
  return rt.binary(op, a, b);
}

Value Logic::eval(Runtime& rt) const {
  Value a = rt.eval(*left);
  return truthy(a) == is_or ? a : rt.eval(*right);
}

Value Not::eval(Runtime& rt) const { return Value::boolean(!truthy(rt.eval(*operand))); }

Value Compare::eval(Runtime& rt) const {
  Value a = rt.eval(*first);
  for (const auto& [relation, operand] : rest) {
    Value b = rt.eval(*operand);
    rt.at(line);
    if (!holds(rt, relation, a, b)) return Value::boolean(false);
    a = std::move(b);
  }
  return Value::boolean(true);
}

Value Concat::eval(Runtime& rt) const {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const ExprPtr& part : parts) values.push_back(rt.eval(*part));
  rt.at(line);
  std::string out;
  for (const Value& value : values) {
    if (value.is_string()) {
      rt.meter.fits(out.size() + value.text().size());
      out += value.text();
    } else {
      out += rt.str(value);
    }
  }
  return rt.text(std::move(out));
}

Value Conditional::eval(Runtime& rt) const {
  if (truthy(rt.eval(*test))) return rt.eval(*then);
  if (otherwise != nullptr) return rt.eval(*otherwise);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value GetAttr::eval(Runtime& rt) const {
  const Value value = rt.eval(*object);
  rt.at(line);
  return rt.get_attr(value, name);
}

Value GetItem::eval(Runtime& rt) const {
  const Value value = rt.eval(*object);
  const Value key = rt.eval(*index);
  rt.at(line);
  return rt.get_item(value, key);
}

Value GetSlice::eval(Runtime& rt) const {
  const Value value = rt.eval(*object);
  Value bounds[3];
  const Value* given[3] = {nullptr, nullptr, nullptr};
  const ExprPtr* exprs[3] = {&start, &stop, &step};
  for (int i = 0; i < 3; ++i) {
    if (*exprs[i] == nullptr) continue;
    bounds[i] = rt.eval(**exprs[i]);
    if (!bounds[i].is_none()) given[i] = &bounds[i];
  }
  rt.at(line);
  return rt.get_slice(value, given[0], given[1], given[2]);
}

Value Call::eval(Runtime& rt) const {
  const Value function = rt.eval(*callee);
  Args values = rt.eval_args(args);
  rt.at(line);
  return rt.call(function, values);
}

Value Filter::eval(Runtime& rt) const {
  const Value value = rt.eval(*input);
  Args values = rt.eval_args(args);
  rt.at(line);
  return filter != nullptr ? call_builtin(rt, *filter, value, values) : rt.call_filter(name, value, values);
}

Value Test::eval(Runtime& rt) const {
  const Value value = rt.eval(*input);
  Args values = rt.eval_args(args);
  rt.at(line);
  return test != nullptr ? call_builtin(rt, *test, value, values) : Value::boolean(rt.call_test(name, value, values));
}

}  // namespace ingot::jinja

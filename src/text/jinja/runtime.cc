#include "text/jinja/runtime.h"

#include <fmt/chrono.h>

#include <algorithm>

namespace ingot::jinja {
namespace {

// Levels of evaluation for each allowed level of nesting, because each call of a recursive macro needs several levels.
constexpr size_t kLevelsPerDepth = 10;

Value undefined_name(const std::string& name) {
  return Value::undefined(fmt::format("'{}' is undefined", printable(name, 64)));
}

Value eval_constant(Runtime&, const Expr& expr) { return expr.value; }
Value eval_name(Runtime& rt, const Expr& expr) { return rt.lookup(expr.id); }
Value eval_captured(Runtime& rt, const Expr&) { return rt.captured; }

std::vector<Value> eval_all(Runtime& rt, const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(rt.eval(*expr));
  return values;
}

Value eval_list(Runtime& rt, const Expr& expr) { return rt.list(eval_all(rt, expr.parts)); }
Value eval_tuple(Runtime& rt, const Expr& expr) { return rt.tuple(eval_all(rt, expr.parts)); }

Value eval_dict(Runtime& rt, const Expr& expr) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    Value key = rt.eval(*expr.parts[i]);
    dict->set(std::move(key), rt.eval(*expr.parts[i + 1]), rt.meter);
  }
  return Value::dict(std::move(dict));
}

Value eval_unary(Runtime& rt, const Expr& expr) {
  const Value x = rt.eval(*expr.parts[0]);
  const bool negates = expr.op == Op::kNeg;
  rt.at(expr.line);
  if (x.is_undefined()) x.fail_undefined();
  if (!x.is_number()) throw Error("bad operand type for unary {}: '{}'", negates ? '-' : '+', x.type_name());
  if (!negates) return x.is_bool() ? Value::integer(x.as_int()) : x;
  return x.is_float() ? Value::real(-x.as_float()) : rt.binary(Op::kSub, Value::integer(0), x);
}

Value eval_binary(Runtime& rt, const Expr& expr) {
  const Value a = rt.eval(*expr.parts[0]);
  const Value b = rt.eval(*expr.parts[1]);
  rt.at(expr.line);
  return rt.binary(expr.op, a, b);
}

Value eval_logic(Runtime& rt, const Expr& expr) {
  Value a = rt.eval(*expr.parts[0]);
  return truthy(a) == (expr.kind == ExprKind::kOr) ? a : rt.eval(*expr.parts[1]);
}

Value eval_not(Runtime& rt, const Expr& expr) { return Value::boolean(!truthy(rt.eval(*expr.parts[0]))); }

Value eval_compare(Runtime& rt, const Expr& expr) {
  Value a = rt.eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.relations.size(); ++i) {
    Value b = rt.eval(*expr.parts[i + 1]);
    rt.at(expr.line);
    if (!rt.holds(expr.relations[i], a, b)) return Value::boolean(false);
    a = std::move(b);
  }
  return Value::boolean(true);
}

Value eval_concat(Runtime& rt, const Expr& expr) {
  const std::vector<Value> values = eval_all(rt, expr.parts);
  rt.at(expr.line);
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

Value eval_conditional(Runtime& rt, const Expr& expr) {
  if (truthy(rt.eval(*expr.parts[1]))) return rt.eval(*expr.parts[0]);
  if (expr.parts.size() > 2) return rt.eval(*expr.parts[2]);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value eval_attribute(Runtime& rt, const Expr& expr) {
  const Value object = rt.eval(*expr.parts[0]);
  rt.at(expr.line);
  return rt.get_attr(object, expr.name);
}

Value eval_item(Runtime& rt, const Expr& expr) {
  const Value object = rt.eval(*expr.parts[0]);
  const Value index = rt.eval(*expr.parts[1]);
  rt.at(expr.line);
  return rt.get_item(object, index);
}

Value eval_slice(Runtime& rt, const Expr& expr) {
  const Value object = rt.eval(*expr.parts[0]);
  Value bounds[3];
  const Value* given[3] = {nullptr, nullptr, nullptr};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.parts[i + 1] == nullptr) continue;
    bounds[i] = rt.eval(*expr.parts[i + 1]);
    if (!bounds[i].is_none()) given[i] = &bounds[i];
  }
  rt.at(expr.line);
  return rt.get_slice(object, given[0], given[1], given[2]);
}

// A call, filter or test.
Value eval_call(Runtime& rt, const Expr& expr) {
  const Value subject = rt.eval(*expr.parts[0]);
  Args args = expr.args != nullptr ? rt.eval_args(*expr.args) : Args();
  rt.at(expr.line);
  if (expr.kind == ExprKind::kCall) return rt.call(subject, args);
  if (expr.builtin != nullptr) return call_builtin(rt, *expr.builtin, subject, args);
  if (expr.kind == ExprKind::kFilter) return rt.call_filter(expr.name, subject, args);
  return Value::boolean(rt.call_test(expr.name, subject, args));
}

// The function of each ExprKind, in their order. Unlike the cases of a switch, each function has a stack frame of its
// own, which keeps deep recursion small.
constexpr Value (*kEvaluators[])(Runtime&, const Expr&) = {
    eval_constant,  eval_name,  eval_captured, eval_list, eval_tuple,   eval_dict,   eval_unary,
    eval_binary,    eval_logic, eval_logic,    eval_not,  eval_compare, eval_concat, eval_conditional,
    eval_attribute, eval_item,  eval_slice,    eval_call, eval_call,    eval_call};
static_assert(std::size(kEvaluators) == static_cast<size_t>(ExprKind::kTest) + 1);

}  // namespace

Value* Scope::find(int id) {
  auto found = std::find_if(vars.begin(), vars.end(), [&](auto& var) { return var.first == id; });
  return found == vars.end() ? nullptr : &found->second;
}

void Scope::set(int id, Value value) {
  if (Value* found = find(id)) {
    *found = std::move(value);
  } else {
    vars.emplace_back(id, std::move(value));
  }
}

Runtime::Runtime(const Program& program, std::vector<std::optional<Value>> variables, const Meter& budget,
                 const TemplateClock& clock)
    : meter(budget),
      program_(program),
      variables_(std::move(variables)),
      clock_(clock),
      scope_(std::make_shared<Scope>()) {}

Runtime::~Runtime() {
  for (const Value& value : kept_) value.clear();
  for (const auto& scope : kept_scopes_) scope->vars.clear();
  for (const auto& scope : kept_scopes_) scope->outer.reset();
}

std::string Runtime::render() {
  Capture capture(*this);
  hide(program_.body);
  run(program_.body);
  return std::move(capture.text);
}

Hold<size_t> Runtime::nested() {
  if (depth_ >= kLevelsPerDepth * meter.max_depth()) {
    throw Error("the template nests its calls and blocks too deep (over {} levels)", depth_);
  }
  return Hold(depth_, depth_ + 1);
}

Hold<size_t> Runtime::nested_macro(const std::string& name) {
  if (macro_depth_ >= meter.max_depth())
    throw Error("macro '{}' calls deeper than {}", printable(name, 64), meter.max_depth());
  return Hold(macro_depth_, macro_depth_ + 1);
}

Value Runtime::eval(const Expr& expr) {
  meter.spend();
  const auto level = nested();
  return kEvaluators[static_cast<size_t>(expr.kind)](*this, expr);
}

Runtime::Enter::Enter(Runtime& runtime, const Block& entered, std::shared_ptr<Scope> outside)
    : rt(runtime), block(entered), old(runtime.scope_), outer(std::move(outside)) {
  if (outer->depth > kLevelsPerDepth * rt.meter.max_depth()) throw Error("the template nests its macros too deep");
  rt.scope_ = nullptr;
  renew();
}

void Runtime::Enter::renew() {
  if (rt.scope_.use_count() == 1) {
    rt.scope_->vars.clear();
  } else {  // a macro still holds the old scope
    rt.scope_ = std::make_shared<Scope>();
    rt.scope_->outer = outer;
    rt.scope_->depth = outer->depth + 1;
  }
  rt.hide(block);
}

void Runtime::hide(const Block& block) {
  for (int id : block.hidden) {
    const auto i = static_cast<size_t>(id);
    if (variables_[i]) scope_->set(id, undefined_name(program_.names[i]));  // other names are undefined in any case
  }
}

void Runtime::write(std::string_view text_) {
  meter.fits(out_->size() + text_.size());
  meter.read(text_.size());
  out_->append(text_);
}

Value Runtime::lookup(int id) const {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    if (const Value* found = scope->find(id)) return *found;
  }
  const auto i = static_cast<size_t>(id);
  return variables_[i] ? *variables_[i] : undefined_name(program_.names[i]);
}

void Runtime::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    scope_->set(target.id, value);
    return;
  }
  if (target.kind == Target::Kind::kAttr) {
    const Value space = lookup(target.id);
    if (!space.is_object() || !space.object().set_attribute(target.attr, value, meter))
      throw Error("cannot assign attribute '{}' on non-namespace object", printable(target.attr, 64));
    return;
  }
  const std::vector<Value> items = iterate(value);
  if (items.size() != target.parts.size()) {
    throw Error("cannot unpack {} values into {} names", items.size(), target.parts.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

Args Runtime::eval_args(const CallArgs& from) {
  Args args{eval_all(*this, from.positional), {}};
  for (const auto& [name, expr] : from.keyword) args.keyword.emplace_back(name, eval(*expr));
  if (from.star != nullptr) {
    for (Value& item : iterate(eval(*from.star))) args.positional.push_back(std::move(item));
  }
  if (from.star_star != nullptr) {
    const Value dict = eval(*from.star_star);
    if (!dict.is_dict()) throw Error("argument after ** must be a mapping, not {}", dict.type_name());
    for (const auto& [key, value] : dict.dict().entries()) {
      if (!key.is_string()) throw Error("keywords must be strings");
      if (args.take(key.text()))
        throw Error("got multiple values for keyword argument '{}'", printable(key.text(), 64));
      args.keyword.emplace_back(key.text(), value);
      meter.spend(args.keyword.size());
    }
  }
  return args;
}

Value Runtime::call(const Value& callee, Args& args) {
  if (callee.is_undefined()) callee.fail_undefined();
  if (!callee.is_object()) throw Error("'{}' object is not callable", callee.type_name());
  const auto level = nested();
  const std::shared_ptr<Object> held = callee.object_ptr();
  return held->call(*this, args);
}

Value Runtime::call_filter(std::string_view name, const Value& input, Args& args) {
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) throw Error("no filter named '{}'", printable(name, 64));
  const auto level = nested();
  return call_builtin(*this, *filter, input, args);
}

bool Runtime::call_test(std::string_view name, const Value& input, Args& args) {
  const Builtin* test = find_test(name);
  if (test == nullptr) throw Error("no test named '{}'", printable(name, 64));
  const auto level = nested();
  return truthy(call_builtin(*this, *test, input, args));
}

std::string Runtime::str(const Value& value) {
  if (value.is_string()) meter.make(value.text().size());
  return to_str(value, meter);
}

std::tm Runtime::now() const {
  if (clock_) return clock_();
  return fmt::localtime(std::time(nullptr));
}

}  // namespace ingot::jinja

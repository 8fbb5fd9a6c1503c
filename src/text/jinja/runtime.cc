#include "text/jinja/runtime.h"

#include <fmt/chrono.h>

#include <algorithm>

#include "text/jinja/objects.h"
#include "text/jinja/print.h"

namespace ingot::jinja {
namespace {

// Levels of evaluation for each allowed level of nesting, because each call of a recursive macro needs several levels.
constexpr size_t kLevelsPerDepth = 10;

}  // namespace

void Scope::set(int id, Value value) {
  for (auto& [name, slot] : vars) {
    if (name == id) {
      slot = std::move(value);
      return;
    }
  }
  vars.emplace_back(id, std::move(value));
}

const Value* Scope::find(int id) const {
  auto found = std::find_if(vars.begin(), vars.end(), [&](auto& var) { return var.first == id; });
  return found == vars.end() ? nullptr : &found->second;
}

Runtime::Runtime(const Program& program, std::vector<std::optional<Value>> variables, const Meter& budget,
                 const TemplateClock& clock)
    : meter(budget),
      program_(program),
      variables_(std::move(variables)),
      clock_(clock),
      scope_(std::make_shared<Scope>()) {}

Runtime::~Runtime() {
  for (const Value& value : kept_) {
    if (value.is_seq()) {
      const std::vector<Value> dropped = std::move(value.seq().items);
      value.seq().items.clear();
    } else if (value.is_dict()) {
      value.dict().clear();
    } else if (value.is_object()) {
      value.object().clear();
    }
  }
  for (const auto& scope : kept_scopes_) scope->vars.clear();
  for (const auto& scope : kept_scopes_) scope->outer.reset();
}

std::string Runtime::render() {
  Capture capture(*this);
  hide(program_.body);
  run(program_.body);
  return std::move(capture.text);
}

Runtime::Nested::Nested(Runtime& runtime) : rt(runtime) {
  if (rt.depth_ >= kLevelsPerDepth * rt.meter.max_depth()) {
    throw Error("the template nests its calls and blocks too deep (over {} levels)", rt.depth_);
  }
  ++rt.depth_;
}

Value Runtime::eval(const Expr& expr) {
  meter.spend();
  Nested nested(*this);
  return expr.eval(*this);
}

Flow Runtime::run(const Block& block) {
  for (const auto& stmt : block.statements) {
    meter.spend();
    Nested nested(*this);
    line_ = stmt->line;
    const Flow flow = stmt->run(*this);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
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
    // If there is no variable with this name, the name is undefined in any case.
    if (variables_[static_cast<size_t>(id)])
      scope_->set(id, Value::undefined(fmt::format("'{}' is undefined", name_of(id))));
  }
}

void Runtime::write(std::string_view text_) {
  meter.fits(out_->size() + text_.size());
  meter.read(text_.size());
  out_->append(text_);
}

Value Runtime::lookup(int id) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    if (const Value* found = scope->find(id)) return *found;
  }
  const auto& variable = variables_[static_cast<size_t>(id)];
  if (variable) return *variable;
  return Value::undefined(fmt::format("'{}' is undefined", printable(name_of(id), 64)));
}

void Runtime::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    scope_->set(target.id, value);
    return;
  }
  if (target.kind == Target::Kind::kAttr) {
    auto* space = lookup(target.id).as<Namespace>();
    if (space == nullptr)
      throw Error("cannot assign attribute '{}' on non-namespace object", printable(target.attr, 64));
    space->set(target.attr, value, meter);
    return;
  }
  const std::vector<Value> items = iterate(value);
  if (items.size() != target.parts.size()) {
    throw Error("cannot unpack {} values into {} names", items.size(), target.parts.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

Args Runtime::eval_args(const CallArgs& from) {
  Args args;
  args.positional.reserve(from.positional.size());
  for (const ExprPtr& expr : from.positional) args.positional.push_back(eval(*expr));
  for (const auto& [name, expr] : from.keyword) args.keyword.emplace_back(name, eval(*expr));
  if (from.star != nullptr) {
    for (Value& item : iterate(eval(*from.star))) args.positional.push_back(std::move(item));
  }
  if (from.star_star != nullptr) {
    const Value dict = eval(*from.star_star);
    if (!dict.is_dict()) throw Error("argument after ** must be a mapping, not {}", dict.type_name());
    for (const auto& [key, value] : dict.dict().entries()) {
      if (!key.is_string()) throw Error("keywords must be strings");
      Value other;
      if (args.take(key.text(), other))
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
  Nested nested(*this);
  const std::shared_ptr<Object> held = callee.object_ptr();
  return held->call(*this, args);
}

Value Runtime::call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& outer, Args& args) {
  struct Depth {
    size_t& depth;
    explicit Depth(size_t& d) : depth(d) { ++depth; }
    ~Depth() { --depth; }
  } level(call_depth_);
  if (call_depth_ > meter.max_depth())
    throw Error("macro '{}' calls deeper than {}", printable(macro.name, 64), meter.max_depth());
  Capture capture(*this);
  Enter enter(*this, macro.body, outer);
  const size_t n_given = std::min(args.positional.size(), macro.params.size());
  for (size_t i = 0; i < macro.params.size(); ++i) {
    const MacroParam& param = macro.params[i];
    Value value;
    if (i < n_given) {
      value = args.positional[i];
    } else if (!args.take(param.name, value)) {
      value = param.fallback
                  ? eval(*param.fallback)
                  : Value::undefined(fmt::format("parameter '{}' was not provided", printable(param.name, 64)));
    }
    scope_->set(param.id, std::move(value));
  }
  Value caller = Value::undefined("No caller defined");
  if (macro.caller_id) {
    args.take("caller", caller);
    scope_->set(*macro.caller_id, std::move(caller));
  }
  if (macro.kwargs_id) {
    auto kwargs = std::make_shared<Dict>();
    for (auto& [name, value] : args.keyword) kwargs->set(Value::string(name), std::move(value), meter);
    scope_->set(*macro.kwargs_id, Value::dict(std::move(kwargs)));
  } else if (!args.keyword.empty()) {
    throw Error("macro '{}' takes no keyword argument '{}'", printable(macro.name, 64),
                printable(args.keyword[0].first, 64));
  }
  if (macro.varargs_id) {
    scope_->set(*macro.varargs_id,
                tuple({args.positional.begin() + static_cast<ptrdiff_t>(n_given), args.positional.end()}));
  } else if (args.positional.size() > n_given) {
    throw Error("macro '{}' takes not more than {} argument(s)", printable(macro.name, 64), macro.params.size());
  }
  run(macro.body);
  return Value::string(std::move(capture.text));
}

Value Runtime::call_filter(std::string_view name, const Value& input, Args& args) {
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) throw Error("no filter named '{}'", printable(name, 64));
  Nested nested(*this);
  return call_builtin(*this, *filter, input, args);
}

bool Runtime::call_test(std::string_view name, const Value& input, Args& args) {
  const Builtin* test = find_test(name);
  if (test == nullptr) throw Error("no test named '{}'", printable(name, 64));
  Nested nested(*this);
  return truthy(call_builtin(*this, *test, input, args));
}

Value Runtime::text(std::string string, bool markup) {
  meter.make(string.size());
  return Value::string(std::move(string), markup);
}

Value Runtime::list(std::vector<Value> items) {
  meter.items(items.size());
  return Value::list(std::move(items), meter);
}

Value Runtime::tuple(std::vector<Value> items) {
  meter.items(items.size());
  return Value::tuple(std::move(items), meter);
}

Value Runtime::iterator(std::vector<Value> items, const char* type_name) {
  meter.items(items.size());
  return Value::object(std::make_shared<Iterator>(std::move(items), type_name, meter));
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

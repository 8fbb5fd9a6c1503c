// The execution of a template's statements, with the two objects that statements make: macros, and the `loop` of a for.
#include <algorithm>

#include "text/jinja/runtime.h"

namespace ingot::jinja {
namespace {

class Macro : public Object {
 public:
  Macro(const MacroBody& body, std::shared_ptr<Scope> scope) : body_(body), scope_(std::move(scope)) {}
  const char* type_name() const override { return "Macro"; }
  std::string repr(Meter&, size_t) const override { return fmt::format("<Macro '{}'>", body_.name); }
  bool callable() const override { return true; }

  std::optional<Value> attribute(Runtime& rt, std::string_view name) override {
    if (name == "name") return rt.text(body_.name);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const MacroParam& param : body_.params) names.push_back(rt.text(param.name));
    return rt.tuple(std::move(names));
  }

  Value call(Runtime& rt, Args& args) override {
    const auto level = rt.nested_macro(body_.name);
    Runtime::Capture capture(rt);
    Runtime::Enter enter(rt, body_.body, scope_);
    const size_t n_given = std::min(args.positional.size(), body_.params.size());
    for (size_t i = 0; i < body_.params.size(); ++i) {
      const MacroParam& param = body_.params[i];
      rt.scope()->set(param.id, i < n_given ? args.positional[i] : keyword_or_default(rt, param, args));
    }
    bind_special_names(rt, args, n_given);
    rt.run(body_.body);
    return Value::string(std::move(capture.text));
  }

 private:
  static Value keyword_or_default(Runtime& rt, const MacroParam& param, Args& args) {
    if (auto given = args.take(param.name)) return std::move(*given);
    if (param.fallback != nullptr) return rt.eval(*param.fallback);
    return Value::undefined(fmt::format("parameter '{}' was not provided", printable(param.name, 64)));
  }

  void bind_special_names(Runtime& rt, Args& args, size_t n_given) const {
    if (body_.caller_id) {
      rt.scope()->set(*body_.caller_id, args.take("caller").value_or(Value::undefined("No caller defined")));
    }
    if (body_.kwargs_id) {
      auto kwargs = std::make_shared<Dict>();
      args.add_keywords_to(*kwargs, rt.meter);
      rt.scope()->set(*body_.kwargs_id, Value::dict(std::move(kwargs)));
    } else if (!args.keyword.empty()) {
      throw Error("macro '{}' takes no keyword argument '{}'", printable(body_.name, 64),
                  printable(args.keyword[0].first, 64));
    }
    if (body_.varargs_id) {
      rt.scope()->set(*body_.varargs_id,
                      rt.tuple({args.positional.begin() + static_cast<ptrdiff_t>(n_given), args.positional.end()}));
    } else if (args.positional.size() > n_given) {
      throw Error("macro '{}' takes not more than {} argument(s)", printable(body_.name, 64), body_.params.size());
    }
  }

  const MacroBody& body_;
  std::shared_ptr<Scope> scope_;  // the Runtime holds it
};

// The items of a for statement and the current position; `loop` in its body.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // level: the nesting of calls of a recursive loop, from 0.
  Loop(const ForLoop& node, std::vector<Value> items, std::shared_ptr<Scope> scope, size_t level, const Meter& meter)
      : node_(node),
        items_(std::move(items)),
        scope_(std::move(scope)),
        level_(level),
        depth_(container_depth(items_, meter)) {}
  const char* type_name() const override { return "LoopContext"; }
  std::string repr(Meter&, size_t) const override { return fmt::format("<LoopContext {}/{}>", index_, items_.size()); }
  bool iterable() const override { return true; }
  std::optional<size_t> length() const override { return items_.size(); }
  bool callable() const override { return true; }
  size_t depth() const override { return depth_; }

  void clear() override {
    items_.clear();
    current_ = before_ = Value();
    last_changed_.reset();
    scope_.reset();
  }

  std::optional<Value> attribute(Runtime& rt, std::string_view name) override {
    static constexpr Builtin kMethods[] = {{"cycle", cycle, 0, {}, true}, {"changed", changed, 0, {}, true}};
    if (const auto number = integer_attribute(rt, name)) return Value::integer(*number);
    if (name == "first") return Value::boolean(index_ == 1);
    if (name == "last") return Value::boolean(!peek(rt));
    if (name == "previtem") return index_ > 1 ? before_ : Value::undefined("there is no previous item");
    if (name == "nextitem") return peek(rt) ? items_[place_] : Value::undefined("there is no next item");
    return bound_method(Value::object(shared_from_this()), find_row(kMethods, name));
  }

  // A call of a recursive loop runs the for statement over other items.
  Value call(Runtime& rt, Args& args) override {
    if (!node_.recursive) throw Error("the loop must have the 'recursive' marker to be called recursively");
    if (args.positional.size() != 1 || !args.keyword.empty()) throw Error("loop() takes one argument");
    if (scope_ == nullptr) throw Error("the loop has ended and cannot be called");
    Runtime::Capture capture(rt);
    run(rt, node_, rt.iterate(args.positional[0]), scope_, level_ + 1);
    return Value::string(std::move(capture.text));
  }

  // Runs a for statement over the items.
  static Flow run(Runtime& rt, const ForLoop& node, std::vector<Value> items, const std::shared_ptr<Scope>& scope,
                  size_t level) {
    auto loop = std::make_shared<Loop>(node, std::move(items), scope, level, rt.meter);
    const Value loop_value = Value::object(loop);
    bool ran = false;
    {
      Runtime::Enter enter(rt, node.body, scope);
      // The filter runs in its own scope, so the next item is found before the scope of this iteration begins.
      while (loop->advance(rt)) {
        rt.meter.spend();
        enter.renew();
        rt.assign(node.target, loop->current_);
        if (node.has_loop) rt.scope()->set(node.loop_id, loop_value);
        const Flow flow = rt.run(node.body);
        if (flow == Flow::kBreak) break;
        ran = ran || flow == Flow::kNext;  // as in jinja2: interrupted iterations do not count
      }
    }
    loop->items_.resize(loop->place_);  // a template may still hold its loop
    loop->scope_.reset();
    if (ran || node.otherwise.statements.empty()) return Flow::kNext;
    Runtime::Enter enter(rt, node.otherwise, scope);
    return rt.run(node.otherwise);
  }

 private:
  bool passes(Runtime& rt, const Value& item) {
    if (node_.test == nullptr) return true;
    Runtime::Enter enter(rt, node_.filtering, scope_);
    rt.assign(node_.target, item);
    return jinja::truthy(rt.eval(*node_.test));
  }

  // Whether there is a next item.
  bool peek(Runtime& rt) {
    for (; place_ < items_.size(); ++place_) {
      if (place_ < unfiltered_) return true;
      const Value item = items_[place_];
      if (!passes(rt, item)) continue;
      unfiltered_ = place_ + 1;
      return true;
    }
    return false;
  }

  // Moves to the next item that passes the for's filter; false at the end.
  bool advance(Runtime& rt) {
    if (!peek(rt)) return false;
    before_ = std::exchange(current_, items_[place_++]);
    ++index_;
    return true;
  }

  // Filters the other items now, so that the length is known.
  void read_all(Runtime& rt) {
    if (node_.test == nullptr || !peek(rt)) return;
    size_t kept = unfiltered_;
    for (size_t i = kept; i < items_.size(); ++i) {
      const Value item = items_[i];
      if (passes(rt, item)) items_[kept++] = item;
    }
    items_.resize(kept);
    unfiltered_ = kept;
  }

  std::optional<Int> integer_attribute(Runtime& rt, std::string_view name) {
    const auto index = static_cast<Int>(index_), level = static_cast<Int>(level_);
    if (name == "index") return index;
    if (name == "index0") return index - 1;
    if (name == "depth") return level + 1;
    if (name == "depth0") return level;
    if (name != "length" && name != "revindex" && name != "revindex0") return std::nullopt;
    read_all(rt);
    const auto n_left = static_cast<Int>(items_.size() - place_);
    return name == "length" ? index + n_left : name == "revindex" ? n_left + 1 : n_left;
  }

  static Value cycle(Runtime&, const Value& self, const Params& p) {
    const std::vector<Value>& choices = p.all->positional;
    if (choices.empty()) throw Error("no items for cycling given");
    return choices[(static_cast<Loop&>(self.object()).index_ - 1) % choices.size()];
  }

  static Value changed(Runtime& rt, const Value& self, const Params& p) {
    std::optional<Value>& last = static_cast<Loop&>(self.object()).last_changed_;
    const Value now = rt.tuple(p.all->positional);
    const bool differs = !last || !equal(*last, now, rt.meter);
    if (!last) rt.keep(self);  // the loop may refer to itself from now on
    last = now;
    return Value::boolean(differs);
  }

  const ForLoop& node_;
  std::vector<Value> items_;      // from `place_` on; unfiltered from `unfiltered_` on
  std::shared_ptr<Scope> scope_;  // the scope around the for while the for runs
  size_t level_, depth_;
  size_t place_ = 0;       // the next item
  size_t unfiltered_ = 0;  // items before this one have passed the filter
  size_t index_ = 0;       // items returned so far: loop.index
  Value current_, before_;
  std::optional<Value> last_changed_;
};

Flow run_data(Runtime& rt, const Stmt& stmt) {
  rt.write(stmt.text);
  return Flow::kNext;
}

Flow run_print(Runtime& rt, const Stmt& stmt) {
  const Value shown = rt.eval(*stmt.value);
  shown.is_string() ? rt.write(shown.text()) : rt.write(rt.str(shown));
  return Flow::kNext;
}

Flow run_if(Runtime& rt, const Stmt& stmt) {
  for (const auto& [test, body] : stmt.branches) {
    if (test == nullptr || truthy(rt.eval(*test))) return rt.run(body);
  }
  return Flow::kNext;
}

Flow run_for(Runtime& rt, const Stmt& stmt) {
  const Value items = rt.eval(*stmt.loop->items);
  rt.at(stmt.line);
  return Loop::run(rt, *stmt.loop, rt.iterate(items), rt.scope(), 0);
}

Flow run_set(Runtime& rt, const Stmt& stmt) {
  const Value made = rt.eval(*stmt.bindings[0].value);
  rt.at(stmt.line);
  rt.assign(stmt.bindings[0].target, made);
  return Flow::kNext;
}

// jinja2 joins the output of filter and call blocks with the surrounding text without a conversion, so the output must
// be text.
void write_text(Runtime& rt, const Value& value) {
  if (!value.is_string()) throw Error("the block gives a {}, not text", value.type_name());
  rt.write(value.text());
}

Flow run_capture(Runtime& rt, const Stmt& stmt) {
  Value made;
  {
    Runtime::Enter enter(rt, stmt.body);
    Runtime::Capture capture(rt);
    const Flow flow = rt.run(stmt.body);
    if (flow != Flow::kNext) return flow;
    rt.captured = Value::string(std::move(capture.text));
    made = rt.eval(*stmt.value);
  }
  if (stmt.bindings.empty()) {
    write_text(rt, made);
  } else {
    rt.at(stmt.line);
    rt.assign(stmt.bindings[0].target, made);
  }
  return Flow::kNext;
}

Flow run_macro(Runtime& rt, const Stmt& stmt) {
  rt.keep(rt.scope());
  rt.scope()->set(stmt.id, Value::object(std::make_shared<Macro>(*stmt.macro, rt.scope())));
  return Flow::kNext;
}

Flow run_call(Runtime& rt, const Stmt& stmt) {
  rt.keep(rt.scope());
  const Value callee = rt.eval(*stmt.value->parts[0]);
  Args args = rt.eval_args(*stmt.value->args);
  if (args.take("caller")) throw Error("a call block already gives the argument 'caller'");
  args.keyword.emplace_back("caller", Value::object(std::make_shared<Macro>(*stmt.macro, rt.scope())));
  rt.at(stmt.line);
  write_text(rt, rt.call(callee, args));
  return Flow::kNext;
}

Flow run_with(Runtime& rt, const Stmt& stmt) {
  std::vector<Value> made;
  for (const Binding& binding : stmt.bindings) made.push_back(rt.eval(*binding.value));
  Runtime::Enter enter(rt, stmt.body);
  for (size_t i = 0; i < made.size(); ++i) rt.assign(stmt.bindings[i].target, made[i]);
  return rt.run(stmt.body);
}

Flow run_break(Runtime&, const Stmt&) { return Flow::kBreak; }
Flow run_continue(Runtime&, const Stmt&) { return Flow::kContinue; }

// The function of each StmtKind, in their order; a table for the same reason as in runtime.cc.
constexpr Flow (*kRunners[])(Runtime&, const Stmt&) = {
    run_data, run_print, run_if, run_for, run_set, run_capture, run_macro, run_call, run_with, run_break, run_continue};
static_assert(std::size(kRunners) == static_cast<size_t>(StmtKind::kContinue) + 1);

}  // namespace

Flow Runtime::run(const Block& block) {
  for (const StmtPtr& stmt : block.statements) {
    meter.spend();
    const auto level = nested();
    line_ = stmt->line;
    const Flow flow = kRunners[static_cast<size_t>(stmt->kind)](*this, *stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

}  // namespace ingot::jinja

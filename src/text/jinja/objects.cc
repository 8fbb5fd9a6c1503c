#include "text/jinja/objects.h"

#include <algorithm>
#include <optional>

#include "text/jinja/print.h"

namespace ingot::jinja {
namespace {

size_t depth_of(const std::vector<Value>& items, const Meter& meter) {
  size_t depth = 1;
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  meter.nested(depth);
  return depth;
}

Value loop_cycle(Runtime&, const Value& self, const Params& params) { return self.as<Loop>()->cycle(*params.all); }
Value loop_changed(Runtime& rt, const Value& self, const Params& params) {
  return self.as<Loop>()->changed(rt, *params.all);
}

// The position in a range of the value equal to the first argument; there is at most one.
std::optional<size_t> place_in_range(Runtime& rt, const Value& range, const Params& params) {
  const std::vector<Value> items = rt.iterate(range);
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], *params[0], rt.meter)) return i;
  return std::nullopt;
}

Value range_count(Runtime& rt, const Value& self, const Params& params) {
  return Value::integer(place_in_range(rt, self, params).has_value());
}

Value range_index(Runtime& rt, const Value& self, const Params& params) {
  const auto place = place_in_range(rt, self, params);
  if (!place) throw Error("the value is not in the range");
  return Value::integer(static_cast<Int>(*place));
}

constexpr Builtin kRangeMethods[] = {{"count", range_count, 1, {"value"}}, {"index", range_index, 1, {"value"}}};
constexpr Builtin kLoopMethods[] = {{"cycle", loop_cycle, 0, {}, true}, {"changed", loop_changed, 0, {}, true}};

}  // namespace

std::string Namespace::repr(Meter& meter, size_t depth) const {
  std::string out;
  for (const auto& [name, value] : dict_.entries()) {
    out += (out.empty() ? "" : ", ") + to_repr(name, meter) + ": " + to_repr(value, meter, depth + 1);
    meter.fits(out.size());
  }
  return "<Namespace {" + out + "}>";
}

bool Namespace::attribute(Runtime&, std::string_view name, Value& out) {
  const Value* found = dict_.find(name);
  if (found != nullptr) out = *found;
  return found != nullptr;
}

void Namespace::set(std::string_view name, Value value, Meter& meter) {
  dict_.set(Value::string(std::string(name)), std::move(value), meter);
}

bool Macro::attribute(Runtime& rt, std::string_view name, Value& out) {
  if (name == "name") {
    out = rt.text(body_.name);
  } else if (name == "arguments") {
    std::vector<Value> names;
    for (const MacroParam& param : body_.params) names.push_back(rt.text(param.name));
    out = rt.tuple(std::move(names));
  } else {
    return false;
  }
  return true;
}

Range::Range(Int start, Int stop, Int step) : start_(start), stop_(stop), step_(step) {
  constexpr Int kMax = Int(1) << 66;  // far from an overflow in all later computations
  if (std::max({start, -start, stop, -stop, step, -step}) > kMax) throw Error("the number is too large");
  const Int span = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  n_ = span > 0 ? static_cast<size_t>((span + stride - 1) / stride) : 0;
}

std::string Range::repr(Meter&, size_t) const {
  return step_ == 1 ? fmt::format("range({}, {})", start_, stop_)
                    : fmt::format("range({}, {}, {})", start_, stop_, step_);
}

std::vector<Value> Range::drain(Meter& meter) {
  meter.items(n_);
  std::vector<Value> items;
  items.reserve(n_);
  for (size_t i = 0; i < n_; ++i) items.push_back(Value::integer(at(i)));
  return items;
}

bool Range::attribute(Runtime&, std::string_view name, Value& out) {
  const Builtin* method = find_row(kRangeMethods, name);
  if (method != nullptr) {
    out = Value::object(std::make_shared<BoundMethod>(Value::object(shared_from_this()), *method));
  } else if (name == "start" || name == "stop" || name == "step") {
    out = Value::integer(name == "start" ? start_ : name == "stop" ? stop_ : step_);
  } else {
    return false;
  }
  return true;
}

bool Range::subscript(Runtime&, const Value& index, Value& out) {
  if (!index.is_int() && !index.is_bool()) return false;
  const Int i = index.as_int() < 0 ? index.as_int() + static_cast<Int>(n_) : index.as_int();
  if (i < 0 || i >= static_cast<Int>(n_)) return false;
  out = Value::integer(at(static_cast<size_t>(i)));
  return true;
}

bool Range::equals(const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  return range != nullptr && n_ == range->n_ &&
         (n_ == 0 || (start_ == range->start_ && (n_ == 1 || step_ == range->step_)));
}

bool Range::contains(Int value) const {
  if (value != static_cast<int64_t>(value)) return false;
  const Int steps = (value - start_) / step_;
  return (value - start_) % step_ == 0 && steps >= 0 && steps < static_cast<Int>(n_);
}

Iterator::Iterator(std::vector<Value> items, const char* type_name, const Meter& meter)
    : items_(std::move(items)), type_name_(type_name), depth_(depth_of(items_, meter)) {}

std::vector<Value> Iterator::drain(Meter&) {
  std::vector<Value> rest(items_.begin() + static_cast<ptrdiff_t>(next_), items_.end());
  next_ = items_.size();
  return rest;
}

bool Iterator::next(Value& out) {
  if (next_ == items_.size()) return false;
  out = items_[next_++];
  return true;
}

const char* DictView::type_name() const {
  return what_ == What::kKeys ? "dict_keys" : what_ == What::kValues ? "dict_values" : "dict_items";
}

std::string DictView::repr(Meter& meter, size_t depth) const {
  std::string out;
  for (const auto& [key, value] : dict_->entries()) {
    out += out.empty() ? "" : ", ";
    if (what_ == What::kItems) {
      out += "(" + to_repr(key, meter, depth + 1) + ", " + to_repr(value, meter, depth + 1) + ")";
    } else {
      out += to_repr(what_ == What::kKeys ? key : value, meter, depth + 1);
    }
    meter.fits(out.size());
  }
  return fmt::format("{}([{}])", type_name(), out);
}

std::vector<Value> DictView::drain(Meter& meter) {
  meter.items(dict_->entries().size());
  std::vector<Value> items;
  for (const auto& [key, value] : dict_->entries()) {
    items.push_back(what_ == What::kKeys ? key : what_ == What::kValues ? value : Value::tuple({key, value}, meter));
  }
  return items;
}

Loop::Loop(const For& node, std::vector<Value> items, std::shared_ptr<Scope> scope, size_t level, const Meter& meter)
    : node_(node), items_(std::move(items)), scope_(std::move(scope)), level_(level), depth_(depth_of(items_, meter)) {}

void Loop::clear() {
  items_.clear();
  current_ = before_ = Value();
  last_changed_.reset();
  scope_.reset();
}

void Loop::end() {
  items_.resize(place_);
  scope_.reset();
}

bool Loop::passes(Runtime& rt, const Value& item) {
  if (node_.test == nullptr) return true;
  Runtime::Enter enter(rt, node_.filtering, scope_);
  rt.assign(node_.target, item);
  return jinja::truthy(rt.eval(*node_.test));
}

bool Loop::peek(Runtime& rt) {
  while (place_ < items_.size()) {
    if (place_ < unfiltered_) return true;
    const Value item = items_[place_];
    if (passes(rt, item)) {
      unfiltered_ = place_ + 1;
      return true;
    }
    ++place_;
  }
  return false;
}

void Loop::read_all(Runtime& rt) {
  if (node_.test == nullptr || !peek(rt)) return;
  const size_t first = unfiltered_;
  size_t kept = first;
  for (size_t i = first; i < items_.size(); ++i) {
    const Value item = items_[i];
    if (passes(rt, item)) items_[kept++] = item;
  }
  items_.resize(kept);
  unfiltered_ = kept;
}

bool Loop::next(Runtime& rt, Value& item) {
  if (!peek(rt)) return false;
  before_ = std::move(current_);
  item = current_ = items_[place_++];
  ++index_;
  return true;
}

bool Loop::integer_attribute(Runtime& rt, std::string_view name, Int& out) {
  const auto index = static_cast<Int>(index_);
  if (name == "index") return out = index, true;
  if (name == "index0") return out = index - 1, true;
  if (name == "depth") return out = static_cast<Int>(level_) + 1, true;
  if (name == "depth0") return out = static_cast<Int>(level_), true;
  if (name != "length" && name != "revindex" && name != "revindex0") return false;
  read_all(rt);
  const Int length = index + static_cast<Int>(items_.size() - place_);
  return out = name == "length" ? length : name == "revindex" ? length - index + 1 : length - index, true;
}

bool Loop::attribute(Runtime& rt, std::string_view name, Value& out) {
  Int number = 0;
  if (integer_attribute(rt, name, number)) {
    out = Value::integer(number);
  } else if (name == "first") {
    out = Value::boolean(index_ == 1);
  } else if (name == "last") {
    out = Value::boolean(!peek(rt));
  } else if (name == "previtem") {
    out = index_ > 1 ? before_ : Value::undefined("there is no previous item");
  } else if (name == "nextitem") {
    out = peek(rt) ? items_[place_] : Value::undefined("there is no next item");
  } else if (const Builtin* method = find_row(kLoopMethods, name)) {
    out = Value::object(std::make_shared<BoundMethod>(Value::object(shared_from_this()), *method));
  } else {
    return false;
  }
  return true;
}

Value Loop::cycle(const Args& args) const {
  if (args.positional.empty()) throw Error("no items for cycling given");
  return args.positional[(index_ - 1) % args.positional.size()];
}

Value Loop::changed(Runtime& rt, Args& args) {
  const Value now = rt.tuple(args.positional);
  const bool differs = !last_changed_ || !equal(*last_changed_, now, rt.meter);
  if (!last_changed_) rt.keep(Value::object(shared_from_this()));  // the loop may refer to itself from now on
  last_changed_ = now;
  return Value::boolean(differs);
}

Value Loop::call(Runtime& rt, Args& args) {
  if (!node_.recursive) throw Error("the loop must have the 'recursive' marker to be called recursively");
  if (args.positional.size() != 1 || !args.keyword.empty()) throw Error("loop() takes one argument");
  if (scope_ == nullptr) throw Error("the loop has ended and cannot be called");
  Runtime::Capture capture(rt);
  run_loop(rt, node_, rt.iterate(args.positional[0]), scope_, level_ + 1);
  return Value::string(std::move(capture.text));
}

Flow run_loop(Runtime& rt, const For& node, std::vector<Value> items, const std::shared_ptr<Scope>& scope,
              size_t level) {
  auto loop = std::make_shared<Loop>(node, std::move(items), scope, level, rt.meter);
  const Value loop_value = Value::object(loop);
  bool ran = false;
  {
    Runtime::Enter enter(rt, node.body, scope);
    Value item;
    while (true) {
      // The filter runs in its own scope, so the next item is found before the scope of this iteration begins.
      if (!loop->next(rt, item)) break;
      rt.meter.spend();
      enter.renew();
      rt.assign(node.target, item);
      if (node.has_loop) rt.scope()->set(node.loop_id, loop_value);
      const Flow flow = rt.run(node.body);
      if (flow == Flow::kBreak) break;
      ran = ran || flow == Flow::kNext;  // as in jinja2: interrupted iterations do not count
    }
  }
  loop->end();
  if (ran || node.otherwise.statements.empty()) return Flow::kNext;
  Runtime::Enter enter(rt, node.otherwise, scope);
  return rt.run(node.otherwise);
}

}  // namespace ingot::jinja

// The objects of a template, in addition to plain values: namespaces, ranges, iterators, the views from keys(),
// values() and items(), and functions. The objects of macros and loops are in statements.cc.
#include <algorithm>

#include "text/jinja/runtime.h"

namespace ingot::jinja {
namespace {

class Namespace : public Object {
 public:
  const char* type_name() const override { return "Namespace"; }
  void clear() override { dict_.clear(); }

  std::string repr(Meter& meter, size_t depth) const override {
    std::string out;
    for (const auto& [name, value] : dict_.entries()) {
      out += (out.empty() ? "" : ", ") + to_repr(name, meter) + ": " + to_repr(value, meter, depth + 1);
      meter.fits(out.size());
    }
    return "<Namespace {" + out + "}>";
  }

  std::optional<Value> attribute(Runtime&, std::string_view name) override {
    const Value* found = dict_.find(name);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }

  bool set_attribute(std::string_view name, const Value& value, Meter& meter) override {
    dict_.set(Value::string(std::string(name)), value, meter);
    return true;
  }

 private:
  Dict dict_;
};

class Range : public Object, public std::enable_shared_from_this<Range> {
 public:
  Range(Int start, Int stop, Int step) : start_(start), stop_(stop), step_(step) {
    constexpr Int kMax = Int(1) << 66;  // far from an overflow in all later computations
    if (std::max({start, -start, stop, -stop, step, -step}) > kMax) throw Error("the number is too large");
    const Int span = step > 0 ? stop - start : start - stop;
    const Int stride = step > 0 ? step : -step;
    n_ = span > 0 ? static_cast<size_t>((span + stride - 1) / stride) : 0;
  }

  const char* type_name() const override { return "range"; }
  bool truthy() const override { return n_ > 0; }
  bool iterable() const override { return true; }
  bool sequence() const override { return true; }
  std::optional<size_t> length() const override { return n_; }

  std::string repr(Meter&, size_t) const override {
    return step_ == 1 ? fmt::format("range({}, {})", start_, stop_)
                      : fmt::format("range({}, {}, {})", start_, stop_, step_);
  }

  std::vector<Value> drain(Meter& meter) override {
    meter.items(n_);
    std::vector<Value> items;
    items.reserve(n_);
    for (size_t i = 0; i < n_; ++i) items.push_back(Value::integer(at(static_cast<Int>(i))));
    return items;
  }

  std::optional<Value> attribute(Runtime&, std::string_view name) override {
    static constexpr Builtin kMethods[] = {{"count", count, 1, {"value"}}, {"index", index, 1, {"value"}}};
    if (name == "start") return Value::integer(start_);
    if (name == "stop") return Value::integer(stop_);
    if (name == "step") return Value::integer(step_);
    return bound_method(Value::object(shared_from_this()), find_row(kMethods, name));
  }

  std::optional<Value> subscript(const Value& index) override {
    const auto i = index.as_index(n_);
    return i ? std::optional(Value::integer(at(static_cast<Int>(*i)))) : std::nullopt;
  }

  std::optional<Value> slice(Int first, Int stride, size_t count) const override {
    const Int start = at(first), step = stride * step_;
    return make_range(start, start + static_cast<Int>(count) * step, step);
  }

  bool equals(const Object& other) const override {
    const auto* range = dynamic_cast<const Range*>(&other);
    return range != nullptr && n_ == range->n_ &&
           (n_ == 0 || (start_ == range->start_ && (n_ == 1 || step_ == range->step_)));
  }

  std::optional<bool> contains(const Value& item) const override {
    if (!item.is_integral()) return std::nullopt;
    const Int value = item.as_int();
    if (value != static_cast<int64_t>(value)) return false;
    const Int steps = (value - start_) / step_;
    return (value - start_) % step_ == 0 && steps >= 0 && steps < static_cast<Int>(n_);
  }

 private:
  Int at(Int i) const { return start_ + i * step_; }

  // The position of the value equal to the first argument; there is at most one.
  static std::optional<Int> find(Runtime& rt, const Value& self, const Params& params) {
    const std::vector<Value> items = rt.iterate(self);
    for (size_t i = 0; i < items.size(); ++i) {
      if (equal(items[i], *params[0], rt.meter)) return static_cast<Int>(i);
    }
    return std::nullopt;
  }
  static Value count(Runtime& rt, const Value& self, const Params& params) {
    return Value::integer(find(rt, self, params).has_value());
  }
  static Value index(Runtime& rt, const Value& self, const Params& params) {
    const auto found = find(rt, self, params);
    if (!found) throw Error("the value is not in the range");
    return Value::integer(*found);
  }

  Int start_, stop_, step_;
  size_t n_;
};

class Iterator : public Object {
 public:
  Iterator(std::vector<Value> items, const char* type_name, const Meter& meter)
      : items_(std::move(items)), type_name_(type_name), depth_(container_depth(items_, meter)) {}
  const char* type_name() const override { return type_name_; }
  bool iterable() const override { return true; }
  bool consumable() const override { return true; }
  size_t depth() const override { return depth_; }

  std::vector<Value> drain(Meter&) override {
    std::vector<Value> rest(items_.begin() + static_cast<ptrdiff_t>(next_), items_.end());
    next_ = items_.size();
    return rest;
  }

  std::optional<Value> next() override {
    if (next_ == items_.size()) return std::nullopt;
    return items_[next_++];
  }

 private:
  std::vector<Value> items_;
  size_t next_ = 0;
  const char* type_name_;
  size_t depth_;
};

class DictView : public Object {
 public:
  DictView(std::shared_ptr<Dict> dict, View what) : dict_(std::move(dict)), what_(what) {}
  bool truthy() const override { return !dict_->entries().empty(); }
  bool iterable() const override { return true; }
  std::optional<size_t> length() const override { return dict_->entries().size(); }
  size_t depth() const override { return dict_->depth + 1; }

  const char* type_name() const override {
    return what_ == View::kKeys ? "dict_keys" : what_ == View::kValues ? "dict_values" : "dict_items";
  }

  std::string repr(Meter& meter, size_t depth) const override {
    std::string out;
    for (const auto& [key, value] : dict_->entries()) {
      out += out.empty() ? "" : ", ";
      if (what_ == View::kItems) {
        out += "(" + to_repr(key, meter, depth + 1) + ", " + to_repr(value, meter, depth + 1) + ")";
      } else {
        out += to_repr(what_ == View::kKeys ? key : value, meter, depth + 1);
      }
      meter.fits(out.size());
    }
    return fmt::format("{}([{}])", type_name(), out);
  }

  std::vector<Value> drain(Meter& meter) override {
    meter.items(dict_->entries().size());
    std::vector<Value> items;
    for (const auto& [key, value] : dict_->entries()) {
      items.push_back(what_ == View::kKeys ? key : what_ == View::kValues ? value : Value::tuple({key, value}, meter));
    }
    return items;
  }

 private:
  std::shared_ptr<Dict> dict_;
  View what_;
};

// A global function, or `self.method` as a value.
class Function : public Object {
 public:
  Function(Value self, const Builtin& builtin) : self_(std::move(self)), builtin_(builtin) {}
  const char* type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return call_builtin(rt, builtin_, self_, args); }
  size_t depth() const override { return self_.depth() + 1; }

  std::string repr(Meter&, size_t) const override {
    if (self_.is_undefined()) return fmt::format("<function {}>", builtin_.name);
    return fmt::format("<built-in method {} of {} object>", builtin_.name, self_.type_name());
  }

  bool equals(const Object& other) const override {
    const auto* function = dynamic_cast<const Function*>(&other);
    return function != nullptr && &builtin_ == &function->builtin_ && self_.same(function->self_);
  }

 private:
  Value self_;
  const Builtin& builtin_;
};

}  // namespace

Value make_namespace() { return Value::object(std::make_shared<Namespace>()); }

Value make_range(Int start, Int stop, Int step) { return Value::object(std::make_shared<Range>(start, stop, step)); }

Value make_iterator(std::vector<Value> items, const char* type_name, const Meter& meter) {
  return Value::object(std::make_shared<Iterator>(std::move(items), type_name, meter));
}

Value make_view(std::shared_ptr<Dict> dict, View what) {
  return Value::object(std::make_shared<DictView>(std::move(dict), what));
}

Value make_function(const Value& self, const Builtin& builtin) {
  return Value::object(std::make_shared<Function>(self, builtin));
}

std::optional<Value> bound_method(const Value& self, const Builtin* method) {
  return method != nullptr ? std::optional(make_function(self, *method)) : std::nullopt;
}

}  // namespace ingot::jinja

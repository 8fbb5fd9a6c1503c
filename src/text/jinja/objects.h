// The objects of a template, in addition to plain values: namespaces, macros, the `loop` of a for, ranges, iterators
// and the views from keys(), values() and items().
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace ingot::jinja {

class Namespace : public Object {
 public:
  const char* type_name() const override { return "Namespace"; }
  std::string repr(Meter& meter, size_t depth) const override;
  bool attribute(Runtime&, std::string_view name, Value& out) override;
  void set(std::string_view name, Value value, Meter& meter);
  void clear() override { dict_.clear(); }

 private:
  Dict dict_;
};

class Macro : public Object {
 public:
  Macro(const MacroBody& body, std::shared_ptr<Scope> scope) : body_(body), scope_(std::move(scope)) {}
  const char* type_name() const override { return "Macro"; }
  std::string repr(Meter&, size_t) const override { return fmt::format("<Macro '{}'>", body_.name); }
  bool attribute(Runtime& rt, std::string_view name, Value& out) override;
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return rt.call_macro(body_, scope_, args); }

 private:
  const MacroBody& body_;
  std::shared_ptr<Scope> scope_;  // the Runtime holds it
};

class Range : public Object, public std::enable_shared_from_this<Range> {
 public:
  Range(Int start, Int stop, Int step);  // step must not be 0
  const char* type_name() const override { return "range"; }
  std::string repr(Meter&, size_t) const override;
  bool truthy() const override { return n_ > 0; }
  bool iterable() const override { return true; }
  std::vector<Value> drain(Meter& meter) override;
  bool length(size_t& n) const override { return n = n_, true; }
  bool attribute(Runtime& rt, std::string_view name, Value& out) override;
  bool subscript(Runtime&, const Value& index, Value& out) override;
  bool equals(const Object& other) const override;
  bool contains(Int value) const;
  Int at(size_t i) const { return start_ + static_cast<Int>(i) * step_; }
  Int start() const { return start_; }
  Int step() const { return step_; }

 private:
  Int start_, stop_, step_;
  size_t n_;
};

// Items that can be consumed once, as from a Python generator.
class Iterator : public Object {
 public:
  Iterator(std::vector<Value> items, const char* type_name, const Meter& meter);
  const char* type_name() const override { return type_name_; }
  bool iterable() const override { return true; }
  std::vector<Value> drain(Meter&) override;
  bool next(Value& out);
  size_t depth() const override { return depth_; }

 private:
  std::vector<Value> items_;
  size_t next_ = 0;
  const char* type_name_;
  size_t depth_;
};

class DictView : public Object {
 public:
  enum class What { kKeys, kValues, kItems };
  DictView(std::shared_ptr<Dict> dict, What what) : dict_(std::move(dict)), what_(what) {}
  const char* type_name() const override;
  std::string repr(Meter& meter, size_t depth) const override;
  bool truthy() const override { return !dict_->entries().empty(); }
  bool iterable() const override { return true; }
  std::vector<Value> drain(Meter& meter) override;
  bool length(size_t& n) const override { return n = dict_->entries().size(), true; }
  size_t depth() const override { return dict_->depth + 1; }

 private:
  std::shared_ptr<Dict> dict_;
  What what_;
};

// The items of a for statement and the current position; `loop` in its body.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // level: the nesting of calls of a recursive loop, from 0.
  Loop(const For& node, std::vector<Value> items, std::shared_ptr<Scope> scope, size_t level, const Meter& meter);
  const char* type_name() const override { return "LoopContext"; }
  std::string repr(Meter&, size_t) const override { return fmt::format("<LoopContext {}/{}>", index_, items_.size()); }
  bool iterable() const override { return true; }
  bool length(size_t& n) const override { return n = items_.size(), true; }
  bool attribute(Runtime& rt, std::string_view name, Value& out) override;
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override;
  size_t depth() const override { return depth_; }
  void clear() override;

  bool next(Runtime& rt, Value& item);  // the next item that passes the for's filter; false at the end
  void end();                           // the for has ended; a template may still hold its loop
  Value cycle(const Args& args) const;
  Value changed(Runtime& rt, Args& args);

 private:
  bool passes(Runtime& rt, const Value& item);
  bool peek(Runtime& rt);      // whether there is a next item
  void read_all(Runtime& rt);  // filters the other items now, so that the length is known
  bool integer_attribute(Runtime& rt, std::string_view name, Int& out);

  const For& node_;
  std::vector<Value> items_;      // from `place_` on; unfiltered from `unfiltered_` on
  std::shared_ptr<Scope> scope_;  // the scope around the for while the for runs
  size_t level_, depth_;
  size_t place_ = 0;       // the next item
  size_t unfiltered_ = 0;  // items before this one have passed the filter
  size_t index_ = 0;       // items returned so far: loop.index
  Value current_, before_;
  std::optional<Value> last_changed_;
};

// Runs a for statement over the items. Used by the statement and by calls of its `loop`.
Flow run_loop(Runtime& rt, const For& node, std::vector<Value> items, const std::shared_ptr<Scope>& scope,
              size_t level);

}  // namespace ingot::jinja

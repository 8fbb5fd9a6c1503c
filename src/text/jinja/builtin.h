// Builtin: a filter, test, method or global function as a row of a table: its name, its parameters and its function.
// For all builtins, call_builtin binds the arguments to the parameters, with Python's errors.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ingot::jinja {

class Runtime;

// The arguments of one call.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
  // Removes and returns the keyword argument; false if there is none.
  bool take(std::string_view name, Value& out);
};

// The arguments of a builtin: for each parameter the argument or null.
struct Params {
  static constexpr size_t kMax = 5;
  std::array<const Value*, kMax> slots{};
  Args* all = nullptr;  // for builtins that take any arguments
  const Value* operator[](size_t i) const { return slots[i]; }

  // Returns the argument, which must have this type as in Python, or the fallback.
  Int integer(size_t i, Int fallback) const;
  bool boolean(size_t i, bool fallback) const;
  // Returns the argument, or null if the argument is absent or None.
  const Value* given(size_t i) const { return slots[i] == nullptr || slots[i]->is_none() ? nullptr : slots[i]; }
};

struct Builtin {
  std::string_view name;
  Value (*function)(Runtime& rt, const Value& self, const Params& params);
  size_t n_required = 0;
  std::array<std::string_view, Params::kMax> params{};  // names, in order
  bool any_args = false;                                // takes any arguments, unchecked
};

// Null if no builtin has this name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(const Value& self, std::string_view name);
const Builtin* find_global(std::string_view name);

// The rows of the tables; the filters are in two files.
std::span<const Builtin> scalar_filters();
std::span<const Builtin> list_filters();
std::span<const Builtin> string_methods();

const Builtin* find_row(std::span<const Builtin> rows, std::string_view name);

Value call_builtin(Runtime& rt, const Builtin& builtin, const Value& self, Args& args);

// `self.method` or a global function as a value.
class BoundMethod : public Object {
 public:
  BoundMethod(Value self, const Builtin& builtin) : self_(std::move(self)), builtin_(builtin) {}
  const char* type_name() const override { return "builtin_function_or_method"; }
  std::string repr(Meter&, size_t) const override;
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override;
  bool equals(const Object& other) const override;
  size_t depth() const override { return self_.depth() + 1; }

 private:
  Value self_;
  const Builtin& builtin_;
};

}  // namespace ingot::jinja

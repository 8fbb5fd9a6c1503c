// Runtime: the state of one rendering: the variables in scope, the text so far and the remaining budget. The nodes of
// the tree and the builtins work on this state. Template::render makes a Runtime for each call.
//
// Builtin: a filter, test, method or global function as a row of a table: its name, its parameters and its function.
#pragma once
#include <array>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/syntax.h"
#include "text/jinja/value.h"

namespace ingot::jinja {

// The arguments of one call.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
  std::optional<Value> take(std::string_view name);  // removes and returns the keyword argument, if there is one
  void add_keywords_to(Dict& dict, Meter& meter) const;
};

// The arguments of a builtin: for each parameter the argument or null.
struct Params {
  static constexpr size_t kMax = 5;
  std::array<const Value*, kMax> slots{};
  Args* all = nullptr;  // for builtins that take any arguments
  const Value* operator[](size_t i) const { return slots[i]; }

  // Returns the argument, which must have this type as in Python, or the fallback.
  Int integer(size_t i, Int fallback) const;
  bool boolean(size_t i, bool fallback) const { return slots[i] == nullptr ? fallback : truthy(*slots[i]); }
  Value value(size_t i, const Value& fallback) const { return slots[i] == nullptr ? fallback : *slots[i]; }
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

using Builtins = std::span<const Builtin>;
const Builtin* find_row(Builtins rows, std::string_view name);  // null if no row has this name

// Null if no builtin has this name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
const Builtin* find_method(const Value& self, std::string_view name);

// The tables of strings.cc and lists.cc.
Builtins string_filters();
Builtins string_methods();
Builtins list_filters();
const Builtin* find_container_method(const Value& self, std::string_view name);

// Binds the arguments to the parameters, with Python's errors, and calls the function.
Value call_builtin(Runtime& rt, const Builtin& builtin, const Value& self, Args& args);

// The objects of objects.cc.
enum class View { kKeys, kValues, kItems };
Value make_namespace();
Value make_range(Int start, Int stop, Int step);                                           // step must not be 0
Value make_iterator(std::vector<Value> items, const char* type_name, const Meter& meter);  // as a Python generator
Value make_view(std::shared_ptr<Dict> dict, View what);
Value make_function(const Value& self, const Builtin& builtin);               // self is undefined for a global function
std::optional<Value> bound_method(const Value& self, const Builtin* method);  // nothing if the method is null

// The variables of a block, found by their number. A lookup goes from inner to outer scopes.
struct Scope {
  std::shared_ptr<Scope> outer;
  size_t depth = 1;
  std::vector<std::pair<int, Value>> vars;

  void set(int id, Value value);
  Value* find(int id);  // searches only this scope
};

// How a statement ends.
enum class Flow { kNext, kBreak, kContinue };

class Runtime {
 public:
  // `variables` by number; null if there is none.
  Runtime(const Program& program, std::vector<std::optional<Value>> variables, const Meter& budget,
          const TemplateClock& clock);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  std::string render();
  int line() const { return line_; }  // the line that ran last, for error messages
  void at(int line) { line_ = line; }

  // Evaluation, with its steps counted.
  Value eval(const Expr& expr);
  Flow run(const Block& block);

  // Levels of recursion. A level lasts as long as the returned object.
  Hold<size_t> nested();
  Hold<size_t> nested_macro(const std::string& name);

  // Variables.
  Value lookup(int id) const;
  void assign(const Target& target, const Value& value);
  const std::shared_ptr<Scope>& scope() const { return scope_; }
  // The scope of a block, inside the current or the given scope, during the object's lifetime.
  struct Enter {
    Enter(Runtime& runtime, const Block& entered) : Enter(runtime, entered, runtime.scope_) {}
    Enter(Runtime& runtime, const Block& entered, std::shared_ptr<Scope> outside);
    ~Enter() { rt.scope_ = std::move(old); }
    void renew();  // empties the scope for the next iteration of a loop
    Runtime& rt;
    const Block& block;
    std::shared_ptr<Scope> old, outer;
  };

  // Output.
  void write(std::string_view text);
  // Redirects the output to a string during its lifetime.
  struct Capture {
    explicit Capture(Runtime& rt) : held(rt.out_, &text) {}
    std::string text;
    Hold<std::string*> held;
  };
  Value captured;  // the value of a kCaptured expression

  // Calls.
  Value call(const Value& callee, Args& args);
  Args eval_args(const CallArgs& args);
  Value call_filter(std::string_view name, const Value& input, Args& args);
  bool call_test(std::string_view name, const Value& input, Args& args);

  // Values.
  // Each of these four makes a new value, and charges for it.
  Value text(std::string string, bool markup = false) {
    meter.make(string.size());
    return Value::string(std::move(string), markup);
  }
  Value list(std::vector<Value> items) {
    meter.items(items.size());
    return Value::list(std::move(items), meter);
  }
  Value tuple(std::vector<Value> items) {
    meter.items(items.size());
    return Value::tuple(std::move(items), meter);
  }
  Value iterator(std::vector<Value> items, const char* type_name = "generator") {
    meter.items(items.size());
    return make_iterator(std::move(items), type_name, meter);
  }
  std::string str(const Value& value);
  // The items of an iterable value; throws if the value is not iterable.
  std::vector<Value> iterate(const Value& value);
  std::optional<Value> attribute(const Value& object, std::string_view name);
  Value get_attr(const Value& object, std::string_view name);
  Value get_item(const Value& object, const Value& index);
  Value get_slice(const Value& object, const Value* start, const Value* stop, const Value* step);
  bool contains(const Value& container, const Value& item);
  size_t length(const Value& value);
  Value binary(Op op, const Value& a, const Value& b);
  bool holds(Relation relation, const Value& a, const Value& b);
  // Holds a value that was changed after its creation, or a scope that a macro uses, until the end of the rendering,
  // and then empties the value or scope. This breaks cycles, and destroys long chains link by link.
  void keep(const Value& value) { kept_.push_back(value); }
  void keep(std::shared_ptr<Scope> scope) { kept_scopes_.push_back(std::move(scope)); }

  Meter meter;
  std::tm now() const;

 private:
  void hide(const Block& block);  // hides the block's hidden names in the current scope
  std::optional<Value> element(const Value& object, const Value& index);

  const Program& program_;
  std::vector<std::optional<Value>> variables_;
  const TemplateClock& clock_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int line_ = 1;
  size_t depth_ = 0, macro_depth_ = 0;
  std::vector<Value> kept_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
};

// "{}".format(values) and "%s" % values.
std::string brace_format(Runtime& rt, const Str& format, const Args& args);
std::string percent_format(Runtime& rt, const Str& format, const Value& values);

}  // namespace ingot::jinja

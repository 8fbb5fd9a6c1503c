// Runtime: one rendering. Holds the variables in scope, the text written so far and what may still be spent; the nodes
// of the tree and the builtins work on it. Lives on the stack of Template::render.
#pragma once
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/builtin.h"
#include "text/jinja/meter.h"
#include "text/jinja/value.h"

namespace ingot::jinja {

// The variables of a block, found by their number. Lookup goes outwards.
struct Scope {
  std::shared_ptr<Scope> outer;
  size_t depth = 1;
  std::vector<std::pair<int, Value>> vars;

  void set(int id, Value value);
  const Value* find(int id) const;  // here only
};

class Runtime {
 public:
  // `variables` by number, null where there is none.
  Runtime(const Program& program, std::vector<std::optional<Value>> variables, const Meter& budget,
          const TemplateClock& clock);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  std::string render();
  int line() const { return line_; }  // of what ran last: where an error is

  // Evaluation, counted.
  Value eval(const Expr& expr);
  Flow run(const Block& block);
  void at(int line) { line_ = line; }
  // Counts a level of recursion for as long as it lives.
  struct Nested {
    explicit Nested(Runtime& runtime);
    ~Nested() { --rt.depth_; }
    Runtime& rt;
  };

  // Variables.
  Value lookup(int id) const;
  void assign(const Target& target, const Value& value);
  const std::shared_ptr<Scope>& scope() const { return scope_; }
  const std::string& name_of(int id) const { return program_.names[static_cast<size_t>(id)]; }
  // The scope of a block: a new one in the current (or the given) one for as long as it lives.
  struct Enter {
    Enter(Runtime& runtime, const Block& entered) : Enter(runtime, entered, runtime.scope_) {}
    Enter(Runtime& runtime, const Block& entered, std::shared_ptr<Scope> outside);
    ~Enter() { rt.scope_ = std::move(old); }
    void renew();  // empty it, for the next turn of a loop
    Runtime& rt;
    const Block& block;
    std::shared_ptr<Scope> old, outer;
  };

  // Output.
  void write(std::string_view text);
  // Sends the output into a string for as long as it lives.
  struct Capture {
    explicit Capture(Runtime& runtime) : rt(runtime), old(runtime.out_) { rt.out_ = &text; }
    ~Capture() { rt.out_ = old; }
    Runtime& rt;
    std::string* old;
    std::string text;
  };
  Value captured;  // what a Captured node gives

  // Calls.
  Value call(const Value& callee, Args& args);
  Args eval_args(const CallArgs& args);
  Value call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& scope, Args& args);
  Value call_filter(std::string_view name, const Value& input, Args& args);
  bool call_test(std::string_view name, const Value& input, Args& args);

  // Values.
  Value text(std::string string, bool markup = false);  // a new string, charged
  Value list(std::vector<Value> items);                 // a new list, charged
  Value tuple(std::vector<Value> items);
  Value iterator(std::vector<Value> items, const char* type_name = "generator");
  std::string str(const Value& value);
  // What iterating over the value gives; throws if it cannot be.
  std::vector<Value> iterate(const Value& value);
  bool attribute(const Value& object, std::string_view name, Value& out);  // false: it has none of this name
  Value get_attr(const Value& object, std::string_view name);
  Value get_item(const Value& object, const Value& index);
  Value get_slice(const Value& object, const Value* start, const Value* stop, const Value* step);
  bool contains(const Value& container, const Value& item);
  size_t length(const Value& value);
  Value binary(Op op, const Value& a, const Value& b);
  // Holds what was changed after it was made, or a scope that a macro refers to, until the end, when it is emptied:
  // that breaks cycles, and long chains come apart link by link.
  void keep(const Value& value) { kept_.push_back(value); }
  void keep(std::shared_ptr<Scope> scope) { kept_scopes_.push_back(std::move(scope)); }

  Meter meter;
  std::tm now() const;

 private:
  void hide(const Block& block);  // sets the block's hidden names in the current scope
  bool element(const Value& object, const Value& index, Value& out);

  const Program& program_;
  std::vector<std::optional<Value>> variables_;
  const TemplateClock& clock_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int line_ = 1;
  size_t depth_ = 0, call_depth_ = 0;
  std::vector<Value> kept_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
};

}  // namespace ingot::jinja

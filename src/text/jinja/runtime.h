// Runtime: the state of one rendering: the variables in scope, the text so far and the remaining budget. The nodes of
// the tree and the builtins work on this state. Template::render makes a Runtime for each call.
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

// The variables of a block, found by their number. A lookup goes from inner to outer scopes.
struct Scope {
  std::shared_ptr<Scope> outer;
  size_t depth = 1;
  std::vector<std::pair<int, Value>> vars;

  void set(int id, Value value);
  const Value* find(int id) const;  // searches only this scope
};

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

  // Evaluation, with its steps counted.
  Value eval(const Expr& expr);
  Flow run(const Block& block);
  void at(int line) { line_ = line; }
  // Counts a level of recursion during its lifetime.
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
    explicit Capture(Runtime& runtime) : rt(runtime), old(runtime.out_) { rt.out_ = &text; }
    ~Capture() { rt.out_ = old; }
    Runtime& rt;
    std::string* old;
    std::string text;
  };
  Value captured;  // the value of a Captured node

  // Calls.
  Value call(const Value& callee, Args& args);
  Args eval_args(const CallArgs& args);
  Value call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& scope, Args& args);
  Value call_filter(std::string_view name, const Value& input, Args& args);
  bool call_test(std::string_view name, const Value& input, Args& args);

  // Values.
  Value text(std::string string, bool markup = false);  // makes a new string, and charges for it
  Value list(std::vector<Value> items);                 // makes a new list, and charges for it
  Value tuple(std::vector<Value> items);
  Value iterator(std::vector<Value> items, const char* type_name = "generator");
  std::string str(const Value& value);
  // The items of an iterable value; throws if the value is not iterable.
  std::vector<Value> iterate(const Value& value);
  bool attribute(const Value& object, std::string_view name, Value& out);  // false: there is no such attribute
  Value get_attr(const Value& object, std::string_view name);
  Value get_item(const Value& object, const Value& index);
  Value get_slice(const Value& object, const Value* start, const Value* stop, const Value* step);
  bool contains(const Value& container, const Value& item);
  size_t length(const Value& value);
  Value binary(Op op, const Value& a, const Value& b);
  // Holds a value that was changed after its creation, or a scope that a macro uses, until the end of the rendering,
  // and then empties the value or scope. This breaks cycles, and destroys long chains link by link.
  void keep(const Value& value) { kept_.push_back(value); }
  void keep(std::shared_ptr<Scope> scope) { kept_scopes_.push_back(std::move(scope)); }

  Meter meter;
  std::tm now() const;

 private:
  void hide(const Block& block);  // hides the block's hidden names in the current scope
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

// The tree that the parser makes from a template. A Runtime evaluates the expressions (jinja/expr.cc) and runs the
// statements (jinja/stmt.cc). Variables are numbered: a number is an index of the Program's name table.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ingot::jinja {

class Runtime;
struct Builtin;

struct Expr {
  explicit Expr(int at_line) : line(at_line) {}
  virtual ~Expr() = default;
  virtual Value eval(Runtime& rt) const = 0;  // called through Runtime::eval, which counts steps and depth
  int line;
  size_t depth = 1;  // of the tree below; the parser limits it
};
using ExprPtr = std::unique_ptr<const Expr>;

enum class Flow { kNext, kBreak, kContinue };

struct Stmt {
  explicit Stmt(int at_line) : line(at_line) {}
  virtual ~Stmt() = default;
  virtual Flow run(Runtime& rt) const = 0;  // called through Runtime::run
  int line;
};

// Statements. If they have a scope, `hidden` lists the names that are undefined at its start (jinja/frames.h).
struct Block {
  std::vector<std::unique_ptr<const Stmt>> statements;
  std::vector<int> hidden;
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star, star_star;  // *list and **dict, or null
};

struct Const : Expr {
  Const(int at, Value v) : Expr(at), value(std::move(v)) {}
  Value eval(Runtime&) const override { return value; }
  Value value;
};

struct Name : Expr {
  Name(int at, int name) : Expr(at), id(name) {}
  Value eval(Runtime& rt) const override;
  int id;
};

struct Items : Expr {  // a list or tuple
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  std::vector<ExprPtr> items;
  bool tuple = false;
};

struct DictLiteral : Expr {
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

enum class Op { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kNeg, kPos };

struct Unary : Expr {
  Unary(int at, Op o, ExprPtr x) : Expr(at), op(o), operand(std::move(x)) {}
  Value eval(Runtime& rt) const override;
  Op op;
  ExprPtr operand;
};

struct Binary : Expr {
  Binary(int at, Op o, ExprPtr a, ExprPtr b) : Expr(at), op(o), left(std::move(a)), right(std::move(b)) {}
  Value eval(Runtime& rt) const override;
  Op op;
  ExprPtr left, right;
};

struct Logic : Expr {  // `and`, `or`: the value is one of the operands
  Logic(int at, bool o, ExprPtr a, ExprPtr b) : Expr(at), is_or(o), left(std::move(a)), right(std::move(b)) {}
  Value eval(Runtime& rt) const override;
  bool is_or;
  ExprPtr left, right;
};

struct Not : Expr {
  Not(int at, ExprPtr x) : Expr(at), operand(std::move(x)) {}
  Value eval(Runtime& rt) const override;
  ExprPtr operand;
};

enum class Relation { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Compare : Expr {  // a < b <= c, as Python chains them
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr first;
  std::vector<std::pair<Relation, ExprPtr>> rest;
};

struct Concat : Expr {  // a ~ b ~ c
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  std::vector<ExprPtr> parts;
};

struct Conditional : Expr {  // a if test else b
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr test, then, otherwise;  // otherwise may be null
};

struct GetAttr : Expr {  // object.name
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr object;
  std::string name;
};

struct GetItem : Expr {  // object[index]
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr object, index;
};

struct GetSlice : Expr {  // object[start:stop:step], each may be null
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr object, start, stop, step;
};

struct Call : Expr {
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr callee;
  CallArgs args;
};

struct Filter : Expr {
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr input;
  std::string name;
  const Builtin* filter = nullptr;  // null: an unknown filter, an error only when it runs (as in jinja2 inside `if`)
  CallArgs args;
};

struct Test : Expr {
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
  ExprPtr input;
  std::string name;
  const Builtin* test = nullptr;
  CallArgs args;
};

struct Captured : Expr {  // the text of the filter block or set block that has just run
  using Expr::Expr;
  Value eval(Runtime& rt) const override;
};

// The target of `for` and `set`: a name, an attribute of a namespace, or several targets.
struct Target {
  enum class Kind { kName, kAttr, kTuple } kind = Kind::kName;
  int id = 0;
  std::string attr;
  std::vector<Target> parts;
  int line = 0;
};

struct Data : Stmt {  // text between the tags
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  std::string text;
};

struct Print : Stmt {  // {{ expression }}
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  ExprPtr value;
};

struct If : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};

struct For : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  Target target;
  ExprPtr items, test;  // test may be null
  Block body, otherwise;
  Block filtering;  // the scope of the test, without statements
  bool recursive = false;
  bool has_loop = false;  // the body mentions `loop`
  int loop_id = 0;
};

struct Set : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  Target target;
  ExprPtr value;
};

struct SetBlock : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  Target target;
  ExprPtr value;  // Captured, or filters applied to it
  Block body;
};

struct MacroParam {
  int id;
  std::string name;
  ExprPtr fallback;  // may be null
};

// A macro, or the body of a call block.
struct MacroBody {
  std::string name;
  std::vector<MacroParam> params;
  Block body;
  std::optional<int> caller_id, varargs_id, kwargs_id;  // the special names that the body uses
};

struct MacroDef : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  int id = 0;
  MacroBody macro;
};

struct CallBlock : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  std::unique_ptr<const Call> call;
  MacroBody caller;
};

struct FilterBlock : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  ExprPtr value;  // filters applied to Captured
  Block body;
};

struct With : Stmt {
  using Stmt::Stmt;
  Flow run(Runtime& rt) const override;
  std::vector<std::pair<Target, ExprPtr>> values;  // empty for {% generation %}, which only makes a scope
  Block body;
};

struct LoopControl : Stmt {
  LoopControl(int at, Flow f) : Stmt(at), flow(f) {}
  Flow run(Runtime&) const override { return flow; }
  Flow flow;
};

struct Program {
  std::vector<std::string> names;            // by number
  std::unordered_map<std::string, int> ids;  // the number of each name
  Block body;
};

}  // namespace ingot::jinja

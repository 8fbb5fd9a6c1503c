// The two forms that a template has before it runs: the tokens that lexer.cc cuts it into, and the tree that parser.cc
// makes from the tokens. A Runtime evaluates the expressions (runtime.cc) and runs the statements (statements.cc).
// Variables are numbered: a number is an index of the Program's name table.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ingot::jinja {

// ---- Tokens

enum class TokenKind {
  kData,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string_view text;  // of the source; a string keeps its quotes
  int line, column;       // from 1
};

// Throws Error "template line 3, column 7: ...".
[[noreturn]] void fail(int line, int column, std::string_view what);

// The source with \r\n and \r replaced by \n, and without one newline at its end. The tokens point into this string.
std::string normalized_source(std::string_view source);

// Cuts a template into text and tokens by jinja2's rules: trim_blocks, lstrip_blocks, the signs '-' and '+' at tags,
// raw blocks and comments. Throws Error for input that jinja2's lexer refuses: an unclosed comment, raw block or
// string, or unmatched brackets.
std::vector<Token> tokenize(const std::string& source);

// The value of a string token, without quotes and with escapes replaced.
std::string unquote(const Token& token);

// ---- Expressions

struct Builtin;
struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

// Beside each kind: its parts, in the order of the source. A part in brackets may be null.
enum class ExprKind {
  kConst,        // value
  kName,         // id
  kCaptured,     // the text of the filter block or set block that has just run
  kList,         // the items
  kTuple,        // the items
  kDict,         // key, value, key, value, ...
  kUnary,        // op: operand
  kBinary,       // op: left, right
  kAnd,          // left, right; the value is one of them
  kOr,           // left, right; the value is one of them
  kNot,          // operand
  kCompare,      // a < b <= c, as Python chains them: the operands, with the relations between them
  kConcat,       // the operands of ~
  kConditional,  // then, test, [otherwise]
  kGetAttr,      // object.name: object
  kGetItem,      // object[index]: object, index
  kGetSlice,     // object[start:stop:step]: object, [start], [stop], [step]
  kCall,         // callee; args
  kFilter,       // input; args
  kTest          // input; args
};

enum class Op { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kNeg, kPos };

enum class Relation { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star, star_star;  // *list and **dict, or null
};

struct Expr {
  Expr(ExprKind what, int at_line) : kind(what), line(at_line) {}
  ExprKind kind;
  int line;
  size_t depth = 1;  // of the tree below; the parser limits it
  std::vector<ExprPtr> parts;
  Op op = Op::kAdd;
  std::vector<Relation> relations;
  int id = 0;
  Value value;
  std::string name;                  // of an attribute, filter or test
  const Builtin* builtin = nullptr;  // null: an unknown filter or test, an error only when it runs, as in jinja2's `if`
  std::unique_ptr<const CallArgs> args;  // null for a filter or test without parentheses or operand
};

// ---- Statements

struct Stmt;
using StmtPtr = std::unique_ptr<const Stmt>;

// Statements. If they have a scope, `hidden` lists the names that are undefined at its start (frames.h).
struct Block {
  std::vector<StmtPtr> statements;
  std::vector<int> hidden;
};

// The target of `for` and `set`: a name, an attribute of a namespace, or several targets.
struct Target {
  enum class Kind { kName, kAttr, kTuple } kind = Kind::kName;
  int id = 0;
  std::string attr;
  std::vector<Target> parts;
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

struct ForLoop {
  Target target;
  ExprPtr items, test;  // test may be null
  Block body, otherwise;
  Block filtering;  // the scope of the test, without statements
  bool recursive = false;
  bool has_loop = false;  // the body mentions `loop`
  int loop_id = 0;
};

struct Branch {
  ExprPtr test;  // null for `else`
  Block body;
};

struct Binding {
  Target target;
  ExprPtr value;
};

// Beside each kind: the members that it uses.
enum class StmtKind {
  kData,     // text: what stands between the tags
  kPrint,    // value
  kIf,       // branches
  kFor,      // loop
  kSet,      // bindings: one
  kCapture,  // a set block or filter block: body; value: the filters applied to it; bindings: one for a set block
  kMacro,    // macro, id
  kCall,     // macro: the block as a macro; value: the call
  kWith,     // bindings, body; {% generation %} has no bindings, and only makes a scope
  kBreak,
  kContinue
};

struct Stmt {
  Stmt(StmtKind what, int at_line) : kind(what), line(at_line) {}
  StmtKind kind;
  int line;
  std::string text;
  ExprPtr value;
  std::vector<Branch> branches;
  std::vector<Binding> bindings;
  Block body;
  std::unique_ptr<ForLoop> loop;
  std::unique_ptr<MacroBody> macro;
  int id = 0;
};

struct Program {
  std::vector<std::string> names;            // by number
  std::unordered_map<std::string, int> ids;  // the number of each name
  Block body;
};

// Throws Error for a syntax error, an unknown tag, filter or test, or nesting over the limit.
Program parse_program(const std::vector<Token>& tokens, size_t max_depth);

}  // namespace ingot::jinja

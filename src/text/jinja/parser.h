// Recursive descent over the tokens of a template, with jinja2's grammar. Statements are in jinja/parser.cc,
// expressions in jinja/parser_expr.cc. Nesting is limited both in the recursion here and in the depth of the resulting
// tree.
#pragma once
#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/frames.h"
#include "text/jinja/lexer.h"

namespace ingot::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, size_t max_depth) : tokens_(std::move(tokens)), max_depth_(max_depth) {}
  Program parse();

 private:
  // Counts a level of recursion during its lifetime.
  struct Nested {
    explicit Nested(Parser& parser);
    ~Nested() { --parser.depth_; }
    Parser& parser;
  };

  // Makes the frame of a scope current during its lifetime.
  struct Inside {
    Inside(Parser& p, Block& block) : parser(p), old(p.frame_) {
      p.frame_ = &p.frames_.emplace_back(old, &block.hidden);
    }
    ~Inside() { parser.frame_ = old; }
    Parser& parser;
    Frame* old;
  };

  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_op(std::string_view text) const { return is(TokenKind::kOperator) && now().text == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && now().text == text; }
  bool skip_op(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_op(std::string_view text);
  void expect_name(std::string_view text);
  void expect(TokenKind kind, const char* what);
  std::string any_name(const char* what);
  [[noreturn]] void fail(const std::string& what) const { fail_at(now(), what); }
  [[noreturn]] static void fail_at(const Token& token, const std::string& what);
  int id_of(std::string_view name);

  // Statements.
  using Ends = std::vector<std::string_view>;
  void block(Block& out, const Ends& ends);  // up to a tag in `ends`; that tag's name is then the current token
  void body(Block& out, const Ends& ends);   // the rest of an opening tag, then a block
  void refuse_unknown() const;
  void end_tag();  // parses the name of an end tag and nothing else
  std::unique_ptr<const Stmt> statement();
  std::unique_ptr<const Stmt> if_statement(int line);
  std::unique_ptr<const Stmt> for_statement(int line);
  std::unique_ptr<const Stmt> set_statement(int line);
  std::unique_ptr<const Stmt> macro_statement(int line);
  std::unique_ptr<const Stmt> call_statement(int line);
  std::unique_ptr<const Stmt> filter_statement(int line);
  std::unique_ptr<const Stmt> with_statement(int line);
  std::unique_ptr<const Stmt> generation_statement(int line);
  std::unique_ptr<const Stmt> loop_control(int line, Flow flow);
  void signature(MacroBody& macro);
  void macro_body(MacroBody& macro, const Ends& ends);
  Target target(bool with_attr, std::string_view end_name);
  Target target_part(bool with_attr);
  void store(const Target& target, bool as_param);  // records the store in the frame

  // Expressions, from the loosest to the tightest level.
  ExprPtr tuple(bool with_condition = true, std::string_view end_name = {}, bool in_parentheses = false);
  bool tuple_ends(std::string_view end_name) const;
  ExprPtr expression(bool with_condition = true);
  ExprPtr conditional();
  ExprPtr logic(bool is_or);
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr number();
  ExprPtr strings();
  ExprPtr list_literal();
  ExprPtr dict_literal();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr slice_or_item(ExprPtr object, int line);
  ExprPtr call(ExprPtr callee);
  CallArgs call_args(Expr& node);
  ExprPtr filter(ExprPtr input);
  ExprPtr test(ExprPtr input);

  // Adds `child` to `node`, and updates the depth of `node`.
  ExprPtr under(Expr& node, ExprPtr child);
  ExprPtr binary(int line, Op op, ExprPtr left, ExprPtr right);
  std::string dotted_name(const char* what);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t max_depth_, depth_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int> ids_;
  std::unordered_map<std::string_view, size_t> special_uses_ = {
      {"loop", 0}, {"caller", 0}, {"varargs", 0}, {"kwargs", 0}};
  bool in_loop_ = false;        // break and continue are inside a loop
  bool lenient_ = false;        // inside `if`, an unknown filter is an error only when it runs
  std::vector<Token> unknown_;  // unknown filters and tests, until it is clear whether they are in an `if`
  std::vector<std::string> open_tags_;
  std::deque<Frame> frames_;  // the frames of all scopes
  Frame* frame_ = nullptr;    // the current frame
};

}  // namespace ingot::jinja

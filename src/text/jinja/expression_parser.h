// The parser of a template's expressions, with jinja2's grammar: one function for each level of precedence. Nesting is
// limited both in the recursion here and in the depth of the resulting tree. The parser of the statements (parser.cc)
// builds on this class.
#pragma once
#include <algorithm>
#include <deque>

#include "base/error.h"
#include "text/jinja/frames.h"
#include "text/jinja/runtime.h"
#include "text/jinja/syntax.h"
#include "text/jinja/text.h"

namespace ingot::jinja {

class ExpressionParser {
 protected:
  using Node = std::unique_ptr<Expr>;

  ExpressionParser(const std::vector<Token>& tokens, size_t max_depth) : tokens_(tokens), max_depth_(max_depth) {}

  // ---- Tokens

  const Token& now() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_op(std::string_view text) const { return is(TokenKind::kOperator) && now().text == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && now().text == text; }
  bool skip_if(bool found) {
    if (found) take();
    return found;
  }
  bool skip_op(std::string_view text) { return skip_if(is_op(text)); }
  bool skip_name(std::string_view text) { return skip_if(is_name(text)); }

  [[noreturn]] static void fail(const Token& token, const std::string& what) {
    jinja::fail(token.line, token.column, what);
  }
  [[noreturn]] void fail(const std::string& what) const { fail(now(), what); }
  const Token& expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail(fmt::format("expected {}", what));
    return take();
  }
  void expect_op(std::string_view text) {
    if (!skip_op(text)) fail(fmt::format("expected '{}'", text));
  }
  std::string any_name(std::string_view what) { return std::string(expect(TokenKind::kName, what).text); }

  int id_of(std::string_view name) {
    const auto [at, is_new] = ids_.emplace(std::string(name), static_cast<int>(names_.size()));
    if (is_new) names_.emplace_back(name);
    return at->second;
  }

  // Each of these two lasts as long as the returned object: a level of recursion, and the frame of a scope.
  Hold<size_t> nested() {
    if (depth_ >= max_depth_) fail(fmt::format("it nests deeper than {}", max_depth_));
    return Hold(depth_, depth_ + 1);
  }
  Hold<Frame*> inside(Block& block) { return Hold(frame_, &frames_.emplace_back(frame_, &block.hidden)); }

  // ---- Nodes

  static Node make(ExprKind kind, int line) { return std::make_unique<Expr>(kind, line); }
  static Node constant(int line, Value value) {
    Node node = make(ExprKind::kConst, line);
    node->value = std::move(value);
    return node;
  }
  static std::optional<Value> constant_named(std::string_view name) {
    if (name == "true" || name == "True") return Value::boolean(true);
    if (name == "false" || name == "False") return Value::boolean(false);
    if (name == "none" || name == "None") return Value::none();
    return std::nullopt;
  }

  // Checks the depth that `node` gets from `child`.
  ExprPtr under(Expr& node, ExprPtr child) {
    if (child == nullptr) return child;
    node.depth = std::max(node.depth, child->depth + 1);
    if (node.depth > max_depth_) fail(fmt::format("an expression nests deeper than {}", max_depth_));
    return child;
  }
  void add(Expr& node, ExprPtr child) { node.parts.push_back(under(node, std::move(child))); }

  // ---- Levels, from the loosest to the tightest

  bool tuple_ends(std::string_view end_name) const {
    return is(TokenKind::kPrintEnd) || is(TokenKind::kBlockEnd) || is_op(")") ||
           (!end_name.empty() && is_name(end_name));
  }

  ExprPtr tuple(bool with_condition = true, std::string_view end_name = {}, bool in_parentheses = false) {
    Node node = make(ExprKind::kTuple, now().line);
    bool is_tuple = false;
    while (!tuple_ends(end_name)) {
      add(*node, with_condition ? expression() : logic(ExprKind::kOr));
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !node->parts.empty()) return std::move(node->parts[0]);
    if (!is_tuple && !in_parentheses) fail("expected an expression");
    return node;
  }

  ExprPtr expression() {
    const int line = now().line;
    const size_t n_unknown = unknown_.size();
    ExprPtr value = logic(ExprKind::kOr);
    while (skip_name("if")) {
      Node node = make(ExprKind::kConditional, line);
      add(*node, std::move(value));
      add(*node, logic(ExprKind::kOr));
      if (skip_name("else")) {
        const auto level = nested();
        add(*node, expression());
      }
      value = std::move(node);
      unknown_.resize(n_unknown);  // the parts of a condition may never run
    }
    return value;
  }

  ExprPtr logic(ExprKind kind) {
    auto operand = [&] { return kind == ExprKind::kOr ? logic(ExprKind::kAnd) : negation(); };
    const int line = now().line;
    ExprPtr left = operand();
    while (skip_name(kind == ExprKind::kOr ? "or" : "and")) {
      Node node = make(kind, line);
      add(*node, std::move(left));
      add(*node, operand());
      left = std::move(node);
    }
    return left;
  }

  ExprPtr negation() {
    if (!is_name("not")) return comparison();
    const auto level = nested();
    Node node = make(ExprKind::kNot, take().line);
    add(*node, negation());
    return node;
  }

  std::optional<Relation> relation() {
    static constexpr std::pair<std::string_view, Relation> kRelations[] = {
        {"==", Relation::kEq}, {"!=", Relation::kNe}, {"<", Relation::kLt},
        {"<=", Relation::kLe}, {">", Relation::kGt},  {">=", Relation::kGe}};
    for (const auto& [text, relation] : kRelations) {
      if (skip_op(text)) return relation;
    }
    if (skip_name("in")) return Relation::kIn;
    if (!is_name("not") || look().kind != TokenKind::kName || look().text != "in") return std::nullopt;
    take(), take();
    return Relation::kNotIn;
  }

  ExprPtr comparison() {
    const int line = now().line;
    ExprPtr first = arithmetic(kSums);
    Node node;
    while (const auto found = relation()) {
      if (node == nullptr) node = make(ExprKind::kCompare, line);
      node->relations.push_back(*found);
      add(*node, arithmetic(kSums));
    }
    if (node == nullptr) return first;
    node->parts.insert(node->parts.begin(), under(*node, std::move(first)));
    return node;
  }

  enum Level { kSums, kProducts, kPowers };

  // The operators of a level are left-associative, unlike Python even "**".
  ExprPtr arithmetic(Level level) {
    static constexpr struct {
      Level level;
      std::string_view text;
      Op op;
    } kOps[] = {{kSums, "+", Op::kAdd},     {kSums, "-", Op::kSub},           {kProducts, "*", Op::kMul},
                {kProducts, "/", Op::kDiv}, {kProducts, "//", Op::kFloorDiv}, {kProducts, "%", Op::kMod},
                {kPowers, "**", Op::kPow}};
    auto operand = [&] {
      return level == kSums ? concatenation() : level == kProducts ? arithmetic(kPowers) : unary();
    };
    const int line = now().line;
    ExprPtr left = operand();
    while (true) {
      const auto* found =
          std::find_if(std::begin(kOps), std::end(kOps), [&](auto& o) { return o.level == level && is_op(o.text); });
      if (found == std::end(kOps)) return left;
      take();
      Node node = make(ExprKind::kBinary, line);
      node->op = found->op;
      ExprPtr right = operand();
      add(*node, std::move(left));
      add(*node, std::move(right));
      left = std::move(node);
    }
  }

  ExprPtr concatenation() {
    const int line = now().line;
    ExprPtr first = arithmetic(kProducts);
    if (!is_op("~")) return first;
    Node node = make(ExprKind::kConcat, line);
    add(*node, std::move(first));
    while (skip_op("~")) add(*node, arithmetic(kProducts));
    return node;
  }

  ExprPtr unary(bool with_filter = true) {
    const auto level = nested();
    ExprPtr node;
    if (is_op("-") || is_op("+")) {
      const Token& sign = take();
      Node made = make(ExprKind::kUnary, sign.line);
      made->op = sign.text == "-" ? Op::kNeg : Op::kPos;
      add(*made, unary(false));
      node = std::move(made);
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
  }

  ExprPtr primary() {
    const Token& token = now();
    if (is(TokenKind::kString)) return strings();
    if (is(TokenKind::kInteger) || is(TokenKind::kFloat)) return number();
    if (is_op("[")) return list_literal();
    if (is_op("{")) return dict_literal();
    if (skip_op("(")) {
      ExprPtr inner = tuple(true, {}, true);
      expect_op(")");
      return inner;
    }
    if (is(TokenKind::kEnd)) fail("the template ends inside of an expression");
    if (!is(TokenKind::kName)) fail(fmt::format("unexpected '{}'", printable(token.text, 64)));
    take();
    if (auto value = constant_named(token.text)) return constant(token.line, std::move(*value));
    if (auto special = special_uses_.find(token.text); special != special_uses_.end()) ++special->second;
    Node node = make(ExprKind::kName, token.line);
    node->id = id_of(token.text);
    frame_->add(Frame::Event::kLoad, node->id);
    return node;
  }

  ExprPtr number() {
    const Token& token = take();
    std::string digits(token.text);
    std::erase(digits, '_');
    if (token.kind == TokenKind::kFloat) return constant(token.line, Value::real(*float_of_text(digits)));
    const bool decimal = digits.size() < 2 || (digits[1] >= '0' && digits[1] <= '9');
    return constant(token.line, Value::integer(*int_of_text(digits, decimal ? 10 : 0)));
  }

  ExprPtr strings() {  // adjacent strings are joined
    const int line = now().line;
    std::string text;
    while (is(TokenKind::kString)) text += unquote(take());
    return constant(line, Value::string(std::move(text)));
  }

  // Items with commas between them, and perhaps after the last one, up to the closing bracket.
  template <class ParseItem>
  void comma_separated(std::string_view close, const ParseItem& parse_item) {
    for (bool is_first = true; !is_op(close); is_first = false) {
      if (!is_first) {
        expect_op(",");
        if (is_op(close)) break;
      }
      parse_item();
    }
    take();
  }

  ExprPtr list_literal() {
    Node node = make(ExprKind::kList, take().line);
    comma_separated("]", [&] { add(*node, expression()); });
    return node;
  }

  ExprPtr dict_literal() {
    Node node = make(ExprKind::kDict, take().line);
    comma_separated("}", [&] {
      add(*node, expression());
      expect_op(":");
      add(*node, expression());
    });
    return node;
  }

  ExprPtr postfix(ExprPtr node) {
    while (true) {
      if (is_op(".") || is_op("[")) {
        node = subscript(std::move(node));
      } else if (is_op("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExprPtr filters_and_tests(ExprPtr node) {
    while (true) {
      if (skip_op("|")) {
        node = filter(std::move(node));
      } else if (skip_name("is")) {
        node = test(std::move(node));
      } else if (is_op("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExprPtr subscript(ExprPtr object) {
    const Token& token = take();
    if (token.text == "[") return slice_or_item(std::move(object), token.line);
    Node node = make(is(TokenKind::kInteger) ? ExprKind::kGetItem : ExprKind::kGetAttr, token.line);
    add(*node, std::move(object));
    if (node->kind == ExprKind::kGetItem) {
      add(*node, number());
    } else {
      node->name = any_name("a name or number after '.'");
    }
    return node;
  }

  ExprPtr slice_or_item(ExprPtr object, int line) {
    Node slice = make(ExprKind::kGetSlice, line), keys = make(ExprKind::kTuple, line);
    auto add_bound = [&] {
      const bool given = !is_op(":") && !is_op("]") && !is_op(",");
      add(*slice, given ? expression() : nullptr);
    };
    bool is_slice = false;
    while (!is_op("]")) {
      if (!keys->parts.empty() || is_slice) expect_op(",");
      if (is_slice) fail("a subscript takes one slice");
      ExprPtr first;
      if (!is_op(":")) first = under(*keys, expression());
      is_slice = skip_op(":");
      if (!is_slice) {
        keys->parts.push_back(std::move(first));
        continue;
      }
      if (!keys->parts.empty()) fail("a subscript takes one slice");
      add(*slice, std::move(first));
      add_bound();
      if (skip_op(":")) add_bound();
    }
    take();
    if (is_slice) {
      slice->parts.resize(3);
      slice->parts.insert(slice->parts.begin(), under(*slice, std::move(object)));
      return slice;
    }
    Node node = make(ExprKind::kGetItem, line);
    add(*node, std::move(object));
    add(*node, keys->parts.size() == 1 ? std::move(keys->parts[0]) : ExprPtr(std::move(keys)));
    return node;
  }

  ExprPtr call(ExprPtr callee) {
    Node node = make(ExprKind::kCall, now().line);
    add(*node, std::move(callee));
    node->args = call_args(*node);
    return node;
  }

  std::unique_ptr<const CallArgs> call_args(Expr& node) {
    auto made = std::make_unique<CallArgs>();
    CallArgs& args = *made;
    auto require = [&](bool good) {
      if (!good) fail("the arguments of a call are out of order");
    };
    expect_op("(");
    comma_separated(")", [&] {
      if (skip_op("*")) {
        require(args.star == nullptr && args.star_star == nullptr);
        args.star = under(node, expression());
      } else if (skip_op("**")) {
        require(args.star_star == nullptr);
        args.star_star = under(node, expression());
      } else if (is(TokenKind::kName) && look().kind == TokenKind::kOperator && look().text == "=") {
        require(args.star_star == nullptr);
        std::string name(take().text);
        take();
        auto same = [&](auto& keyword) { return keyword.first == name; };
        if (std::any_of(args.keyword.begin(), args.keyword.end(), same)) fail("a keyword argument is repeated");
        args.keyword.emplace_back(std::move(name), under(node, expression()));
      } else {
        require(args.star == nullptr && args.star_star == nullptr && args.keyword.empty());
        args.positional.push_back(under(node, expression()));
      }
    });
    return made;
  }

  // Parses the dotted name of a filter or test.
  Node named(ExprKind kind, ExprPtr input) {
    const bool is_filter = kind == ExprKind::kFilter;
    const std::string_view what = is_filter ? "the name of a filter" : "the name of a test";
    const Token& token = now();
    Node node = make(kind, token.line);
    add(*node, std::move(input));
    node->name = any_name(what);
    while (skip_op(".")) node->name += "." + any_name(what);
    node->builtin = is_filter ? find_filter(node->name) : find_test(node->name);
    if (node->builtin == nullptr && !lenient_) unknown_.push_back(&token);
    return node;
  }

  ExprPtr filter(ExprPtr input) {
    Node node = named(ExprKind::kFilter, std::move(input));
    if (is_op("(")) node->args = call_args(*node);
    return node;
  }

  ExprPtr test(ExprPtr input) {
    const bool negated = skip_name("not");
    Node node = named(ExprKind::kTest, std::move(input));
    const bool operand = is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) || is_op("[") ||
                         is_op("{") || (is(TokenKind::kName) && !is_name("else") && !is_name("or") && !is_name("and"));
    if (is_op("(")) {
      node->args = call_args(*node);
    } else if (operand) {
      if (is_name("is")) fail("tests cannot be chained with 'is'");
      auto args = std::make_unique<CallArgs>();
      args->positional.push_back(under(*node, postfix(primary())));
      node->args = std::move(args);
    }
    if (!negated) return node;
    Node inverse = make(ExprKind::kNot, node->line);
    add(*inverse, std::move(node));
    return inverse;
  }

  const std::vector<Token>& tokens_;
  size_t at_ = 0;
  size_t max_depth_, depth_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int> ids_;
  std::unordered_map<std::string_view, size_t> special_uses_ = {
      {"loop", 0}, {"caller", 0}, {"varargs", 0}, {"kwargs", 0}};
  bool lenient_ = false;               // inside `if`, an unknown filter is an error only when it runs
  std::vector<const Token*> unknown_;  // unknown filters and tests, until it is clear whether they are in an `if`
  std::deque<Frame> frames_;           // the frames of all scopes
  Frame* frame_ = nullptr;             // the current frame
};

}  // namespace ingot::jinja

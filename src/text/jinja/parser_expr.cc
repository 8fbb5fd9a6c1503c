// The parser's functions for expressions. Each function parses one level of jinja2's precedence.
#include <algorithm>

#include "base/error.h"
#include "text/jinja/builtin.h"
#include "text/jinja/numbers.h"
#include "text/jinja/parser.h"

namespace ingot::jinja {
namespace {

template <class T>
ExprPtr done(std::unique_ptr<T> node) {
  return ExprPtr(std::move(node));
}

}  // namespace

ExprPtr Parser::under(Expr& node, ExprPtr child) {
  if (child != nullptr) {
    node.depth = std::max(node.depth, child->depth + 1);
    if (node.depth > max_depth_) fail(fmt::format("an expression nests deeper than {}", max_depth_));
  }
  return child;
}

ExprPtr Parser::binary(int line, Op op, ExprPtr left, ExprPtr right) {
  auto node = std::make_unique<Binary>(line, op, nullptr, nullptr);
  node->left = under(*node, std::move(left));
  node->right = under(*node, std::move(right));
  return node;
}

bool Parser::tuple_ends(std::string_view end_name) const {
  return is(TokenKind::kPrintEnd) || is(TokenKind::kBlockEnd) || is_op(")") || (!end_name.empty() && is_name(end_name));
}

ExprPtr Parser::tuple(bool with_condition, std::string_view end_name, bool in_parentheses) {
  auto node = std::make_unique<Items>(now().line);
  node->tuple = true;
  bool is_tuple = false;
  while (!tuple_ends(end_name)) {
    node->items.push_back(under(*node, expression(with_condition)));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node->items.empty()) return std::move(node->items[0]);
  if (!is_tuple && !in_parentheses) fail("expected an expression");
  return node;
}

ExprPtr Parser::expression(bool with_condition) { return with_condition ? conditional() : logic(true); }

ExprPtr Parser::conditional() {
  const int line = now().line;
  const size_t n_unknown = unknown_.size();
  ExprPtr value = logic(true);
  while (skip_name("if")) {
    auto node = std::make_unique<Conditional>(line);
    node->then = under(*node, std::move(value));
    node->test = under(*node, logic(true));
    if (skip_name("else")) {
      Nested nested(*this);
      node->otherwise = under(*node, conditional());
    }
    value = done(std::move(node));
    unknown_.resize(n_unknown);  // the parts of a condition may never run
  }
  return value;
}

ExprPtr Parser::logic(bool is_or) {
  const int line = now().line;
  ExprPtr left = is_or ? logic(false) : negation();
  while (skip_name(is_or ? "or" : "and")) {
    auto node = std::make_unique<Logic>(line, is_or, nullptr, nullptr);
    node->left = under(*node, std::move(left));
    node->right = under(*node, is_or ? logic(false) : negation());
    left = done(std::move(node));
  }
  return left;
}

ExprPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  Nested nested(*this);
  auto node = std::make_unique<Not>(take().line, nullptr);
  node->operand = under(*node, negation());
  return node;
}

ExprPtr Parser::comparison() {
  static constexpr std::pair<std::string_view, Relation> kRelations[] = {{"==", Relation::kEq}, {"!=", Relation::kNe},
                                                                         {"<", Relation::kLt},  {"<=", Relation::kLe},
                                                                         {">", Relation::kGt},  {">=", Relation::kGe}};
  auto node = std::make_unique<Compare>(now().line);
  ExprPtr first = sum();
  while (true) {
    const auto* found =
        std::find_if(std::begin(kRelations), std::end(kRelations), [&](auto& r) { return is_op(r.first); });
    Relation relation = Relation::kIn;
    if (found != std::end(kRelations)) {
      take();
      relation = found->second;
    } else if (is_name("not") && look().kind == TokenKind::kName && look().text == "in") {
      take(), take();
      relation = Relation::kNotIn;
    } else if (!skip_name("in")) {
      break;
    }
    node->rest.emplace_back(relation, under(*node, sum()));
  }
  if (node->rest.empty()) return first;
  node->first = under(*node, std::move(first));
  return node;
}

ExprPtr Parser::sum() {
  const int line = now().line;
  ExprPtr left = concatenation();
  while (is_op("+") || is_op("-")) {
    const Op op = take().text == "+" ? Op::kAdd : Op::kSub;
    left = binary(line, op, std::move(left), concatenation());
  }
  return left;
}

ExprPtr Parser::concatenation() {
  auto node = std::make_unique<Concat>(now().line);
  ExprPtr first = product();
  if (!is_op("~")) return first;
  node->parts.push_back(under(*node, std::move(first)));
  while (skip_op("~")) node->parts.push_back(under(*node, product()));
  return node;
}

ExprPtr Parser::product() {
  const int line = now().line;
  ExprPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const std::string_view text = take().text;
    const Op op = text == "*" ? Op::kMul : text == "/" ? Op::kDiv : text == "//" ? Op::kFloorDiv : Op::kMod;
    left = binary(line, op, std::move(left), power());
  }
  return left;
}

ExprPtr Parser::power() {  // left-associative, unlike in Python
  const int line = now().line;
  ExprPtr left = unary();
  while (skip_op("**")) left = binary(line, Op::kPow, std::move(left), unary());
  return left;
}

ExprPtr Parser::unary(bool with_filter) {
  Nested nested(*this);
  ExprPtr node;
  if (is_op("-") || is_op("+")) {
    const Token sign = take();
    auto made = std::make_unique<Unary>(sign.line, sign.text == "-" ? Op::kNeg : Op::kPos, nullptr);
    made->operand = under(*made, unary(false));
    node = done(std::move(made));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::primary() {
  const Token token = now();
  switch (token.kind) {
    case TokenKind::kString: return strings();
    case TokenKind::kInteger:
    case TokenKind::kFloat: return number();
    case TokenKind::kName: break;
    default:
      if (is_op("[")) return list_literal();
      if (is_op("{")) return dict_literal();
      if (skip_op("(")) {
        ExprPtr inner = tuple(true, {}, true);
        expect_op(")");
        return inner;
      }
      fail(is(TokenKind::kEnd) ? "the template ends inside of an expression"
                               : fmt::format("unexpected '{}'", printable(token.text, 64)));
  }
  take();
  const std::string_view name = token.text;
  auto constant = [&](Value value) { return std::make_unique<Const>(token.line, std::move(value)); };
  if (name == "true" || name == "True") return constant(Value::boolean(true));
  if (name == "false" || name == "False") return constant(Value::boolean(false));
  if (name == "none" || name == "None") return constant(Value::none());
  if (auto special = special_uses_.find(name); special != special_uses_.end()) ++special->second;
  frame_->load(id_of(name));
  return std::make_unique<Name>(token.line, id_of(name));
}

ExprPtr Parser::number() {
  const Token token = take();
  std::string digits;
  for (char c : token.text) {
    if (c != '_') digits += c;
  }
  if (token.kind == TokenKind::kFloat) {
    return std::make_unique<Const>(token.line, Value::real(*float_of_text(digits)));
  }
  const bool decimal = digits.size() < 2 || (digits[1] >= '0' && digits[1] <= '9');
  return std::make_unique<Const>(token.line, Value::integer(*int_of_text(digits, decimal ? 10 : 0)));
}

ExprPtr Parser::strings() {  // adjacent strings are joined
  const int line = now().line;
  std::string text;
  while (is(TokenKind::kString)) text += unquote(take());
  return std::make_unique<Const>(line, Value::string(std::move(text)));
}

ExprPtr Parser::list_literal() {
  auto node = std::make_unique<Items>(take().line);
  while (!is_op("]")) {
    if (!node->items.empty()) {
      expect_op(",");
      if (is_op("]")) break;
    }
    node->items.push_back(under(*node, expression()));
  }
  take();
  return node;
}

ExprPtr Parser::dict_literal() {
  auto node = std::make_unique<DictLiteral>(take().line);
  while (!is_op("}")) {
    if (!node->entries.empty()) {
      expect_op(",");
      if (is_op("}")) break;
    }
    ExprPtr key = under(*node, expression());
    expect_op(":");
    node->entries.emplace_back(std::move(key), under(*node, expression()));
  }
  take();
  return node;
}

ExprPtr Parser::postfix(ExprPtr node) {
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

ExprPtr Parser::filters_and_tests(ExprPtr node) {
  while (true) {
    if (skip_op("|")) {
      node = filter(std::move(node));
    } else if (is_name("is")) {
      node = test(std::move(node));
    } else if (is_op("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr object) {
  const Token token = take();
  if (token.text == "[") return slice_or_item(std::move(object), token.line);
  if (is(TokenKind::kInteger)) {
    auto node = std::make_unique<GetItem>(token.line);
    node->object = under(*node, std::move(object));
    node->index = under(*node, number());
    return node;
  }
  auto node = std::make_unique<GetAttr>(token.line);
  node->object = under(*node, std::move(object));
  node->name = any_name("a name or number after '.'");
  return node;
}

ExprPtr Parser::slice_or_item(ExprPtr object, int line) {
  std::vector<ExprPtr> items;
  auto slice = std::make_unique<GetSlice>(line);
  bool is_slice = false;
  auto part = [&](ExprPtr& slot) {
    if (!is_op(":") && !is_op("]") && !is_op(",")) slot = under(*slice, expression());
  };
  auto keys = std::make_unique<Items>(line);
  keys->tuple = true;
  while (!is_op("]")) {
    if (!keys->items.empty() || is_slice) expect_op(",");
    if (is_slice) fail("a subscript takes one slice");
    ExprPtr first;
    if (!is_op(":")) first = under(*keys, expression());
    is_slice = skip_op(":");
    if (!is_slice) {
      keys->items.push_back(std::move(first));
      continue;
    }
    if (!keys->items.empty()) fail("a subscript takes one slice");
    slice->start = under(*slice, std::move(first));
    part(slice->stop);
    if (skip_op(":")) part(slice->step);
  }
  take();
  if (is_slice) {
    slice->object = under(*slice, std::move(object));
    return slice;
  }
  auto node = std::make_unique<GetItem>(line);
  node->object = under(*node, std::move(object));
  node->index = under(*node, keys->items.size() == 1 ? std::move(keys->items[0]) : done(std::move(keys)));
  return node;
}

ExprPtr Parser::call(ExprPtr callee) {
  auto node = std::make_unique<Call>(now().line);
  node->callee = under(*node, std::move(callee));
  node->args = call_args(*node);
  return node;
}

CallArgs Parser::call_args(Expr& node) {
  CallArgs args;
  auto require = [&](bool good) {
    if (!good) fail("the arguments of a call are out of order");
  };
  bool first = true;
  expect_op("(");
  while (!is_op(")")) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
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
  }
  take();
  return args;
}

std::string Parser::dotted_name(const char* what) {
  std::string name = any_name(what);
  while (skip_op(".")) name += "." + any_name(what);
  return name;
}

ExprPtr Parser::filter(ExprPtr input) {
  const Token token = now();
  auto node = std::make_unique<Filter>(token.line);
  node->input = under(*node, std::move(input));
  node->name = dotted_name("the name of a filter");
  node->filter = find_filter(node->name);
  if (node->filter == nullptr && !lenient_) unknown_.push_back(token);
  if (is_op("(")) node->args = call_args(*node);
  return node;
}

ExprPtr Parser::test(ExprPtr input) {
  take();
  const bool negated = skip_name("not");
  const Token token = now();
  auto node = std::make_unique<Test>(token.line);
  node->input = under(*node, std::move(input));
  node->name = dotted_name("the name of a test");
  node->test = find_test(node->name);
  if (node->test == nullptr && !lenient_) unknown_.push_back(token);
  const bool operand = is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) || is_op("[") ||
                       is_op("{") || (is(TokenKind::kName) && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_op("(")) {
    node->args = call_args(*node);
  } else if (operand) {
    if (is_name("is")) fail("tests cannot be chained with 'is'");
    node->args.positional.push_back(under(*node, postfix(primary())));
  }
  if (!negated) return node;
  auto inverse = std::make_unique<Not>(token.line, nullptr);
  inverse->operand = under(*inverse, done(std::move(node)));
  return inverse;
}

}  // namespace ingot::jinja

#include "text/jinja/parser.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::jinja {
namespace {

// Sets a value during its lifetime, and then restores the old value.
template <class T>
class Hold {
 public:
  Hold(T& slot, T value) : slot_(slot), old_(slot) { slot = value; }
  ~Hold() { slot_ = old_; }

 private:
  T& slot_;
  T old_;
};

std::string joined(const std::vector<std::string_view>& names) {
  std::string out;
  for (std::string_view name : names) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", name);
  return out;
}

}  // namespace

Program Parser::parse() {
  Program program;
  Inside inside(*this, program.body);
  block(program.body, {});
  resolve_frames(frames_);
  program.names = std::move(names_);
  program.ids = std::move(ids_);
  return program;
}

Parser::Nested::Nested(Parser& p) : parser(p) {
  if (parser.depth_ >= parser.max_depth_) parser.fail(fmt::format("it nests deeper than {}", parser.max_depth_));
  ++parser.depth_;
}

void Parser::fail_at(const Token& token, const std::string& what) {
  throw Error("template {}: {}", position(token.line, token.column), what);
}

bool Parser::skip_op(std::string_view text) {
  if (!is_op(text)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view text) {
  if (!skip_op(text)) fail(fmt::format("expected '{}'", text));
}

void Parser::expect_name(std::string_view text) {
  if (!skip_name(text)) fail(fmt::format("expected '{}'", text));
}

void Parser::expect(TokenKind kind, const char* what) {
  if (!is(kind)) fail(fmt::format("expected {}", what));
  take();
}

std::string Parser::any_name(const char* what) {
  if (!is(TokenKind::kName)) fail(fmt::format("expected {}", what));
  return std::string(take().text);
}

int Parser::id_of(std::string_view name) {
  const auto [at, is_new] = ids_.emplace(std::string(name), static_cast<int>(names_.size()));
  if (is_new) names_.emplace_back(name);
  return at->second;
}

void Parser::block(Block& out, const Ends& ends) {
  Nested nested(*this);
  while (!is(TokenKind::kEnd)) {
    const int line = now().line;
    if (is(TokenKind::kData)) {
      auto data = std::make_unique<Data>(line);
      data->text = take().text;
      out.statements.push_back(std::move(data));
    } else if (is(TokenKind::kPrintBegin)) {
      take();
      auto print = std::make_unique<Print>(line);
      print->value = tuple();
      expect(TokenKind::kPrintEnd, "'}}'");
      refuse_unknown();
      out.statements.push_back(std::move(print));
    } else {
      expect(TokenKind::kBlockBegin, "a tag");
      if (is(TokenKind::kName) && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return;
      out.statements.push_back(statement());
      expect(TokenKind::kBlockEnd, "'%}'");
      refuse_unknown();
    }
  }
  if (!ends.empty()) {
    fail(fmt::format("the template ends inside of '{}', before {}", printable(open_tags_.back(), 64), joined(ends)));
  }
}

void Parser::refuse_unknown() const {
  if (!unknown_.empty())
    fail_at(unknown_[0], fmt::format("no filter or test named '{}'", printable(unknown_[0].text, 64)));
}

void Parser::body(Block& out, const Ends& ends) {
  skip_op(":");
  expect(TokenKind::kBlockEnd, "'%}'");
  refuse_unknown();
  block(out, ends);
}

void Parser::end_tag() { take(); }

std::unique_ptr<const Stmt> Parser::statement() {
  if (!is(TokenKind::kName)) fail("expected the name of a tag");
  const Token tag = take();
  const std::string_view name = tag.text;
  open_tags_.emplace_back(name);
  std::unique_ptr<const Stmt> made;
  if (name == "if")
    made = if_statement(tag.line);
  else if (name == "for")
    made = for_statement(tag.line);
  else if (name == "set")
    made = set_statement(tag.line);
  else if (name == "macro")
    made = macro_statement(tag.line);
  else if (name == "call")
    made = call_statement(tag.line);
  else if (name == "filter")
    made = filter_statement(tag.line);
  else if (name == "with")
    made = with_statement(tag.line);
  else if (name == "generation")
    made = generation_statement(tag.line);
  else if (name == "break")
    made = loop_control(tag.line, Flow::kBreak);
  else if (name == "continue")
    made = loop_control(tag.line, Flow::kContinue);
  else
    fail_at(tag, fmt::format("unknown or misplaced tag '{}'", printable(name, 64)));
  open_tags_.pop_back();
  return made;
}

std::unique_ptr<const Stmt> Parser::if_statement(int line) {
  using Event = Frame::Event;
  Hold lenient(lenient_, true);
  auto node = std::make_unique<If>(line);
  auto branch = [&] {
    ExprPtr test = tuple(false);
    frame_->branch(Event::kIf);
    Block& block = node->branches.emplace_back(std::move(test), Block()).second;
    body(block, {"elif", "else", "endif"});
  };
  branch();
  frame_->branch(Event::kNextBranch);
  while (skip_name("elif")) {  // in jinja2, each elif is an `if` in the else branch of the previous `if`
    branch();
    frame_->branch(Event::kEndIf);
  }
  frame_->branch(Event::kNextBranch);
  if (skip_name("else")) body(node->otherwise, {"endif"});
  frame_->branch(Event::kEndIf);
  end_tag();
  return node;
}

std::unique_ptr<const Stmt> Parser::for_statement(int line) {
  auto node = std::make_unique<For>(line);
  node->target = target(false, "in");
  expect_name("in");
  node->items = tuple(false, "recursive");
  Hold strict(lenient_, false);
  if (skip_name("if")) {
    Inside inside(*this, node->filtering);
    store(node->target, true);
    node->test = expression();
  }
  node->recursive = skip_name("recursive");
  node->loop_id = id_of("loop");
  const size_t loop_uses = special_uses_["loop"];
  {
    Inside inside(*this, node->body);
    Hold in_loop(in_loop_, true);
    frame_->param(node->loop_id);
    store(node->target, true);
    body(node->body, {"endfor", "else"});
  }
  node->has_loop = node->recursive || special_uses_["loop"] > loop_uses;
  if (skip_name("else")) {
    Inside inside(*this, node->otherwise);
    body(node->otherwise, {"endfor"});
  }
  end_tag();
  return node;
}

std::unique_ptr<const Stmt> Parser::set_statement(int line) {
  Target to = target(true, {});
  if (skip_op("=")) {
    auto node = std::make_unique<Set>(line);
    node->target = std::move(to);
    node->value = tuple();
    store(node->target, false);
    return node;
  }
  auto node = std::make_unique<SetBlock>(line);
  node->target = std::move(to);
  store(node->target, false);
  Inside inside(*this, node->body);
  Hold strict(lenient_, false);
  node->value = std::make_unique<Captured>(line);
  while (skip_op("|")) node->value = filter(std::move(node->value));
  body(node->body, {"endset"});
  end_tag();
  return node;
}

void Parser::signature(MacroBody& macro) {
  expect_op("(");
  while (!is_op(")")) {
    if (!macro.params.empty()) expect_op(",");
    const std::string name = any_name("the name of a parameter");
    MacroParam param{id_of(name), name, nullptr};
    frame_->param(param.id);
    if (skip_op("=")) {
      param.fallback = expression();
    } else if (!macro.params.empty() && macro.params.back().fallback != nullptr) {
      fail("a parameter without a default follows one with a default");
    }
    macro.params.push_back(std::move(param));
  }
  expect_op(")");
}

// Parses the body and the end tag; the frame and the parameters are already set.
void Parser::macro_body(MacroBody& macro, const Ends& ends) {
  Hold strict(lenient_, false);
  Hold no_loop(in_loop_, false);
  const auto before = special_uses_;
  body(macro.body, ends);
  end_tag();
  for (auto [name, slot] :
       {std::pair{"caller", &macro.caller_id}, {"varargs", &macro.varargs_id}, {"kwargs", &macro.kwargs_id}}) {
    const bool is_param =
        std::any_of(macro.params.begin(), macro.params.end(), [n = name](auto& p) { return p.name == n; });
    if (!is_param && special_uses_[name] > before.at(name)) *slot = id_of(name);
  }
}

std::unique_ptr<const Stmt> Parser::macro_statement(int line) {
  auto node = std::make_unique<MacroDef>(line);
  node->macro.name = any_name("the name of the macro");
  node->id = id_of(node->macro.name);
  frame_->store(node->id);
  Inside inside(*this, node->macro.body);
  signature(node->macro);
  macro_body(node->macro, {"endmacro"});
  return node;
}

std::unique_ptr<const Stmt> Parser::call_statement(int line) {
  auto node = std::make_unique<CallBlock>(line);
  node->caller.name = "caller";
  Frame& outer = *frame_;
  Inside inside(*this, node->caller.body);
  if (is_op("(")) signature(node->caller);
  const Token start = now();
  ExprPtr called;
  {
    Hold here(frame_, &outer);  // the call belongs to the surrounding block
    called = expression();
  }
  if (dynamic_cast<const Call*>(called.get()) == nullptr) fail_at(start, "a call block needs the call of a macro");
  node->call.reset(static_cast<const Call*>(called.release()));
  macro_body(node->caller, {"endcall"});
  return node;
}

std::unique_ptr<const Stmt> Parser::filter_statement(int line) {
  auto node = std::make_unique<FilterBlock>(line);
  Hold strict(lenient_, false);
  node->value = filter(std::make_unique<Captured>(line));
  while (skip_op("|")) node->value = filter(std::move(node->value));
  Inside inside(*this, node->body);
  body(node->body, {"endfilter"});
  end_tag();
  return node;
}

std::unique_ptr<const Stmt> Parser::with_statement(int line) {
  auto node = std::make_unique<With>(line);
  while (!is(TokenKind::kBlockEnd)) {
    if (!node->values.empty()) expect_op(",");
    Target to = target(false, {});
    expect_op("=");
    node->values.emplace_back(std::move(to), expression());
  }
  Hold strict(lenient_, false);
  Inside inside(*this, node->body);
  for (const auto& [to, value] : node->values) store(to, true);
  body(node->body, {"endwith"});
  end_tag();
  return node;
}

// Hugging Face marks the assistant's text with this tag; for rendering it is only a scope.
std::unique_ptr<const Stmt> Parser::generation_statement(int line) {
  auto node = std::make_unique<With>(line);
  Hold strict(lenient_, false);
  Hold no_loop(in_loop_, false);
  Inside inside(*this, node->body);
  body(node->body, {"endgeneration"});
  end_tag();
  return node;
}

std::unique_ptr<const Stmt> Parser::loop_control(int line, Flow flow) {
  if (!in_loop_) fail("break and continue need a loop around them");
  return std::make_unique<LoopControl>(line, flow);
}

Target Parser::target(bool with_attr, std::string_view end_name) {
  Target out;
  out.line = now().line;
  bool is_tuple = false;
  while (!tuple_ends(end_name)) {
    out.parts.push_back(target_part(with_attr));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (out.parts.empty()) fail("expected a name to assign to");
  if (!is_tuple) {
    Target one = std::move(out.parts[0]);
    return one;
  }
  out.kind = Target::Kind::kTuple;
  return out;
}

void Parser::store(const Target& target, bool as_param) {
  for (const Target& part : target.parts) store(part, as_param);
  if (target.kind == Target::Kind::kAttr) frame_->load(target.id);
  if (target.kind == Target::Kind::kName) as_param ? frame_->param(target.id) : frame_->store(target.id);
}

Target Parser::target_part(bool with_attr) {
  Nested nested(*this);
  if (skip_op("(")) {
    Target inner = target(with_attr, {});
    expect_op(")");
    return inner;
  }
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  const Token token = now();
  Target out;
  out.line = token.line;
  const std::string name = any_name("a name to assign to");
  if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
    fail_at(token, fmt::format("cannot assign to '{}'", name));
  }
  out.id = id_of(name);
  if (with_attr && skip_op(".")) {
    out.kind = Target::Kind::kAttr;
    out.attr = any_name("the name of an attribute");
  }
  return out;
}

}  // namespace ingot::jinja

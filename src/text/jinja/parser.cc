// Recursive descent over the tokens of a template, with jinja2's grammar: the statements.
#include <algorithm>

#include "text/jinja/expression_parser.h"

namespace ingot::jinja {
namespace {

using Ends = std::vector<std::string_view>;
using Event = Frame::Event;
using Statement = std::unique_ptr<Stmt>;

std::string joined(const Ends& names) {
  std::string out;
  for (std::string_view name : names) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", name);
  return out;
}

Statement make_statement(StmtKind kind, int line) { return std::make_unique<Stmt>(kind, line); }

class Parser : ExpressionParser {
 public:
  Parser(const std::vector<Token>& tokens, size_t max_depth) : ExpressionParser(tokens, max_depth) {}

  Program run() {
    Program program;
    const auto scope = inside(program.body);
    block(program.body, {});
    resolve_frames(frames_);
    program.names = std::move(names_);
    program.ids = std::move(ids_);
    return program;
  }

 private:
  // Parses up to a tag in `ends`. That tag's name is then the current token.
  void block(Block& out, const Ends& ends) {
    const auto level = nested();
    while (!is(TokenKind::kEnd)) {
      const int line = now().line;
      if (is(TokenKind::kData)) {
        Statement data = make_statement(StmtKind::kData, line);
        data->text = take().text;
        out.statements.push_back(std::move(data));
      } else if (is(TokenKind::kPrintBegin)) {
        take();
        Statement print = make_statement(StmtKind::kPrint, line);
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

  void refuse_unknown() const {
    if (unknown_.empty()) return;
    fail(*unknown_[0], fmt::format("no filter or test named '{}'", printable(unknown_[0]->text, 64)));
  }

  // Parses the end of an opening tag, then a block.
  void body(Block& out, const Ends& ends) {
    skip_op(":");
    expect(TokenKind::kBlockEnd, "'%}'");
    refuse_unknown();
    block(out, ends);
  }
  // The same for a block with only one end. Takes the name of the end tag.
  void last_body(Block& out, std::string_view end) {
    body(out, {end});
    take();
  }

  Statement statement() {
    static constexpr std::pair<std::string_view, Statement (Parser::*)(int)> kTags[] = {
        {"if", &Parser::if_statement},       {"for", &Parser::for_statement},
        {"set", &Parser::set_statement},     {"macro", &Parser::macro_statement},
        {"call", &Parser::call_statement},   {"filter", &Parser::filter_statement},
        {"with", &Parser::with_statement},   {"generation", &Parser::generation_statement},
        {"break", &Parser::break_statement}, {"continue", &Parser::continue_statement}};
    if (!is(TokenKind::kName)) fail("expected the name of a tag");
    const Token& tag = take();
    open_tags_.emplace_back(tag.text);
    const auto* found = std::find_if(std::begin(kTags), std::end(kTags), [&](auto& t) { return t.first == tag.text; });
    if (found == std::end(kTags)) fail(tag, fmt::format("unknown or misplaced tag '{}'", printable(tag.text, 64)));
    Statement made = (this->*found->second)(tag.line);
    open_tags_.pop_back();
    return made;
  }

  Statement if_statement(int line) {
    const Hold lenient(lenient_, true);
    Statement node = make_statement(StmtKind::kIf, line);
    auto branch = [&] {
      ExprPtr test = tuple(false);
      frame_->add(Event::kIf);
      node->branches.push_back({std::move(test), {}});
      body(node->branches.back().body, {"elif", "else", "endif"});
    };
    branch();
    frame_->add(Event::kNextBranch);
    while (skip_name("elif")) {  // in jinja2, each elif is an `if` in the else branch of the previous `if`
      branch();
      frame_->add(Event::kEndIf);
    }
    frame_->add(Event::kNextBranch);
    if (skip_name("else")) body(node->branches.emplace_back().body, {"endif"});
    frame_->add(Event::kEndIf);
    take();
    return node;
  }

  Statement for_statement(int line) {
    Statement node = make_statement(StmtKind::kFor, line);
    node->loop = std::make_unique<ForLoop>();
    ForLoop& loop = *node->loop;
    loop.target = target(false, "in");
    if (!skip_name("in")) fail("expected 'in'");
    loop.items = tuple(false, "recursive");
    const Hold strict(lenient_, false);
    if (skip_name("if")) {
      const auto scope = inside(loop.filtering);
      store(loop.target, Event::kParam);
      loop.test = expression();
    }
    loop.recursive = skip_name("recursive");
    loop.loop_id = id_of("loop");
    const size_t loop_uses = special_uses_["loop"];
    {
      const auto scope = inside(loop.body);
      const Hold in_loop(in_loop_, true);
      frame_->add(Event::kParam, loop.loop_id);
      store(loop.target, Event::kParam);
      body(loop.body, {"endfor", "else"});
    }
    loop.has_loop = loop.recursive || special_uses_["loop"] > loop_uses;
    if (skip_name("else")) {
      const auto scope = inside(loop.otherwise);
      body(loop.otherwise, {"endfor"});
    }
    take();
    return node;
  }

  Statement set_statement(int line) {
    Binding binding{target(true, {}), nullptr};
    if (skip_op("=")) {
      Statement node = make_statement(StmtKind::kSet, line);
      binding.value = tuple();
      store(binding.target, Event::kStore);
      node->bindings.push_back(std::move(binding));
      return node;
    }
    Statement node = make_statement(StmtKind::kCapture, line);
    store(binding.target, Event::kStore);
    node->bindings.push_back(std::move(binding));
    const auto scope = inside(node->body);
    const Hold strict(lenient_, false);
    node->value = make(ExprKind::kCaptured, line);
    while (skip_op("|")) node->value = filter(std::move(node->value));
    last_body(node->body, "endset");
    return node;
  }

  Statement filter_statement(int line) {
    Statement node = make_statement(StmtKind::kCapture, line);
    const Hold strict(lenient_, false);
    node->value = filter(make(ExprKind::kCaptured, line));
    while (skip_op("|")) node->value = filter(std::move(node->value));
    const auto scope = inside(node->body);
    last_body(node->body, "endfilter");
    return node;
  }

  void signature(MacroBody& macro) {
    expect_op("(");
    while (!is_op(")")) {
      if (!macro.params.empty()) expect_op(",");
      const std::string name = any_name("the name of a parameter");
      MacroParam param{id_of(name), name, nullptr};
      frame_->add(Event::kParam, param.id);
      if (skip_op("=")) {
        param.fallback = expression();
      } else if (!macro.params.empty() && macro.params.back().fallback != nullptr) {
        fail("a parameter without a default follows one with a default");
      }
      macro.params.push_back(std::move(param));
    }
    expect_op(")");
  }

  // Parses the body and the end tag. The frame and the parameters are already set.
  void macro_body(MacroBody& macro, std::string_view end) {
    const Hold strict(lenient_, false);
    const Hold no_loop(in_loop_, false);
    const auto before = special_uses_;
    last_body(macro.body, end);
    for (auto [name, slot] :
         {std::pair{"caller", &macro.caller_id}, {"varargs", &macro.varargs_id}, {"kwargs", &macro.kwargs_id}}) {
      const bool is_param =
          std::any_of(macro.params.begin(), macro.params.end(), [n = name](auto& p) { return p.name == n; });
      if (!is_param && special_uses_[name] > before.at(name)) *slot = id_of(name);
    }
  }

  Statement macro_statement(int line) {
    Statement node = make_statement(StmtKind::kMacro, line);
    node->macro = std::make_unique<MacroBody>();
    node->macro->name = any_name("the name of the macro");
    node->id = id_of(node->macro->name);
    frame_->add(Event::kStore, node->id);
    const auto scope = inside(node->macro->body);
    signature(*node->macro);
    macro_body(*node->macro, "endmacro");
    return node;
  }

  Statement call_statement(int line) {
    Statement node = make_statement(StmtKind::kCall, line);
    node->macro = std::make_unique<MacroBody>();
    node->macro->name = "caller";
    Frame* const outer = frame_;
    const auto scope = inside(node->macro->body);
    if (is_op("(")) signature(*node->macro);
    const Token& start = now();
    {
      const Hold here(frame_, outer);  // the call belongs to the surrounding block
      node->value = expression();
    }
    if (node->value->kind != ExprKind::kCall) fail(start, "a call block needs the call of a macro");
    macro_body(*node->macro, "endcall");
    return node;
  }

  Statement with_statement(int line) {
    Statement node = make_statement(StmtKind::kWith, line);
    while (!is(TokenKind::kBlockEnd)) {
      if (!node->bindings.empty()) expect_op(",");
      Target to = target(false, {});
      expect_op("=");
      node->bindings.push_back({std::move(to), expression()});
    }
    const Hold strict(lenient_, false);
    const auto scope = inside(node->body);
    for (const Binding& binding : node->bindings) store(binding.target, Event::kParam);
    last_body(node->body, "endwith");
    return node;
  }

  // Hugging Face marks the assistant's text with this tag; for rendering it is only a scope.
  Statement generation_statement(int line) {
    Statement node = make_statement(StmtKind::kWith, line);
    const Hold strict(lenient_, false);
    const Hold no_loop(in_loop_, false);
    const auto scope = inside(node->body);
    last_body(node->body, "endgeneration");
    return node;
  }

  Statement break_statement(int line) { return loop_control(StmtKind::kBreak, line); }
  Statement continue_statement(int line) { return loop_control(StmtKind::kContinue, line); }
  Statement loop_control(StmtKind kind, int line) {
    if (!in_loop_) fail("break and continue need a loop around them");
    return make_statement(kind, line);
  }

  Target target(bool with_attr, std::string_view end_name) {
    Target out;
    bool is_tuple = false;
    while (!tuple_ends(end_name)) {
      out.parts.push_back(target_part(with_attr));
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (out.parts.empty()) fail("expected a name to assign to");
    if (!is_tuple) return Target(std::move(out.parts[0]));
    out.kind = Target::Kind::kTuple;
    return out;
  }

  Target target_part(bool with_attr) {
    const auto level = nested();
    if (skip_op("(")) {
      Target inner = target(with_attr, {});
      expect_op(")");
      return inner;
    }
    const Token& token = now();
    Target out;
    const std::string name = any_name("a name to assign to");
    if (constant_named(name)) fail(token, fmt::format("cannot assign to '{}'", name));
    out.id = id_of(name);
    if (with_attr && skip_op(".")) {
      out.kind = Target::Kind::kAttr;
      out.attr = any_name("the name of an attribute");
    }
    return out;
  }

  // Records in the frame that a statement stores to the target.
  void store(const Target& target, Event how) {
    for (const Target& part : target.parts) store(part, how);
    if (target.kind == Target::Kind::kAttr) frame_->add(Event::kLoad, target.id);
    if (target.kind == Target::Kind::kName) frame_->add(how, target.id);
  }

  bool in_loop_ = false;  // break and continue are inside a loop
  std::vector<std::string> open_tags_;
};

}  // namespace

Program parse_program(const std::vector<Token>& tokens, size_t max_depth) { return Parser(tokens, max_depth).run(); }

}  // namespace ingot::jinja

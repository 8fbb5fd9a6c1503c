#include "text/grammar/masks/model_grammars.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

constexpr size_t kMaxText = size_t{1} << 22;
constexpr uint32_t kDeepIndent = 240;

bool is_text(TokenType type) {
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kUnused;
}

}  // namespace

std::unique_ptr<Automaton> compile(const GrammarText& grammar, std::vector<std::string>* warnings) {
  const std::string& text = grammar.text;
  if (text.size() > kMaxText) throw Error("the grammar has {} bytes: at most {}", text.size(), kMaxText);
  if (grammar.kind == GrammarKind::kSchema) {
    MachineOptions options{.any_order = grammar.any_order};
    if (grammar.deep_indents) options.max_blanks = kDeepIndent;
    auto machine = compile_schema(text, {.is_lenient = grammar.is_lenient}, options);
    if (warnings) std::ranges::copy(machine->table().warnings, std::back_inserter(*warnings));
    return machine;
  }
  if (grammar.kind == GrammarKind::kRegex) return compile_regex(text);
  return text.find("::=") != std::string::npos ? compile_gbnf(text) : compile_lark(text);
}

std::string regex_of_choices(const std::vector<std::string>& choices) {
  constexpr std::string_view kSyntax = R"(^$\.*+?()[]{}|/)";
  std::string regex;
  for (const std::string& choice : choices) {
    regex += regex.empty() ? "(?:" : "|";
    for (char c : choice) {
      if (kSyntax.find(c) != std::string_view::npos) regex += '\\';
      regex += c;
    }
  }
  return regex + ")";
}

std::unique_ptr<GrammarVocabulary> make_grammar_vocabulary(const Tokenizer& tokenizer, int32_t n_tokens) {
  std::vector<std::string> bytes(static_cast<size_t>(n_tokens));
  for (int32_t id = 0; id < std::min(n_tokens, tokenizer.n_vocab()); ++id) {
    if (tokenizer.is_end(id)) continue;
    std::string& of_token = bytes[static_cast<size_t>(id)];
    if (is_text(tokenizer.type(id)))
      of_token = tokenizer.token_bytes(id);
    else if (tokenizer.type(id) == TokenType::kControl)
      of_token = kControlByte + std::string(tokenizer.token_text(id));
  }
  auto encode = [&tokenizer](std::string_view text) { return tokenizer.encode(text, {.add_special = false}); };
  return std::make_unique<GrammarVocabulary>(std::move(bytes), tokenizer.end_tokens(), std::move(encode));
}

ModelGrammars::ModelGrammars(const Tokenizer& tokenizer, int32_t n_tokens, size_t max_bytes)
    : tokenizer_(tokenizer), n_tokens_(n_tokens), max_bytes_(max_bytes) {}

std::shared_ptr<const GrammarVocabulary> ModelGrammars::vocabulary() {
  std::call_once(once_, [this] { vocabulary_ = make_grammar_vocabulary(tokenizer_, n_tokens_); });
  return vocabulary_;
}

std::shared_ptr<Constraint> ModelGrammars::get(const GrammarText& grammar, std::vector<std::string>* warnings) {
  const std::string key = fmt::format("{} {:d} {:d} {:d} {}", static_cast<int>(grammar.kind), grammar.any_order,
                                      grammar.is_lenient, grammar.deep_indents, grammar.text);
  return get(
      key, [&](std::vector<std::string>* new_warnings) { return compile(grammar, new_warnings); }, warnings);
}

std::shared_ptr<Constraint> ModelGrammars::get(const std::string& key, const Make& make,
                                               std::vector<std::string>* warnings) {
  const auto use = [&](const Entry& entry) {
    if (warnings) std::ranges::copy(entry.warnings, std::back_inserter(*warnings));
    return entry.constraint;
  };
  {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(key);
    if (found != places_.end() && found->second->constraint->is_worn()) {
      entries_.erase(found->second);
      places_.erase(found);
    } else if (found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return use(*found->second);
    }
  }
  std::vector<std::string> new_warnings;
  auto made = std::make_shared<Constraint>(make(&new_warnings), vocabulary());
  made->prepare();
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found != places_.end()) return use(*found->second);  // another thread has added the entry
  std::list<Entry> added;  // of one entry; nothing below can fail once the entry is in places_
  added.push_front({key, std::move(made), std::move(new_warnings)});
  places_.emplace(key, added.begin());
  entries_.splice(entries_.begin(), added);
  drop_old();
  return use(entries_.front());
}

// Call with the mutex held. Keeps the newest entry even if it is over the limit, because the caller is about to use it.
void ModelGrammars::drop_old() {
  size_t bytes = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += entry->constraint->n_bytes() + entry->key.size();
    if (bytes <= max_bytes_ || entry == entries_.begin()) {
      ++entry;
      continue;
    }
    places_.erase(entry->key);
    entry = entries_.erase(entry);
  }
}

size_t ModelGrammars::n_cached() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace ingot

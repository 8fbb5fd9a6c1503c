// ModelGrammars: the compiled grammars for the answers of one model. Recently used grammars stay cached, so a schema
// that every request repeats is compiled once.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/masks/constraint.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

enum class GrammarKind : uint8_t { kSchema, kRegex, kGrammar };

struct GrammarText {
  GrammarKind kind = GrammarKind::kSchema;
  std::string text;           // JSON Schema; ECMA 262; GBNF, or Lark if there is no ::=
  bool any_order = false;     // members of objects may have any order, not only the schema's
  bool is_lenient = false;    // a schema's keyword that cannot be enforced becomes a warning
  bool deep_indents = false;  // raises the limit on white space at the start of a JSON line
};

// Throws Error, which says what is wrong or cannot be enforced, and where. Adds a schema's warnings to `warnings`
// unless it is null.
std::unique_ptr<Automaton> compile(const GrammarText& grammar, std::vector<std::string>* warnings = nullptr);

// A regular expression that matches exactly these texts.
std::string regex_of_choices(const std::vector<std::string>& choices);

// n_tokens: the number of the model's tokens. The model may have more tokens than the tokenizer; the additional tokens
// have no text. The tokenizer must outlive the vocabulary.
std::unique_ptr<GrammarVocabulary> make_grammar_vocabulary(const Tokenizer& tokenizer, int32_t n_tokens);

class ModelGrammars {
 public:
  // max_bytes: limit of the cached grammars. The tokenizer must outlive this object.
  ModelGrammars(const Tokenizer& tokenizer, int32_t n_tokens, size_t max_bytes = size_t{256} << 20);

  // Any thread may call get(). Throws Error and adds warnings like compile().
  std::shared_ptr<Constraint> get(const GrammarText& grammar, std::vector<std::string>* warnings = nullptr);
  // The same for a machine made by `make`. Equal keys must mean equal machines.
  using Make = std::function<std::unique_ptr<Automaton>(std::vector<std::string>* warnings)>;
  std::shared_ptr<Constraint> get(const std::string& key, const Make& make,
                                  std::vector<std::string>* warnings = nullptr);
  size_t n_cached() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Constraint> constraint;
    std::vector<std::string> warnings;
  };
  std::shared_ptr<const GrammarVocabulary> vocabulary();
  void drop_old();

  const Tokenizer& tokenizer_;
  const int32_t n_tokens_;
  const size_t max_bytes_;
  std::once_flag once_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  mutable std::mutex mutex_;  // guards the members below
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

}  // namespace ingot

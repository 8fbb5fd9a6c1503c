// What requests of one model have their answers follow: texts of grammars, compiled over the model's tokens. What was
// used last is kept, so that a schema which comes with each request is compiled once.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/constraint.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

enum class GrammarKind : uint8_t { kSchema, kRegex, kGrammar };

struct GrammarText {
  GrammarKind kind = GrammarKind::kSchema;
  std::string text;           // JSON Schema; ECMA 262; GBNF, or Lark where there is no ::=
  bool any_order = false;     // members of objects: in any order, not in the schema's
  bool is_lenient = false;    // of a schema, what cannot be enforced becomes a warning
  bool deep_indents = false;  // JSON may have lines with much white space, which models are kept from
};

// Throws Error that says what is wrong or cannot be enforced, and where. warnings: those of a schema are added, where
// somebody wants them.
std::unique_ptr<Automaton> compile(const GrammarText& grammar, std::vector<std::string>* warnings = nullptr);

// A regular expression of which each of the texts is a match, and nothing else.
std::string regex_of_choices(const std::vector<std::string>& choices);

// n_tokens: of the model, which may have more than its tokenizer. These stand for no text. The tokenizer outlives the
// vocabulary.
std::unique_ptr<GrammarVocabulary> make_grammar_vocabulary(const Tokenizer& tokenizer, int32_t n_tokens);

class ModelGrammars {
 public:
  // max_bytes: of what is kept. tokenizer: outlives this.
  ModelGrammars(const Tokenizer& tokenizer, int32_t n_tokens, size_t max_bytes = size_t{256} << 20);

  // From any thread. Throws Error, and adds warnings, as compile() does.
  std::shared_ptr<Constraint> get(const GrammarText& grammar, std::vector<std::string>* warnings = nullptr);
  // The same for a machine that `make` makes. `key` says everything that the machine is made of.
  using Make = std::function<std::unique_ptr<Automaton>(std::vector<std::string>* warnings)>;
  std::shared_ptr<Constraint> get(const std::string& key, const Make& make, std::vector<std::string>* warnings = nullptr);
  size_t n_kept() const;

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
  mutable std::mutex mutex_;  // of what follows
  std::list<Entry> entries_;  // the one used last comes first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

}  // namespace ingot

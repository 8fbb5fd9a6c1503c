// AnswerModel: what the form of an answer depends on in a model: its chat template, the format of reasoning and calls,
// and the special tokens of this format. Compiles the constraint of an answer and places it in that form: after the
// reasoning, in the right channel, around the calls.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/answers/answer_form.h"
#include "text/chat.h"
#include "text/grammar/masks/constraint_start.h"
#include "text/grammar/masks/model_grammars.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// The grammar that the content of an answer must follow.
struct WantedGrammar {
  GrammarText text;
  std::string path;  // path of the field or flag that asks for the grammar, for messages
};

struct PlacedConstraint {
  std::shared_ptr<Constraint> constraint;  // null: the answer is free
  ConstraintStart start;
  std::vector<std::string> warnings;
};

class AnswerModel {
 public:
  struct Options {
    const CallFormat* format = nullptr;  // null: the format of the template
    size_t max_constraint_bytes = size_t{256} << 20;  // of cached constraints
    bool lenient_schemas = false;        // for the schemas of tools, as in GrammarText
  };
  // n_tokens: the number of the model's tokens. Tokenizer and template must outlive this object.
  AnswerModel(const Tokenizer& tokenizer, const ChatTemplate& chat, int32_t n_tokens, Options options);

  const CallFormat& format() const { return format_; }
  // The special tokens that the format reads, sorted. The decoded text of an answer must contain these tokens.
  std::span<const int32_t> marker_tokens() const { return marker_tokens_; }
  ModelGrammars& grammars() { return grammars_; }

  // Sets the form's format and the flags that depend on the end of the prompt.
  void begin(std::span<const int32_t> prompt, AnswerForm& form) const;
  // Whether the prompt ends with the begin of an assistant's turn, as chat prompts do.
  bool is_chat(std::span<const int32_t> prompt) const;

  // The constraint of an answer in the form that begin() prepared. Holds the content to `wanted`, and calls to the
  // schemas of forced or strict tools. Sets the form's constrains_calls. Throws Error, which begins with the place in
  // the request: the path of `wanted`, or "tools[3].function.parameters".
  PlacedConstraint constrain(AnswerForm& form, const std::optional<WantedGrammar>& wanted);
  // The constraint of a text without reasoning, channels and calls.
  PlacedConstraint constrain_text(const WantedGrammar& wanted);

 private:
  std::string end_of(std::span<const int32_t> prompt, size_t n_tokens) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const int32_t n_tokens_;
  const CallFormat& format_;
  const bool lenient_schemas_;
  const std::vector<int32_t> marker_tokens_;
  ModelGrammars grammars_;
};

}  // namespace ingot

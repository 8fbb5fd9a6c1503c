// Classifiers: what makes a cross-encoder of an encoder (or of a decoder): a few layers over a text's vector that give
// one number, how well a document answers a query. Read by Embedder, which scores with them.
#pragma once
#include <optional>
#include <string>

#include "model/embed_head.h"

namespace ingot {

// Is the model one that ranks texts, rather than embeds them?
bool has_classifier(const Checkpoint& checkpoint);

// Of models that are asked in words: what they read, with {query} and {document} in it.
std::optional<std::string> classifier_prompt(const Checkpoint& checkpoint);

// The model's padding: decoders with a score take the last token that is another, as transformers has it.
std::optional<int32_t> classifier_padding(const Checkpoint& checkpoint);

struct Classifier {
  EmbedHead head;              // one number of a vector
  std::string pooling;         // "cls", "mean" or "last": which vector
  bool raw = false;            // the number is the score; otherwise its sigmoid is, as sentence-transformers has it
  std::optional<int32_t> pad;  // classifier_padding(), where it matters
  std::optional<std::string> prompt;  // classifier_prompt(); nothing: it reads a pair (Tokenizer::encode_pair)
};

// Throws Error where there is none, or one that tells more than two classes apart.
Classifier read_classifier(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder);

}  // namespace ingot

// Classifiers: a few layers that turn the vector of a text into one number, how well a document answers a query. An
// encoder (or decoder) with a classifier is a cross-encoder. Embedder reads the classifier and computes the scores.
#pragma once
#include <optional>
#include <string>

#include "model/vectors/embed_head.h"

namespace ingot {

// True if the model ranks texts; false if it embeds texts.
bool has_classifier(const Checkpoint& checkpoint);

// The prompt of models that answer in words, with {query} and {document} in it; nothing for other models.
std::optional<std::string> classifier_prompt(const Checkpoint& checkpoint);

// The model's padding token. Decoders with a score use the vector of the last token that is not padding, as
// transformers does.
std::optional<int32_t> classifier_padding(const Checkpoint& checkpoint);

struct Classifier {
  EmbedHead head;                     // turns a vector into one number
  std::string pooling;                // "cls", "mean" or "last": which vector the head reads
  bool raw = false;                   // the number is the score; otherwise its sigmoid, as in sentence-transformers
  std::optional<int32_t> pad;         // classifier_padding(), for models that need it
  std::optional<std::string> prompt;  // classifier_prompt(); nothing: the model reads a pair (Tokenizer::encode_pair)
};

// Throws Error if the model has no classifier, or a classifier with more than two classes.
Classifier read_classifier(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder);

}  // namespace ingot

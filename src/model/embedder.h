// Embedder: texts to vectors. An encoder's tokens, or a decoder's last hidden states, become one vector a text
// (pooling), of length 1 if wanted; a cross-encoder's become one number, the score of a document for a query. What
// `ingot embed`, `ingot rerank` and the server's /v1/embeddings and /v1/rerank call.
//
// embed() and score() may be called from any thread; calls are served one after another. Everything else is constant
// after open().
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/classifier.h"
#include "model/encoder_config.h"
#include "model/weights.h"

namespace ingot {

struct EmbedOptions {
  BackendOptions backend;
  int n_ctx = 0;                // tokens of the longest text; 0: what the model reads, at most 8192
  int max_batch_tokens = 2048;  // of several texts; one that is longer is a batch of its own
  std::optional<std::string>
      // "cls", "mean", "last", "none" (a vector for each token) or "rank" (scores); nothing: as the checkpoint says
      pooling;
  bool normalize = true;
  bool check_tensors = false;
};

// What a checkpoint says of its embeddings, without loading it.
struct EmbedFacts {
  std::optional<std::string>
      pooling;  // as in EmbedOptions; of encoders that do not say, "mean"; of cross-encoders "rank"
  std::vector<std::pair<std::string, std::string>>
      prompts;                                // by name: what to put in front of a text (a query, a document)
  std::optional<std::string> default_prompt;  // one of these names
  bool pools_prompt = true;                   // false: the vectors of a prompt's tokens are left out of the text's
  std::optional<int> max_tokens;              // of a text, where the makers say less than the model reads
  bool may_cut = false;             // vectors keep their meaning when only their first numbers are taken (Matryoshka)
  std::vector<int> cut_dimensions;  // at these lengths; empty: any

  // What to put in front of a text that asks for the prompt of that name, or for none by name (empty): the default, or
  // nothing. Nothing at all: the model has no such prompt.
  std::optional<std::string> find_prompt(const std::string& name) const;
  std::string prompt_names() const;  // for messages: "query, document", or "none"
};
// Throws Error for a checkpoint that does what is not known here after pooling.
EmbedFacts read_embed_facts(const Checkpoint& checkpoint);

class Embedder {
 public:
  // Loads everything. Throws Error when the model is no encoder and says no pooling, and whatever is wrong with the
  // checkpoint.
  static std::unique_ptr<Embedder> open(std::shared_ptr<const Checkpoint> checkpoint, const EmbedOptions& options,
                                        const LoadProgress& progress);
  ~Embedder();

  // [n_texts, dim()]; of pooling "none" a row for each token of all texts. Throws Error for a text without tokens, with
  // more than max_tokens(), or with an id that is no token, naming which. n_before: prompt_tokens() of each; empty: 0.
  std::vector<float> embed(std::span<const std::vector<int32_t>> texts, std::span<const int> n_before = {});
  // Of a text that begins with this prompt: how many tokens the vector leaves out.
  int prompt_tokens(const std::string& prompt) const;

  // Of a cross-encoder (ranks()): how well each document answers the query, more being better; from 0 to 1 where the
  // model's makers do not want the bare number. A pair that is too long is cut if `truncate`, else an Error names the
  // document.
  struct Scores {
    std::vector<float> values;  // one a document
    size_t n_tokens = 0;        // that were read
  };
  Scores score(std::string_view query, std::span<const std::string> documents, bool truncate = false);
  // The same in two steps, for whoever scores pairs of several queries at once: the pair as the model reads it, cut if
  // `truncate`; then their scores. Throws Error for one without tokens, or with more than max_tokens(), naming which.
  struct Pair {
    std::vector<int32_t> tokens;
    int second = -1;  // where the document begins, for models that tell
  };
  Pair pair(std::string_view query, std::string_view document, bool truncate) const;
  std::vector<float> score(std::span<const Pair> pairs);
  bool ranks() const { return pooling_ == "rank"; }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const EmbedFacts& facts() const { return facts_; }
  const std::string& pooling() const { return pooling_; }
  const std::string& name() const { return name_; }  // print with printable()
  int dim() const { return dim_; }
  int n_vocab() const { return n_vocab_; }
  int max_tokens() const { return max_tokens_; }
  int max_batch_tokens() const { return max_batch_tokens_; }  // of several texts, computed together
  // The tokens of a text, cut to max_tokens() if need be: its end goes, but for the token that the model wants last.
  std::vector<int32_t> cut(std::vector<int32_t> tokens) const;

 private:
  struct Model;
  struct Step;

  Embedder() = default;
  void choose_pooling(const EmbedOptions& options);
  void load(const EmbedOptions& options, const LoadProgress& progress);
  PoolBlock pool_block();
  void check(std::span<const std::vector<int32_t>> texts) const;
  // A text's tokens, of a pair where the tokens of another type begin, and which tokens' vectors are pooled.
  struct Input {
    std::span<const int32_t> tokens;
    int second = -1;
    int first_pooled = 0, end_pooled = static_cast<int>(tokens.size());
  };
  std::vector<float> pool(std::span<const float> rows, std::span<const Input> inputs) const;
  std::vector<int32_t> prompt(std::string_view query, std::string_view document) const;
  std::vector<float> run_all(std::span<const Input> inputs);
  void run(std::span<const Input> inputs, std::vector<float>& out);

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::unique_ptr<WeightSource> source_;  // embeddings may still be read from its mapping
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Step> step_;  // the arrays of a batch
  EmbedFacts facts_;
  Classifier classifier_;  // of models that rank
  EmbedHead dense_;        // mostly empty
  std::string pooling_, name_;
  std::optional<Pooling> pools_here_;  // the vectors of some tokens only: on the host
  bool normalize_ = true;
  int dim_ = 0, n_vocab_ = 0, max_tokens_ = 0, max_batch_tokens_ = 0;
  std::mutex mutex_;
};

}  // namespace ingot

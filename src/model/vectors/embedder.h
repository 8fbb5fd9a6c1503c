// Embedder: turns texts into vectors. Pooling turns an encoder's tokens or a decoder's last hidden states into one
// vector for each text, normalized to length 1 on request. For a cross-encoder the result is one number: the score of a
// document for a query. Used by `ingot embed`, `ingot rerank` and the server's /v1/embeddings and /v1/rerank.
//
// embed() and score() may be called from any thread; calls run one after another. Everything else is constant after
// open().
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/blocks/pool.h"
#include "model/devices/parallel.h"
#include "model/files/checkpoint.h"
#include "model/files/weights.h"
#include "model/vectors/classifier.h"

namespace ingot {

struct EmbedOptions {
  BackendOptions backend;
  ParallelOptions parallel;     // only ranks in threads of this process
  int n_ctx = 0;                // tokens of the longest text; 0: as many as the model reads, at most 8192
  int max_batch_tokens = 2048;  // of one step; a longer text gets its own batch, or several in a causal model
  std::optional<std::string>
      // "cls", "mean", "last", "none" (a vector for each token) or "rank" (scores); nothing: as in the checkpoint
      pooling;
  bool normalize = true;
  bool check_tensors = false;
};

// A checkpoint's facts about its embeddings, read without loading the weights.
struct EmbedFacts {
  std::optional<std::string>
      pooling;  // as in EmbedOptions; "mean" for encoders that do not say; "rank" for cross-encoders
  std::vector<std::pair<std::string, std::string>>
      prompts;                                // name and text to put in front of an input (a query, a document)
  std::optional<std::string> default_prompt;  // the name of a prompt
  bool pools_prompt = true;                   // false: the vectors of the prompt's tokens are not pooled
  std::optional<int> max_tokens;              // of a text, if the makers state fewer than the model reads
  bool may_cut = false;                       // vectors keep their meaning when cut to their first numbers (Matryoshka)
  std::vector<int> cut_dimensions;            // the lengths that vectors may be cut to; empty: any length

  // The text to put in front of an input. An empty name means the default prompt, or "" if there is no default. Returns
  // nothing if the model has no prompt of that name.
  std::optional<std::string> find_prompt(const std::string& name) const;
  std::string prompt_names() const;  // for messages: "query, document", or "none"
};
// Throws Error if the checkpoint has steps after pooling that ingot does not support.
EmbedFacts read_embed_facts(const Checkpoint& checkpoint);

class Embedder {
 public:
  // Loads everything. Throws Error if the model is not an encoder and states no pooling, and for every fault of the
  // checkpoint.
  static std::unique_ptr<Embedder> open(std::shared_ptr<const Checkpoint> checkpoint, const EmbedOptions& options,
                                        const LoadProgress& progress);
  ~Embedder();

  // Returns [n_texts, dim()]; with pooling "none", a row for each token of all texts. Throws Error naming the text if a
  // text has no tokens, more than max_tokens(), or an id outside the vocabulary. n_before: prompt_tokens() of each
  // text; empty: 0.
  std::vector<float> embed(std::span<const std::vector<int32_t>> texts, std::span<const int> n_before = {});
  // For a text that begins with this prompt: the number of its first tokens that are not pooled.
  int prompt_tokens(const std::string& prompt) const;

  // For a cross-encoder (ranks()): scores how well each document answers the query; higher is better. Scores are
  // between 0 and 1, unless the checkpoint asks for the raw number. A pair that is too long is cut if `truncate` is
  // true; otherwise throws Error naming the document.
  struct Scores {
    std::vector<float> values;  // one for each document
    size_t n_tokens = 0;        // tokens that the model read
  };
  Scores score(std::string_view query, std::span<const std::string> documents, bool truncate = false);
  // The same in two steps, for callers that score pairs of several queries at once. pair() makes the model's input, cut
  // to `n_max` tokens; the tokens that the model adds are never cut. score() scores the pairs. Throws Error naming the
  // pair if a pair has no tokens or more than max_tokens().
  struct Pair {
    std::vector<int32_t> tokens;
    int second = -1;  // index of the document's first token, for models that mark the second text; otherwise -1
  };
  Pair pair(std::string_view query, std::string_view document, std::optional<int> n_max) const;
  std::vector<float> score(std::span<const Pair> pairs);
  bool ranks() const { return pooling_ == "rank"; }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const EmbedFacts& facts() const { return facts_; }
  const std::string& pooling() const { return pooling_; }
  const std::string& name() const { return name_; }  // print with printable()
  int dim() const { return dim_; }
  int n_vocab() const { return n_vocab_; }
  int max_tokens() const { return max_tokens_; }
  int max_batch_tokens() const { return max_batch_tokens_; }  // of the texts that are computed together
  // A number that changes while texts are computed, for a watchdog. Any thread may call this function at any time.
  uint64_t progress() const;
  // Keeps the first max_tokens() tokens, or the first `n_max`; a final token that the model requires is kept.
  std::vector<int32_t> cut(std::vector<int32_t> tokens, std::optional<int> n_max = std::nullopt) const;

 private:
  struct Model;
  struct Step;

  Embedder() = default;
  void choose_pooling(const EmbedOptions& options);
  void load(const EmbedOptions& options, const LoadProgress& progress);
  void add_ranks(const Config& config, std::unique_ptr<WeightSource> source, const EmbedOptions& options);
  // Calls f(model, rank) for all ranks at the same time. Throws the fault of the first rank that fails.
  void on_all_ranks(const std::function<void(Model& model, int rank)>& f);
  void choose_pool_block();
  void check(std::span<const std::vector<int32_t>> texts) const;
  // A text's tokens; for a pair, the start of the second text; and the range of tokens whose vectors are pooled.
  struct Input {
    std::span<const int32_t> tokens;
    int second = -1;
    int first_pooled = 0, end_pooled = static_cast<int>(tokens.size());
  };
  std::vector<float> pool(std::span<const float> rows, std::span<const Input> inputs) const;
  std::vector<int32_t> prompt(std::string_view query, std::string_view document) const;
  std::vector<float> run_all(std::span<const Input> inputs);
  std::vector<float> run_in_chunks(const Input& input);
  std::vector<float> run(std::span<const Input> inputs, int n_before);

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<std::unique_ptr<Model>> models_;  // of each rank; rank 0 has the result
  PoolBlock pool_;                              // the last block, without its norm
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Step> step_;  // the arrays of a batch
  EmbedFacts facts_;
  Classifier classifier_;  // for models that rank
  EmbedHead dense_;        // empty for most models
  std::string pooling_, name_;
  std::optional<Pooling> pools_here_;  // for pooling on the host, if only some tokens of a text are pooled
  bool normalize_ = true;
  int width_ = 0;  // of the rows that are pooled
  int dim_ = 0, n_vocab_ = 0, max_tokens_ = 0, max_batch_tokens_ = 0;
  std::mutex mutex_;
};

}  // namespace ingot

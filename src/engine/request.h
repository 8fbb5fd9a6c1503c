// Request: what a consumer asks of the engine, and what it gets back through its sink. Text is the consumer's business:
// the engine knows tokens only (stop strings: text/stop_strings.h).
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/sampling.h"
#include "engine/answer_constraint.h"
#include "model/runner.h"

namespace ingot {

using RequestId = uint64_t;
using Clock = std::chrono::steady_clock;

enum class FinishReason : uint8_t {
  kStop,       // a stop token
  kLength,     // max_tokens, or the end of the context
  kCancelled,  // by the consumer, or because the engine stopped
  kError,
  kDeadline,  // Request::deadline has passed
  kNotBegun,  // Request::begin_by has passed before its first step
};
inline constexpr int kFinishReasons = 6;

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt: found in the prefix cache, and not computed
  int output_tokens = 0;  // drawn or forced by a grammar, the stop token included
  int preemptions = 0;    // times that the request lost its KV blocks and was computed anew
  double queue_ms = 0;    // from submit to its first step
  double prefill_ms = 0;  // from there to the first token drawn
  double decode_ms = 0;   // from the first token drawn to the last
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  int32_t stop_token = -1;  // which one, with kStop; it is not delivered as a token
  std::string error;        // with kError
  bool spoiled = false;     // with kError: the model's own numbers lead to no token; what came before stands
  Usage usage;
};

// How far a prompt is, after a step that computed some of it.
struct PromptProgress {
  int n_done =
      0;  // of its tokens, those found in the prefix cache included; fewer than before where it has been preempted
  int n_cached = 0;  // of these
  Clock::time_point submitted, first_step;
};

// Called on the engine thread, in order: any number of tokens, then one finish. Must return quickly; what it throws
// ends the request.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // With Request::wants_progress, before the first token.
  virtual void on_prompt_progress(const PromptProgress&) {}
  // With Request::prompt_logprobs, before the first token: each token of the prompt but the first, which follows
  // nothing.
  virtual void on_prompt_token(const Sampled&) {}
  virtual void on_token(const Sampled& token) = 0;
  virtual void on_finish(const Finish& finish) = 0;
};

// Vectors that stand in place of tokens of a prompt: an image's, say. The prompt has some token of the vocabulary at
// each of these positions, as a placeholder.
struct PromptEmbedding {
  int position = 0;  // in the prompt, of the first row
  int n_rows = 0;
  std::array<uint64_t, 2> digest{};  // of what the rows were made from: the prefix cache compares it, not the rows
  std::shared_ptr<const std::vector<float>> rows;  // [n_rows, RunnerInfo::embedding_dim]
};

// Drafts: tokens that may follow a history, for a step to verify. None is a fair answer.
using Propose = std::function<std::vector<int32_t>(std::span<const int32_t> history)>;

struct Request {
  std::vector<int32_t> prompt;
  std::vector<PromptEmbedding> embeddings = {};  // in order of position; none overlaps another
  SamplingParams sampling;
  int max_tokens = -1;               // -1: to the end of the context
  std::vector<int32_t> stop_tokens;  // end the output; the model's own and the user's
  bool ignore_eos = false;           // stop tokens are tokens like any other
  int min_tokens = 0;                // no stop token is drawn before so many others
  int prompt_logprobs = -1;     // of the prompt's tokens, as SamplingParams::n_logprobs; then no cached prefix helps
  bool wants_progress = false;  // TokenSink::on_prompt_progress is called
  std::shared_ptr<TokenSink> sink;

  // In company. A unit of priority is worth 1024 places in the queue, so nobody waits for ever; a request of higher
  // priority may preempt one of lower. Of a client (any name; empty: of nobody) that has many requests under way, later
  // ones stand back behind those of others.
  int priority = 0;  // -kMaxPriority to kMaxPriority
  std::string client;
  std::string cache_salt;           // only requests with equal salts share cached prefixes
  Clock::time_point begin_by = {};  // its first step comes before this, or none does; zero: no limit
  Clock::time_point deadline = {};  // it ends then, wherever it is; zero: no limit

  // Asked on the engine's thread for drafts, once the last token is known. They change how fast the output comes, never
  // what it is. What it throws ends the request.
  Propose propose = {};

  // A grammar that the answer follows, behind the place where it begins. Once nothing can follow, the answer ends as by
  // a stop token. Shared by requests; of this model's tokens.
  std::shared_ptr<Constraint> constraint = {};
  ConstraintStart constraint_start = {};
};
inline constexpr int kMaxPriority = 100;

// Tokens that one sequence can have, prompt and output together: the model's context, or the whole KV pool if that is
// less and does not hold the model's window either.
int context_limit(const RunnerInfo& info);

// Throws Error, with the numbers, for a request that can never run.
void validate(const Request& request, const RunnerInfo& info);

}  // namespace ingot

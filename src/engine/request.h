// Request: a consumer's request to the engine, and the interface through which the consumer receives the answer. The
// engine handles tokens only. Consumers handle text (stop strings: text/stop_strings.h).
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/beam_search.h"
#include "backend/sampling.h"
#include "engine/answer_constraint.h"
#include "engine/speculate/proposer.h"
#include "model/program/prompt_embedding.h"
#include "model/program/runner.h"

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
  int cached_tokens = 0;  // part of prompt_tokens: found in the prefix cache, so not computed
  int output_tokens = 0;  // tokens sampled, including the stop token
  int draft_tokens = 0;   // drafts that steps verified
  int accepted_tokens = 0;  // part of draft_tokens: equal to the sampled token
  int sampling_steps = 0;   // steps that gave tokens of the output
  // The measured speed-up of the output by drafts, as a factor: at most output_tokens / sampling_steps. 0: unknown.
  double draft_gain = 0;
  int preemptions = 0;      // times that the request lost its KV blocks and was recomputed
  double queue_ms = 0;    // from submit to the request's first step
  double prefill_ms = 0;  // from the first step to the first sampled token
  double decode_ms = 0;   // from the first sampled token to the last
};

inline constexpr const char* kOutOfMemory = "out of memory";  // Finish::error when an allocation has failed

struct Finish {
  FinishReason reason = FinishReason::kStop;
  int32_t stop_token = -1;  // with kStop: the stop token, which is not delivered as a token
  std::string error;        // with kError
  bool has_nan = false;     // with kError: the logits give no token; the tokens delivered before are valid
  Usage usage;
};

// The progress of a prompt, after a step that computed a part of the prompt.
struct PromptProgress {
  int n_done = 0;    // tokens done, including cached tokens; decreases after a preemption
  int n_cached = 0;  // part of n_done: found in the prefix cache
  Clock::time_point submitted, first_step;
};

// Called on the engine thread, in order: any number of tokens, then one finish. Each call must return quickly. An
// exception ends the request.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // With Request::wants_progress: called before the first token.
  virtual void on_prompt_progress(const PromptProgress&) {}
  // With Request::prompt_logprobs: called before the first token, for each token of the prompt except the first, which
  // has no token before it.
  virtual void on_prompt_token(const Sampled&) {}
  // With Request::wants_logits: called before the first token, for the last token of the prompt. With
  // Request::prompt_logprobs, also called for the earlier tokens of the prompt. position: the token's place in the
  // prompt.
  virtual void on_logits(int /* position */, std::span<const float> /* [n_vocab] */) {}
  virtual void on_token(const Sampled& token) = 0;
  virtual void on_finish(const Finish& finish) = 0;
};

// What the model reads beside the prompt, such as the encoder's output. Its keys are made in the first step.
struct RequestSource {
  int n_rows = 0;
  // Digest of the rows. The prefix cache shares tokens only between requests with equal digests.
  std::array<uint64_t, 2> digest{};
  SharedFloats rows;  // [n_rows, SourceInfo::dim]
};

struct Request {
  std::vector<int32_t> prompt;
  RequestSource source = {};                     // in models with sources
  std::vector<PromptEmbedding> embeddings = {};  // in order of position, without overlaps
  SamplingParams sampling;
  int max_tokens = -1;               // -1: up to the end of the context
  std::vector<int32_t> stop_tokens;  // tokens that end the output: the model's own and the user's
  bool ignore_eos = false;           // treat stop tokens like any other token
  int min_tokens = 0;                // no stop token is sampled before this many other tokens
  int prompt_logprobs = -1;     // for the prompt's tokens, like SamplingParams::n_logprobs; disables cached prefixes
  bool wants_progress = false;  // call TokenSink::on_prompt_progress
  bool wants_logits = false;    // call TokenSink::on_logits
  std::shared_ptr<TokenSink> sink;

  // How the scheduler orders requests. One unit of priority is worth 1024 places in the queue, so every request runs in
  // the end. A request of higher priority may preempt a request of lower priority. If a client has many requests in
  // flight, its later requests rank behind those of other clients. A client may have any name; empty: no client.
  int priority = 0;  // -kMaxPriority to kMaxPriority
  std::string client;
  std::string cache_salt;           // only requests with equal salts share cached prefixes
  bool publishes_prefix = false;    // report all chains with this salt to the CacheListener; for few salts only
  Clock::time_point begin_by = {};  // the request ends if its first step has not begun by then; zero: no limit
  Clock::time_point deadline = {};  // the time at which the request ends in any case; zero: no limit

  // Guesses tokens of this request only. Drafts change the speed of the output, never the output itself.
  std::shared_ptr<Proposer> proposer = {};

  // A grammar that the answer must match from constraint_start on. When the grammar allows no more text, the answer
  // ends as if after a stop token. Requests may share a grammar. The grammar must use this model's tokens.
  std::shared_ptr<Constraint> constraint = {};
  ConstraintStart constraint_start = {};

  // A search with beams in place of draws (beams.h). When it is over, the best text goes to `sink`, and the next ones
  // to more_sinks. A sink without a text gets an error. A search uses no drafts, and cannot be paused.
  std::optional<BeamParams> beams = {};
  std::vector<std::shared_ptr<TokenSink>> more_sinks = {};

  bool stops_at(int32_t token) const {
    return !ignore_eos && std::ranges::find(stop_tokens, token) != stop_tokens.end();
  }
};
inline constexpr int kMaxPriority = 100;

// The largest number of tokens of one sequence, prompt and output together. The limit is the model's context. If the KV
// pool is smaller than the context and cannot hold the model's window either, the limit is the whole pool.
int context_limit(const RunnerInfo& info);

// Throws Error for a request that can never run. The message names the numbers.
void validate(const Request& request, const RunnerInfo& info);

}  // namespace ingot

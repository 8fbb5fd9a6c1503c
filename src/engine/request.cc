#include "engine/request.h"

#include <algorithm>

#include "backend/sampler.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/prefix_cache.h"

namespace ingot {
namespace {

constexpr int kMaxPlaces = 1 << 20;  // of an embedding

constexpr size_t kMaxStopTokens = 256;  // the model's and the user's together

void validate_length(const Request& request, int limit) {
  const size_t n_prompt = request.prompt.size();
  if (n_prompt == 0) throw Error("the prompt is empty: it needs at least one token");
  if (n_prompt >= static_cast<size_t>(limit)) {
    throw Error(
        "the prompt has {} tokens and the context holds {}, of which the output needs at least 1: shorten the prompt "
        "or use a larger context",
        n_prompt, limit);
  }
  if (request.max_tokens < 1 && request.max_tokens != -1) {
    throw Error("max_tokens is {}: it must be at least 1, or -1 for as many as the context holds", request.max_tokens);
  }
  if (request.min_tokens < 0 || (request.max_tokens != -1 && request.min_tokens > request.max_tokens)) {
    throw Error("min_tokens is {}: it must be from 0 to max_tokens", request.min_tokens);
  }
  const int left = limit - static_cast<int>(n_prompt);
  if (request.max_tokens > left) {
    throw Error(
        "{} prompt tokens and max_tokens {} are {} tokens, but the context holds {}: set max_tokens to at most {}, or "
        "use a larger context",
        n_prompt, request.max_tokens, n_prompt + static_cast<size_t>(request.max_tokens), limit, left);
  }
}

void validate_embeddings(const Request& request, const RunnerInfo& info) {
  if (request.embeddings.empty()) return;
  if (!info.takes_embeddings) throw Error("the prompt has embeddings, but this model accepts only tokens");
  int64_t end = 0;
  for (size_t i = 0; i < request.embeddings.size(); ++i) {
    const PromptEmbedding& e = request.embeddings[i];
    const int64_t n_prompt = static_cast<int64_t>(request.prompt.size()), e_end = int64_t{e.position} + e.n_rows;
    if (e.n_rows < 1 || e.position < end || e_end > n_prompt) {
      throw Error(
          "embedding {} has {} rows from position {}: expected at least 1, from {} on, and within the {} tokens of the "
          "prompt",
          i, e.n_rows, e.position, end, n_prompt);
    }
    const size_t n_floats = e.rows.size();
    if (n_floats != static_cast<size_t>(e.n_rows) * static_cast<size_t>(info.embedding_dim)) {
      throw Error("embedding {} has {} floats: expected {} rows of {}", i, n_floats, e.n_rows, info.embedding_dim);
    }
    if (!e.places.empty() && info.n_rope_axes == 1)
      throw Error("embedding {} has places on several axes, but this model's rope has one", i);
    const bool has_all = e.places.empty() || e.places.size() == static_cast<size_t>(e.n_rows);
    const auto is_inside = [&](const auto& place) {
      return std::ranges::all_of(place, [&](int32_t at) { return at >= 0 && at < e.size(); });
    };
    if (!has_all || e.n_places < 0 || e.n_places > kMaxPlaces || !std::ranges::all_of(e.places, is_inside))
      throw Error("embedding {} has {} places of {}: expected one for each of its {} rows, each from 0 to {}", i,
                  e.places.size(), e.size(), e.n_rows, e.size() - 1);
    if (const int most = info.max_batch_tokens - info.max_seqs + 1; e.sees_all && e.n_rows > most)
      throw Error("embedding {} has {} rows that see each other, but a step has room for {}: use larger batches", i,
                  e.n_rows, most);
    if (e.sees_all && request.prompt_logprobs >= 0 && e.n_rows > info.max_logits - info.max_seqs + 1)
      throw Error("embedding {} has {} rows that see each other: log-probabilities of the prompt need as many rows of "
                  "logits in a step, which has {}", i, e.n_rows, info.max_logits);
    if (e.digest == std::array<uint64_t, 2>{}) throw Error("embedding {} has no digest: the prefix cache needs it", i);
    end = e_end;
  }
}

void validate_source(const RequestSource& source, const SourceInfo& info) {
  if (info.dim == 0 && source.n_rows == 0) return;
  if (info.dim == 0) throw Error("the request has a source, but this model reads only tokens");
  if (source.n_rows < 1 || source.n_rows > info.max_rows)
    throw Error("the source has {} rows: this model needs 1 to {}", source.n_rows, info.max_rows);
  const size_t n_floats = source.rows.size();
  if (n_floats != static_cast<size_t>(source.n_rows) * static_cast<size_t>(info.dim))
    throw Error("the source has {} floats: expected {} rows of {}", n_floats, source.n_rows, info.dim);
  if (source.digest == std::array<uint64_t, 2>{}) throw Error("the source has no digest: the prefix cache needs it");
}

void validate_beams(const Request& request, const RunnerInfo& info) {
  validate(*request.beams);
  const int n_beams = request.beams->n_beams;
  if (n_beams > info.max_seqs)
    throw Error("{} beams: a step has at most {} sequences", n_beams, info.max_seqs);
  if (const size_t n_texts = request.more_sinks.size() + 1; n_texts > static_cast<size_t>(n_beams))
    throw Error("{} texts of {} beams: at most one for each beam", n_texts, n_beams);
  if (request.proposer) throw Error("a search with beams uses no drafts");
  if (request.constraint && (request.ignore_eos || request.stop_tokens.empty()))
    throw Error("a search with beams and a grammar needs a token that ends the text");
}

}  // namespace

int context_limit(const RunnerInfo& info) {
  int64_t limit = info.n_ctx;
  for (const KvPool& pool : info.pools)
    if (pool.window == 0 || pool.n_blocks < most_blocks_needed(pool.window, info.block_size))
      limit = std::min(limit, int64_t{pool.n_blocks} * info.block_size);
  return static_cast<int>(limit);
}

void validate(const Request& request, const RunnerInfo& info) {
  CHECK(request.sink != nullptr);
  validate_length(request, context_limit(info));
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int32_t token = request.prompt[i];
    if (token < 0 || token >= info.n_vocab) {
      throw Error("prompt token {} is {}: the vocabulary has {} (0 to {})", i, token, info.n_vocab, info.n_vocab - 1);
    }
  }
  validate_embeddings(request, info);
  validate_source(request.source, info.source);
  if (request.priority < -kMaxPriority || request.priority > kMaxPriority) {
    throw Error("priority is {}: it must be from {} to {}", request.priority, -kMaxPriority, kMaxPriority);
  }
  if (request.stop_tokens.size() > kMaxStopTokens) {
    throw Error("{} stop tokens: at most {}", request.stop_tokens.size(), kMaxStopTokens);
  }
  for (int32_t token : request.stop_tokens) {
    if (token < 0 || token >= info.n_vocab) {
      throw Error("stop token {}: the vocabulary has {} (0 to {})", token, info.n_vocab, info.n_vocab - 1);
    }
  }
  if (request.constraint && request.constraint->vocabulary().size() != info.n_vocab) {
    throw Error("the constraint is made for {} tokens, but the model has {}", request.constraint->vocabulary().size(),
                info.n_vocab);
  }
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > kMaxLogprobs) {
    throw Error("prompt_logprobs is {}: it must be from -1 to {}", request.prompt_logprobs, kMaxLogprobs);
  }
  validate(request.sampling, info.n_vocab);
  if (request.beams) validate_beams(request, info);
}

}  // namespace ingot

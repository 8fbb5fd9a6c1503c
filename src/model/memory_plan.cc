#include "model/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "model/decoder_program.h"
#include "model/draft_head.h"
#include "model/ranks.h"

namespace ingot {
namespace {

constexpr int64_t kSmallestContext = 512;
constexpr int kSmallestChunk = 512;
constexpr int64_t kMaxTokens = 1 << 30;

// The bytes of the caches, with the backend's padding. A draft head has a KV cache beside the model's.
size_t kv_bytes(const Config& c, const KvShape& shape, const Backend* backend) {
  const auto bytes = [&](const KvShape& one) { return backend != nullptr ? backend->kv_bytes(one) : one.bytes(); };
  return bytes(shape) + (c.draft_head ? bytes(draft_kv_shape(*c.draft_head, shape)) : 0);
}
size_t state_bytes(const StateShape& shape, const Backend* backend) {
  return !shape ? 0 : backend != nullptr ? backend->state_bytes(shape) : shape.bytes();
}

KvShape kv_shape(const Config& c, const RunnerOptions& o, int n_blocks) {
  return {.n_layers = c.n_kv_layers(),
          .n_kv_heads = c.n_kv_heads,
          .head_dim = c.head_dim,
          .block_size = o.block_size,
          .n_blocks = n_blocks,
          .dtype = o.kv_dtype,
          .values_are_keys = c.arch->latent_attention};
}

// The most tokens that a cache of at most n_bytes holds.
int64_t tokens_in(size_t n_bytes, const Config& c, const RunnerOptions& o, const Backend* backend) {
  const size_t none = kv_bytes(c, kv_shape(c, o, 0), backend);
  const size_t block = std::max<size_t>(kv_bytes(c, kv_shape(c, o, 1), backend) - none, 1);
  const size_t left = n_bytes - std::min(n_bytes, none), size = static_cast<size_t>(o.block_size);
  return static_cast<int64_t>(left / block * size + left % block * size / block);
}

int64_t whole_blocks(int64_t n_tokens, int block_size) { return (n_tokens + block_size - 1) / block_size; }

// Two checkpoints for each sequence (the ends of its prompt and of its answer) and two for prefixes that many sequences
// share, as far as they fit in an eighth of the memory that the weights leave.
int choose_checkpoints(const Config& c, size_t free_bytes, const RunnerOptions& o, const Backend* backend) {
  const size_t slot_bytes = state_bytes(state_shape(c, 1), backend) - state_bytes(state_shape(c, 0), backend);
  if (slot_bytes == 0 || o.n_checkpoints >= 0) return std::max(0, o.n_checkpoints);
  return static_cast<int>(std::min<size_t>(2 * static_cast<size_t>(o.max_seqs) + 2, free_bytes / 8 / slot_bytes));
}

// The tokens of a sequence of n_ctx that the pool holds at once. If every layer has a window: the window, the tokens
// that two steps in flight write, and partly used blocks at both ends.
int64_t tokens_held(const Config& c, const RunnerOptions& o, int n_ctx) {
  const int64_t window = c.widest_window();
  return window == 0 ? n_ctx
                     : std::min<int64_t>(n_ctx, window + 2 * int64_t{o.max_batch_tokens} + 3 * int64_t{o.block_size});
}

// The plan for a pool of n_tokens and sequences of up to n_ctx.
MemoryPlan plan_of(const Config& c, const WeightBytes& weights, size_t available, const RunnerOptions& o,
                   const Backend* backend, int n_ctx, int64_t n_tokens) {
  const int n_states = o.max_seqs + choose_checkpoints(c, available - std::min(weights.total(), available), o, backend);
  MemoryPlan plan{.n_ctx = n_ctx,
                  .kv = kv_shape(c, o, static_cast<int>(whole_blocks(n_tokens, o.block_size))),
                  .states = state_shape(c, n_states),
                  .weight_bytes = weights.total(),
                  .borrowed_bytes = weights.borrowed,
                  .available_bytes = available};
  plan.kv_bytes = kv_bytes(c, plan.kv, backend);
  plan.state_bytes = state_bytes(plan.states, backend);
  plan.max_seqs = o.max_seqs;
  plan.max_batch_tokens = static_cast<int>(std::min<int64_t>(o.max_batch_tokens, int64_t{n_ctx} * o.max_seqs));
  const int max_logits = o.max_logits > 0 ? o.max_logits : o.max_seqs;
  plan.limits = {.max_tokens = plan.max_batch_tokens,
                 .max_seqs = plan.max_seqs,
                 .max_logits = max_logits,
                 .max_kv_len = n_ctx,
                 .n_vocab = c.n_vocab};
  plan.activation_bytes = step_bytes(c, plan.limits, backend);
  return plan;
}

// Returns the options with the tokens of a step. If the options give none, this function chooses them.
RunnerOptions with_batch_tokens(const Config& c, const WeightBytes& weights, size_t available, RunnerOptions o,
                                const Backend* backend) {
  if (o.max_batch_tokens > 0) return o;
  const size_t free_bytes = available - std::min(weights.total(), available);
  const int n_ctx = o.n_ctx > 0 ? o.n_ctx : c.n_ctx_train;
  for (int n = backend != nullptr ? backend->prompt_chunk() : kSmallestChunk; n >= kSmallestChunk; n /= 2) {
    o.max_batch_tokens = std::max(n, o.max_seqs);
    if (plan_of(c, weights, available, o, backend, n_ctx, 1).activation_bytes <= free_bytes / 8) break;
  }
  return o;
}

}  // namespace

MemoryPlan plan_memory(const Config& c, const WeightBytes& weights, size_t available, const RunnerOptions& options,
                       const Backend* backend) {
  const RunnerOptions o = with_batch_tokens(c, weights, available, options, backend);
  const size_t weight_bytes = weights.total();
  if (weight_bytes > available)
    throw MemoryError("the weights need {} and the device has {} free: use a smaller model or a smaller quant",
                      human_bytes(weight_bytes), human_bytes(available));
  const StateShape states = state_shape(c, o.max_seqs + choose_checkpoints(c, available - weight_bytes, o, backend));
  const size_t of_states = state_bytes(states, backend);
  if (of_states > available - weight_bytes)
    throw MemoryError(
        "the states of {} sequences and {} checkpoints need {}, and {} are free beside the weights: allow fewer at "
        "once",
        o.max_seqs, states.n_slots - o.max_seqs, human_bytes(of_states), human_bytes(available - weight_bytes));
  size_t left = available - weight_bytes - of_states;
  if (o.fills_memory()) {
    const int longest = o.n_ctx > 0 ? o.n_ctx : c.n_ctx_train;
    left -= std::min(left, plan_of(c, weights, available, o, backend, longest, 1).activation_bytes);
  } else {
    left /= 2;  // leave half of the free memory to other uses
  }
  int64_t fit = tokens_in(left, c, o, backend);
  if (o.fills_memory()) fit -= fit % o.block_size;
  int n_ctx = o.n_ctx;
  if (n_ctx == 0) {
    const bool whole = tokens_held(c, o, c.n_ctx_train) <= fit;
    n_ctx = static_cast<int>(whole ? c.n_ctx_train
                                   : std::min<int64_t>(c.n_ctx_train, std::clamp(fit, kSmallestContext, kMaxTokens)));
  }
  int64_t n_tokens = o.n_kv_tokens;
  const int64_t wanted = o.fills_memory() ? fit : std::min(fit, int64_t{n_ctx} * o.max_seqs);
  if (n_tokens == 0) n_tokens = std::clamp<int64_t>(wanted, tokens_held(c, o, n_ctx), kMaxTokens);
  const MemoryPlan plan = plan_of(c, weights, available, o, backend, n_ctx, n_tokens);
  const bool chosen = o.n_ctx > 0 || o.n_kv_tokens > 0 || o.fills_memory();
  if (chosen && plan.total_bytes() > available)
    throw MemoryError(
        "a KV cache of {} tokens needs {}, and {} are free beside the weights and {} for activations: use at most {} "
        "tokens of context, or "
        "fewer sequences at once",
        n_tokens, human_bytes(plan.kv_bytes), human_bytes(available - weight_bytes), human_bytes(plan.activation_bytes),
        o.fills_memory() ? fit : 2 * fit);
  return plan;
}

std::vector<MemoryPlan> plans_that_fit(const Config& c, const WeightBytes& weights, size_t available,
                                       const RunnerOptions& options, const Backend* backend) {
  constexpr int kMaxSequences = 256;
  const size_t most_bytes = available - available / 20;
  std::vector<MemoryPlan> plans;
  RunnerOptions o = with_batch_tokens(c, weights, available, options, backend);
  for (o.max_seqs = 1; o.max_seqs <= kMaxSequences; o.max_seqs *= 2) {
    const auto in_pool = [&](int n_ctx) {
      return whole_blocks(tokens_held(c, o, n_ctx), o.block_size) * o.block_size * o.max_seqs;
    };
    const auto plan = [&](int n_ctx) { return plan_of(c, weights, available, o, backend, n_ctx, in_pool(n_ctx)); };
    const auto fits = [&](int n_ctx) {
      return in_pool(n_ctx) <= kMaxTokens && plan(n_ctx).total_bytes() <= most_bytes;
    };
    int low = std::min(static_cast<int>(kSmallestContext), c.n_ctx_train),
        high = c.n_ctx_train;  // low fits; nothing above high fits
    if (!fits(low)) break;
    while (low < high) {
      const int middle = low + (high - low + 1) / 2;
      fits(middle) ? low = middle : high = middle - 1;
    }
    plans.push_back(plan(low));
  }
  return plans;
}

std::string MemoryPlan::table() const {
  const int64_t n_tokens = int64_t{kv.n_blocks} * kv.block_size;
  const std::string state_line =
      states ? fmt::format("  states       {:>10}   {} sequences and {} checkpoints of {}\n", human_bytes(state_bytes),
                           max_seqs, n_checkpoints(), human_bytes(states.slot_bytes()))
             : "";
  return fmt::format(
      "  weights      {:>10}\n"
      "  KV cache     {:>10}   {} tokens of {}, for contexts of up to {}\n"
      "{}"
      "  activations  {:>10}   steps of up to {} tokens, {} sequences\n"
      "  in all       {:>10}   of {} free\n",
      human_bytes(weight_bytes), human_bytes(kv_bytes), n_tokens, human_bytes(kv.token_bytes()), n_ctx, state_line,
      human_bytes(activation_bytes), max_batch_tokens, max_seqs, human_bytes(total_bytes()),
      human_bytes(available_bytes));
}

}  // namespace ingot

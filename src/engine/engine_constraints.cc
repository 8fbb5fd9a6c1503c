// The engine's part of constraints: masks for sampling, text that a grammar forces, and slow constraints.
//
// All sequences wait for the stepping thread. So this thread gives a constraint a limit of work for each call and a
// limit of time for each step. Beyond these limits, a worker reads the answer's new tokens and makes the next mask. The
// sequence keeps its blocks and is in no plan until the worker's result arrives as a message. If the sequence is in a
// step already, the step has no mask for its token: the token is dropped, and its input token is computed again.
#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/faults.h"
#include "engine/jump_ahead.h"

namespace ingot {
namespace {

constexpr std::chrono::milliseconds kMaskTime{25};  // of all constraints in a step

// Which of the tokens that a grammar forces need no sampling.
struct JumpAhead {
  bool is_wanted = false;
  std::span<const int32_t> stops;  // a stop token is always sampled
  size_t n_left = 0;               // of the output
  bool needs_end = false;          // an answer that is over needs an end token: a beam's score has its probability
};

std::vector<int32_t> forced_after(AnswerConstraint& constraint, std::span<const int32_t> output, const JumpAhead& jump,
                                  const Effort& effort) {
  if (!jump.is_wanted) return {};
  std::vector<int32_t> tokens = forced_tokens(constraint, output, effort);
  const auto stops = [&](int32_t token) { return std::ranges::find(jump.stops, token) != jump.stops.end(); };
  tokens.erase(std::ranges::find_if(tokens, stops), tokens.end());
  tokens.resize(std::min(tokens.size(), jump.n_left));
  return tokens;
}

// Requests with log-probabilities or token biases sample every token.
JumpAhead jump_of(const Sequence& sequence, bool is_on) {
  const Request& request = sequence.request;
  const bool samples_all = request.sampling.n_logprobs >= 0 || !request.sampling.logit_bias.empty() || request.beams;
  return {.is_wanted = is_on && !samples_all,
          .stops = request.ignore_eos ? std::span<const int32_t>() : request.stop_tokens,
          .n_left = static_cast<size_t>(std::max(0, sequence.max_len - sequence.len())),
          .needs_end = request.beams.has_value()};
}

void read_by(AnswerConstraint& constraint, int32_t token, const Effort& effort) {
  if (!constraint.accept(token, effort))
    throw Error("the sampler chose token {}, which the constraint does not allow", token);
}

// Runs on a worker. output: the answer's last tokens; the constraint has not read its last n_new tokens. drawn: the
// token that comes next if no text is forced; below 0: the sampler found no token.
NextTokens find_next(AnswerConstraint& constraint, std::vector<int32_t> output, size_t n_new,
                     std::optional<int32_t> drawn, JumpAhead jump) {
  NextTokens next;
  try {
    for (const int32_t token : std::span(output).last(n_new)) read_by(constraint, token, kFullEffort);
    next.is_over = !jump.needs_end && constraint.is_over(kFullEffort);
    if (next.is_over) return next;
    next.forced = forced_after(constraint, output, jump, kFullEffort);
    next.takes_drawn = next.forced.empty() && drawn;
    if (next.takes_drawn && *drawn < 0) return next;
    if (next.takes_drawn) {
      output.push_back(*drawn);
      --jump.n_left;
      read_by(constraint, *drawn, kFullEffort);
      next.is_over = constraint.is_over(kFullEffort);
      if (next.is_over) return next;
      next.forced = forced_after(constraint, output, jump, kFullEffort);
    }
    for (const int32_t token : next.forced) read_by(constraint, token, kFullEffort);
    next.is_over = !next.forced.empty() && constraint.is_over(kFullEffort);
    if (!next.is_over && next.forced.size() < jump.n_left)
      next.mask = jump.needs_end ? constraint.mask(kFullEffort) : constraint.next_mask(kFullEffort);
  } catch (const std::exception& error) {
    next.error = message_of(error);
  }
  return next;
}

}  // namespace

// Calls call(effort) with what the stepping thread may do now.
template <class F>
auto Engine::quickly(F call) {
  const Clock::time_point begin = options_.now();
  struct Timer {
    ~Timer() { engine.mask_time_ += engine.options_.now() - begin; }
    Engine& engine;
    const Clock::time_point begin;
  } timer{*this, begin};
  return call(mask_time_ < kMaskTime ? options_.quick : Effort{0, true});
}

// Makes the masks of the constrained sequences while the step's forward pass runs. Their last tokens are known by now.
void Engine::make_masks(InFlightStep& in_flight) {
  const Clock::time_point begin = Clock::now();
  bool any = false;
  for (const StepItem& item : in_flight.step->items) {
    Sequence& sequence = *item.sequence;
    if (!item.samples || !sequence.constraint || sequence.finished || item.is_outrun() || item.is_undrawn()) continue;
    any = true;
    try {
      make_masks(sequence, item.n_drafts);
    } catch (const NotQuick&) {
      sequence.n_unseen = 0;
      sequence.undrawn_at = item.begin + item.n_tokens;
      ask_worker(sequence, false);
    } catch (const std::exception& error) {
      sequence.has_nan = true;  // the tokens delivered before are valid
      finish(sequence, FinishReason::kError, message_of(error));
    }
  }
  if (any) in_flight.stats.mask_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// One mask for each token to sample: after the last token, and after each draft. The constraint accepts all drafts
// (cut_drafts).
void Engine::make_masks(Sequence& sequence, int n_drafts) {
  AnswerConstraint& constraint = *sequence.constraint;
  if (sequence.made_mask && n_drafts == 0) {
    sequence.masks.assign(1, *std::exchange(sequence.made_mask, std::nullopt));
    return;
  }
  // A beam that no token can continue ends alone.
  quickly([&](const Effort& effort) {
    sequence.masks.assign(1, sequence.beams ? constraint.mask(effort) : constraint.next_mask(effort));
  });
  if (n_drafts == 0) return;
  AnswerConstraint::Place place = constraint.place();
  try {
    for (int i = 0; i < n_drafts; ++i) {
      const int32_t draft = sequence.tokens[static_cast<size_t>(sequence.len() + i)];
      quickly([&](const Effort& effort) {
        CHECK(constraint.accept(draft, effort));
        sequence.masks.push_back(constraint.mask(effort));
      });
    }
  } catch (...) {
    constraint.go_back(std::move(place));
    throw;
  }
  constraint.go_back(std::move(place));
}

// Whether this thread passes the sequence's last token to its constraint. A worker may have passed the token already.
bool Engine::reads_here(const Sequence& sequence) {
  return sequence.constraint && !sequence.waits_for_mask && sequence.constraint->n_tokens() < sequence.n_output();
}

// Returns false if a worker must read the token.
bool Engine::read_token(Sequence& sequence, int32_t token) {
  sequence.waits_for_mask = sequence.constraint->is_slow();
  if (sequence.waits_for_mask) return false;
  sequence.made_mask.reset();
  try {
    quickly([&](const Effort& effort) { read_by(*sequence.constraint, token, effort); });
    return true;
  } catch (const NotQuick&) {
    sequence.waits_for_mask = true;
    return false;
  }
}

// Whether the answer ends with the token that the constraint has just read.
bool Engine::ends_here(Sequence& sequence) {
  try {
    return quickly([&](const Effort& effort) { return sequence.constraint->is_over(effort); });
  } catch (const NotQuick&) {
    sequence.waits_for_mask = true;
    return false;
  }
}

// Returns the tokens that the grammar forces after `output` and that need no sampling. May throw.
std::vector<int32_t> Engine::forced_tokens(Sequence& sequence, std::span<const int32_t> output) {
  if (!sequence.constraint) return {};
  const JumpAhead jump = jump_of(sequence, options_.jump_ahead);
  return quickly([&](const Effort& effort) { return forced_after(*sequence.constraint, output, jump, effort); });
}

// Cuts the drafts before the first token that the constraint refuses. Also cuts them after the first token after which
// the grammar forces text, because forced text needs no sampling. A slow constraint has no drafts.
void Engine::cut_drafts(Sequence& sequence) {
  AnswerConstraint& constraint = *sequence.constraint;
  AnswerConstraint::Place place = constraint.place();
  std::vector<int32_t> output(sequence.tokens.begin() + sequence.n_prompt, sequence.tokens.end());
  const JumpAhead jump = jump_of(sequence, options_.jump_ahead);
  size_t n = 0;
  try {
    quickly([&](const Effort& effort) {
      while (n < sequence.proposed.size() && constraint.accept(sequence.proposed[n], effort)) {
        output.push_back(sequence.proposed[n++]);
        if (output.size() + sequence.n_prompt >= static_cast<size_t>(sequence.max_len)) break;
        if (!forced_after(constraint, output, jump, effort).empty()) break;
      }
    });
  } catch (const NotQuick&) {
    n = 0;
  } catch (const std::exception& error) {
    return finish(sequence, FinishReason::kError, message_of(error));
  }
  sequence.proposed.resize(n);
  constraint.go_back(std::move(place));
}

// Lets a worker find what follows the answer's last token. The constraint belongs to the worker until its message
// arrives. If memory runs out here, only this request fails.
void Engine::ask_worker(Sequence& sequence, bool wants_forced, std::span<const Sampled> drawn) {
  CHECK_LE(drawn.size(), 1u);
  try {
    sequence.waits_for_mask = true;
    if (!drawn.empty()) sequence.drawn = drawn[0];
    const auto constraint = sequence.constraint;
    const size_t n_output = static_cast<size_t>(sequence.n_output());
    const size_t n_new = n_output - static_cast<size_t>(constraint->n_tokens());
    const auto end = sequence.tokens.begin() + sequence.len();
    std::vector<int32_t> output(end - static_cast<ptrdiff_t>(std::min(n_output, n_new + kContextTokens)), end);
    const JumpAhead jump = jump_of(sequence, options_.jump_ahead && wants_forced);
    // The request may end before the job runs.
    const std::vector<int32_t> stops(jump.stops.begin(), jump.stops.end());
    const auto drawn_token = drawn.empty() ? std::nullopt : std::optional(drawn[0].token);
    run_on_worker([=, this, id = sequence.id] {
      if (is_stopping_) return;
      const NextTokens next = find_next(*constraint, output, n_new, drawn_token,
                                        {jump.is_wanted, stops, jump.n_left, jump.needs_end});
      for (;;) {  // without the message, the sequence would wait forever
        try {
          inbox_.push({Order::kCall, nullptr, 0, [this, id, next] { receive_next(id, next); }});
          return;
        } catch (const std::bad_alloc&) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
      }
    });
  } catch (const std::exception& error) {
    finish(sequence, FinishReason::kError, message_of(error));
  }
}

void Engine::run_on_worker(std::function<void()> job) {
  if (options_.run_slow) return options_.run_slow(std::move(job));
  if (!workers_) {
    const unsigned n_cores = std::thread::hardware_concurrency();
    workers_ = std::make_unique<Workers>(static_cast<int>(std::clamp(n_cores / 8, 1u, 4u)), "the engine's workers");
  }
  workers_->post(std::move(job));
}

void Engine::receive_next(RequestId id, NextTokens next) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->finished) return;
  found->second->next = std::move(next);
  go_on(*found->second);
}

// Returns false if the request has ended; the sequence may then be destroyed.
bool Engine::emit_known(Sequence& sequence, const Sampled& sampled) {
  const RequestId id = sequence.id;
  emit_token(sequence, sampled);
  const auto found = sequences_.find(id);
  return found != sequences_.end() && !found->second->finished;
}

// Continues a sequence whose next mask is made. An undrawn item in flight must be complete first.
void Engine::go_on(Sequence& sequence) {
  if (!sequence.next || sequence.undrawn_at >= 0) return;
  const NextTokens next = *std::exchange(sequence.next, std::nullopt);
  const std::optional<Sampled> drawn = std::exchange(sequence.drawn, std::nullopt);
  if (!next.error.empty()) {
    sequence.has_nan = true;  // the tokens delivered before are valid
    return finish(sequence, FinishReason::kError, next.error);
  }
  // The constraint has read all these tokens. While the sequence waits, emit_token does not pass them again.
  if (next.takes_drawn && !emit_known(sequence, *drawn)) return;
  for (const int32_t token : next.forced) {
    ++counts_.n_forced_tokens;
    if (!emit_known(sequence, {.token = token})) return;
  }
  sequence.waits_for_mask = false;
  if (next.is_over) return finish(sequence, FinishReason::kStop);
  if (sequence.len() == sequence.max_len) return finish(sequence, FinishReason::kLength);
  sequence.made_mask = next.mask;
  if (sequence.request.proposer) drafts_.compare(sequence);
}

}  // namespace ingot

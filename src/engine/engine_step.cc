// A step of the engine: launch it, complete it, and deliver its tokens.
#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/faults.h"

namespace ingot {
// docs/design.md shows this function.
void Engine::run_step() {
  InFlightStep next = plan();
  if (next) forward(next);
  if (!in_flight_.empty() && (!next || is_full())) complete_oldest();
  if (!next) return;
  if (next.fault.empty()) sample(next);
  if (!next.fault.empty()) return complete_failed(next);
  in_flight_.push_back(std::move(next));
  if (depth_ == 1) complete_oldest();
}

// Steps end in the order of their plans, also when the last one has failed.
void Engine::complete_failed(const InFlightStep& failed) {
  while (!in_flight_.empty()) complete_oldest();
  complete(failed);
}

void Engine::complete_oldest() {
  const InFlightStep oldest = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  complete(oldest);
}

// Returns nothing if there was nothing to plan.
Engine::InFlightStep Engine::plan() {
  InFlightStep next;
  mask_time_ = {};
  next.stats.overlapped = depth_ > 1;
  next.stats.begin = options_.now();
  const int64_t n_finished = counts_.n_finished;
  next.drafts = drafts_.choose(counts_.n_steps, in_flight_.empty());
  const Step& step = scheduler_.plan();
  counts_.n_preemptions += step.n_preempted;
  if (step.no_memory_for != nullptr) finish(*step.no_memory_for, FinishReason::kError, kOutOfMemory);
  if (!step.items.empty()) {
    next.step = &step;
    next.drafts.is_timed = step.n_decodes == static_cast<int>(step.items.size()) && next.drafts.is_timed;
    next.builder = &builders_[next_builder_];
    next_builder_ = (next_builder_ + 1) % builders_.size();
  } else if (in_flight_.empty() && counts_.n_finished == n_finished) {
    // The other sequences wait for the memory of sequences that wait for masks.
    CHECK(scheduler_.waits_for_masks());
    needs_message_ = true;
  }
  return next;
}

// Fills the batch and begins the forward pass. A runner that overlaps steps returns at once.
void Engine::forward(InFlightStep& next) {
  const Step& step = *next.step;
  next.stats.index = counts_.n_steps++;
  next.stats.planned = options_.now();
  const Batch& batch = next.builder->fill(step);
  next.stats.filled = options_.now();
  int n_rows = 0;
  for (const StepItem& item : step.items) {
    Sequence& sequence = *item.sequence;
    ++sequence.n_steps;
    n_rows += item.n_tokens;
    sequence.head_step = next.stats.index;
    sequence.head_row = n_rows - 1 - item.n_drafts;
    if (sequence.first_step != Clock::time_point{}) continue;
    sequence.first_step = next.stats.begin;
    --n_queued_;
    counts_.n_prompt_tokens += sequence.n_prompt;
    counts_.n_cached_tokens += sequence.n_cached;
  }
  counts_.n_computed_tokens += step.n_tokens;
  const auto is_as_first = [&](const StepItem& item) { return item.n_tokens == step.items.front().n_tokens; };
  next.drafts.shape = {static_cast<int>(step.items.size()), step.n_tokens,
                       std::ranges::all_of(step.items, is_as_first)};
  take_figures(next.stats, step);
  try {
    runner_.forward(batch);
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    next.fault = message_of(error);
  }
  next.stats.submitted = options_.now();
}

// The figures of the moment when the forward pass begins.
void Engine::take_figures(StepStats& stats, const Step& step) const {
  stats.n_tokens = step.n_tokens;
  stats.n_seqs = static_cast<int>(step.items.size());
  stats.n_decodes = step.n_decodes;
  stats.n_preempted = step.n_preempted;
  stats.n_cached = step.n_cached;
  stats.n_running = scheduler_.n_running();
  stats.n_waiting = scheduler_.n_waiting();
  stats.blocks_used = scheduler_.pool().n_used();
  stats.blocks_cached = scheduler_.pool().n_cached();
  stats.states_used = scheduler_.states().n_used();
  stats.states_cached = scheduler_.states().n_cached();
}

// Samples the step's rows, with the masks of constraints. From now on, each sampling sequence has a token that the host
// has not seen.
void Engine::sample(InFlightStep& next) {
  int row = 0;
  for (const StepItem& item : next.step->items) {
    row += item.n_scored;
    if (!item.samples) continue;
    if (item.sequence->waits_for_mask && !item.is_outrun())
      item.sequence->undrawn_at = item.begin + item.n_tokens;
    else if (!item.sequence->finished && !item.is_outrun())
      item.sequence->n_unseen = 1;
    item.sequence->unseen_row = row;
    row += 1 + item.n_drafts;
  }
  make_masks(next);
  try {
    emit_logits(*next.step);
    runner_.sample(next.builder->fill_rows(*next.step));
    if (has_draft_head()) runner_.follow(next.builder->fill_next_tokens(*next.step));
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    next.fault = message_of(error);
  }
}

// Called when a step is complete or has failed. A failed step ends only its own requests, because their cache may be
// half written. If the device is lost, all requests end.
void Engine::complete(const InFlightStep& done) {
  StepStats stats = done.stats;
  stats.waiting = options_.now();
  std::string fault = done.fault;
  std::vector<Sampled> drawn;
  try {
    if (fault.empty()) {
      drafts_.think_ahead(*done.step);
      drawn = runner_.wait();
    }
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    fault = message_of(error);
  }
  stats.sampled = options_.now();
  stats.failed = !fault.empty();
  if (stats.failed) {
    log_info("a step of {} sequences failed: {}", stats.n_seqs, fault);
    ++counts_.n_failed_steps;
  }
  size_t row = 0;
  const int64_t n_output = counts_.n_output_tokens, n_forced = counts_.n_forced_tokens;
  for (const StepItem& item : done.step->items) {
    if (stats.failed) {
      fail_item(item, fault);
      continue;
    }
    const auto n_rows = static_cast<size_t>(item.n_rows());
    CHECK_LE(row + n_rows, drawn.size());
    complete_item(item, std::span(drawn).subspan(row, n_rows), done.drafts);
    row += n_rows;
  }
  CHECK(stats.failed || row == drawn.size());
  stats.n_emitted = static_cast<int>(counts_.n_output_tokens - n_output);
  stats.n_forced = static_cast<int>(counts_.n_forced_tokens - n_forced);
  stats.emitted = options_.now();
  // If steps follow each other directly, the time of a step is measured from the end of the last step.
  const Clock::duration time = stats.emitted - std::max(stats.begin, counts_.last_step);
  if (done.drafts.is_timed && !stats.failed)
    drafts_.add_step_time(done.drafts, std::chrono::duration<double>(time).count(), stats.n_emitted);
  counts_.last_step = stats.emitted;
  publish();
  if (options_.on_step) options_.on_step(stats);
}

// Handles one sequence's part of a completed step.
void Engine::complete_item(const StepItem& item, std::span<const Sampled> drawn, const DraftedStep& drafts) {
  Sequence& sequence = *item.sequence;
  --sequence.n_steps;
  const std::span<const Sampled> scored = drawn.first(item.n_scored);
  drawn = drawn.subspan(item.n_scored);
  const bool is_undrawn = item.is_undrawn(), is_drawn = item.samples && !item.is_outrun() && !is_undrawn;
  if (is_undrawn) Drafts::drop(sequence);
  const int n_accepted = item.n_drafts > 0 && !is_undrawn ? drafts_.accept(sequence, drawn) : 0;
  sequence.head_row += n_accepted;
  scheduler_.done(item, n_accepted);
  if (is_undrawn) sequence.undrawn_at = -1;
  if (!sequence.finished) {
    if (item.samples) sequence.n_unseen = 0;
    try {
      emit_progress(sequence);
      emit_scores(item, scored);
    } catch (const std::exception& error) {
      return finish(sequence, FinishReason::kError, message_of(error));
    }
    sequence.n_sampling_steps += is_drawn;
    if (is_drawn && sequence.request.proposer) drafts_.add_gain(sequence, drafts, n_accepted + 1);
    if (is_drawn && sequence.beams) return take_candidates(sequence, drawn[0]);
    if (is_drawn) emit_tokens(sequence, drawn.first(static_cast<size_t>(n_accepted) + 1));
    if (is_undrawn) go_on(sequence);
  } else if (sequence.n_steps == 0) {
    destroy(sequence);
  }
}

void Engine::fail_item(const StepItem& item, const std::string& fault) {
  Sequence& sequence = *item.sequence;
  --sequence.n_steps;
  scheduler_.failed(item);
  sequence.n_unseen = 0;
  Drafts::drop(sequence);
  if (!sequence.finished) {
    finish(sequence, FinishReason::kError, fault);
  } else if (sequence.n_steps == 0) {
    destroy(sequence);
  }
}

void Engine::emit_progress(const Sequence& sequence) {
  if (!sequence.request.wants_progress || sequence.n_output() > 0) return;
  sequence.request.sink->on_prompt_progress(
      {std::min(sequence.n_valid, sequence.n_prompt), sequence.n_cached, sequence.submitted, sequence.first_step});
}

// A prompt token may have a logit of -infinity or NaN. The sampler then reports a different token, and the consumer
// gets the prompt's token with -infinity.
void Engine::emit_scores(const StepItem& item, std::span<const Sampled> scored) {
  for (size_t i = 0; i < scored.size(); ++i) {
    Sampled one = scored[i];
    const int32_t token = item.sequence->tokens[static_cast<size_t>(item.score_begin) + i + 1];
    if (std::exchange(one.token, token) != token) one.logprob = -std::numeric_limits<float>::infinity();
    item.sequence->request.sink->on_prompt_token(one);
  }
}

// Delivers rows of logits to the requests that want them. A step without such a request reads no logits.
void Engine::emit_logits(const Step& step) {
  const auto wants = [](const StepItem& item) {
    const Sequence& sequence = *item.sequence;
    return sequence.request.wants_logits && !sequence.finished && sequence.n_output() == 0 && !item.is_outrun();
  };
  if (std::ranges::none_of(step.items, wants)) return;
  const std::vector<float> logits = runner_.logits();
  const auto n_vocab = static_cast<size_t>(runner_.info().n_vocab);
  size_t row = 0;
  for (const StepItem& item : step.items) {
    const size_t first = std::exchange(row, row + static_cast<size_t>(item.n_rows()));
    if (!wants(item)) continue;
    try {
      for (int i = 0; i < item.n_scored + (item.samples ? 1 : 0); ++i)
        item.sequence->request.sink->on_logits(
            i < item.n_scored ? item.score_begin + i : item.begin + item.n_tokens - 1,
            std::span(logits).subspan((first + static_cast<size_t>(i)) * n_vocab, n_vocab));
    } catch (const std::exception& error) {
      finish(*item.sequence, FinishReason::kError, message_of(error));
    }
  }
}

// Delivers the sampled tokens up to a place where the grammar forces text, then the tokens of that text. Drafts end at
// such a place (cut_drafts), so no later token has been accepted. If the constraint is slow, a worker finds what comes
// after the sampled tokens.
void Engine::emit_tokens(Sequence& sequence, std::span<const Sampled> drawn) {
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (!emit_next(sequence, drawn[i], i == 0)) return;
    if (sequence.n_drafts > 0) continue;
    if (sequence.waits_for_mask) return ask_worker(sequence, true, drawn.subspan(i + 1));
    std::vector<int32_t> forced;
    try {
      forced = forced_tokens(sequence, std::span(sequence.tokens).subspan(sequence.n_prompt));
    } catch (const NotQuick&) {
      return ask_worker(sequence, true, drawn.subspan(i + 1));
    } catch (const std::exception& error) {
      return finish(sequence, FinishReason::kError, message_of(error));
    }
    for (const int32_t token : forced) {
      ++counts_.n_forced_tokens;
      if (!emit_next(sequence, {.token = token}, false)) return;
    }
    if (sequence.waits_for_mask) return ask_worker(sequence, false);
    if (!forced.empty()) break;
  }
  if (sequence.request.proposer) drafts_.compare(sequence);
}

// Delivers one of several tokens. Returns false if the request has ended; the sequence may then be destroyed. The
// consumer can end the request at each token by an exception or a cancel.
bool Engine::emit_next(Sequence& sequence, const Sampled& sampled, bool is_first) {
  const RequestId id = sequence.id;
  const auto ended = [&] {
    const auto found = sequences_.find(id);
    return found == sequences_.end() || found->second->finished;
  };
  if (!is_first) {
    for (Message& message : inbox_.drain(false)) handle(message);
    if (ended()) return false;
  }
  emit_token(sequence, sampled);
  return !ended();
}

void Engine::emit_token(Sequence& sequence, const Sampled& sampled) {
  const Request& request = sequence.request;
  if (sampled.token < 0 || sampled.token >= runner_.info().n_vocab) {
    sequence.has_nan = true;  // NaN in the cache may be why no token can follow
    return finish(sequence, FinishReason::kError,
                  sequence.constraint
                      ? "no token is left here that the constraint, the biases and the model's output all allow"
                      : "the model's output allows no token here");
  }
  sequence.last_token = Clock::now();
  if (sequence.n_output() == 0) sequence.first_token = sequence.last_token;
  if (sequence.n_drafts > 0) {
    --sequence.n_drafts;  // the token was a draft and is at its final place already
  } else {
    sequence.tokens.push_back(sampled.token);
  }
  ++counts_.n_output_tokens;
  if (request.stops_at(sampled.token)) return finish(sequence, FinishReason::kStop, "", sampled.token);
  bool is_over = false;
  try {
    const bool reads = reads_here(sequence) && read_token(sequence, sampled.token);
    request.sink->on_token(sampled);
    is_over = reads && ends_here(sequence);
  } catch (const std::exception& error) {
    return finish(sequence, FinishReason::kError, message_of(error));
  }
  if (is_over) return finish(sequence, FinishReason::kStop);
  // If a worker reads the token, the answer may be over too (go_on).
  if (sequence.len() == sequence.max_len && !sequence.waits_for_mask) finish(sequence, FinishReason::kLength);
}

}  // namespace ingot

// The engine's part of speculation: turns guesses into drafts of the next step, and compares drafts with sampled
// tokens.
#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/device_lost.h"
#include "engine/engine.h"
#include "engine/faults.h"

namespace ingot {

// Called after each delivered token. Compares the last guess with that token. Asks proposers that are not costly for
// the next guess.
void Engine::propose(Sequence& sequence) {
  Proposal& guess = sequence.guess;
  const std::span<const int32_t> history = sequence.tokens;
  sequence.proposed.clear();
  for (size_t i = 0; sequence.guess_at > 0 && i < guess.tokens.size() && sequence.guess_at + i < history.size(); ++i) {
    const bool is_right = guess.tokens[i] == history[sequence.guess_at + i];
    const int evidence = guess.evidence + static_cast<int>(i);
    sequence.acceptance.add(evidence, is_right);
    acceptance_.add(evidence, is_right);
    if (i == 0) judge_trial(sequence, is_right);
    if (!is_right) break;
  }
  sequence.guess_at = 0;
  if (sequence.request.proposer->is_costly()) {
    // Answers shorter than the wait have no trial of their own. They share one per kTokensOfShortAnswers tokens.
    constexpr int kTokensOfShortAnswers = 1024;
    const bool is_first = sequence.n_sampling_steps == 1;
    if (is_first) sequence.next_trial = sequence.trial_wait = first_trial_;
    sequence.n_unguessed += is_first && n_unguessed_ >= kTokensOfShortAnswers ? sequence.next_trial : 1;
    n_unguessed_ = std::min(n_unguessed_ + 1, kTokensOfShortAnswers);
    return;
  }
  try {
    ask_for_guess(sequence, kMaxDrafts);
  } catch (const std::exception& error) {
    finish(sequence, FinishReason::kError, message_of(error));
  }
}

// Cuts the guess before its first token that is not in the vocabulary. May throw.
void Engine::ask_for_guess(Sequence& sequence, int n) {
  Proposal& guess = sequence.guess;
  guess = sequence.request.proposer->propose(sequence.tokens, n);
  const auto no_token = [&](int32_t token) { return token < 0 || token >= runner_.info().n_vocab; };
  guess.tokens.erase(std::ranges::find_if(guess.tokens, no_token), guess.tokens.end());
  guess.tokens.resize(std::min(guess.tokens.size(), static_cast<size_t>(n)));
  sequence.guess_at = sequence.len();
  sequence.n_unguessed = n_unguessed_ = 0;
}

// Called before a plan: chooses the drafts that its step verifies. Returns whether the time of the step should be
// recorded for later choices. While a step computes a long prompt, no drafts are chosen, because the prompt fills the
// step.
//
// If steps overlap, the last token of a sequence is not known yet. If drafts pay, the sequence waits for that token.
// All sequences with guesses wait together. If they waited separately, each would miss every second step. With several
// stages, every sequence waits for its last token.
bool Engine::choose_drafts() {
  offers_.clear(), offering_.clear();
  int n_seqs = 0, n_rows = 0;
  bool adapts = false, reads_prompt = false, some_unseen = false, has_drafts = false;
  for (Sequence* sequence : scheduler_.running()) {
    sequence->waits_for_draw = false;
    if (sequence->done_when_seen()) continue;
    const int n_todo = sequence->n_todo();  // below 1: drafts are in flight
    ++n_seqs;
    n_rows += std::max(1, n_todo);
    reads_prompt |= n_todo > 1 + kMaxDrafts;
    if (!sequence->request.proposer) continue;
    const bool is_adaptive = sequence->request.proposer->adapts();
    adapts |= is_adaptive;
    some_unseen |= is_adaptive && sequence->n_unseen > 0;
    has_drafts |= is_adaptive && n_todo < 1;
    if (n_todo == 1) offer_drafts(*sequence);
  }
  if (!reads_prompt) {
    draft_lengths_.choose(offers_, n_seqs, n_rows);
    for (size_t i = 0; i < offering_.size(); ++i) try_again(*offering_[i], offers_[i], n_seqs, n_rows);
  }
  has_drafts |= std::ranges::any_of(offers_, [](const DraftOffer& o) { return o.n_chosen > 0; });
  const bool waits = some_unseen && has_drafts;
  const bool wait_together = runner_.info().n_stages == 1;
  for (Sequence* sequence : offering_)
    sequence->waits_for_draw =
        wait_together && sequence->request.proposer->adapts() ? waits : sequence->n_unseen > 0;
  ask_draft_head();
  for (size_t i = 0; i < offering_.size(); ++i)
    if (offering_[i] != nullptr && !offering_[i]->waits_for_draw && offering_[i]->n_unseen == 0)
      bring_drafts(*offering_[i], offers_[i].n_chosen);
  return adapts;
}

// Adds an offer with the gain of each draft of the guess. For a costly proposer, these are gains of a guess not made
// yet. If the proposer does not adapt, the offer is empty, because all drafts are verified.
void Engine::offer_drafts(Sequence& sequence) {
  offering_.push_back(&sequence);
  DraftOffer& offer = offers_.emplace_back();
  const Proposer& proposer = *sequence.request.proposer;
  if (!proposer.adapts() || (!proposer.is_costly() && sequence.guess_at != sequence.len())) return;
  const int evidence = proposer.is_costly() ? 0 : sequence.guess.evidence;
  const int n_guessed = proposer.is_costly() ? kMaxDrafts : static_cast<int>(sequence.guess.tokens.size());
  double gain = 1;
  for (; offer.n < std::min(n_guessed, sequence.max_len - sequence.planned_len() - 1); ++offer.n)
    offer.gains[offer.n] = gain *= sequence.acceptance.of(evidence + offer.n, acceptance_);
}

// If a costly proposer's drafts do not pay, it is tried again after next_trial tokens with one draft, because the text
// may have become predictable.
void Engine::try_again(Sequence& sequence, DraftOffer& offer, int n_seqs, int n_rows) {
  sequence.is_trial = sequence.request.proposer->is_costly() && offer.n_chosen == 0 && offer.n > 0 &&
                      sequence.n_unguessed >= sequence.next_trial;
  if (!sequence.is_trial) return;
  offer.n_chosen = 1;
  sequence.trial_can_pay = draft_lengths_.can_pay(n_seqs, n_rows);
}

// After each failed trial, the wait until the next trial doubles. After a right guess, the next trial comes soon,
// because a few right guesses show that the text has changed. The first waits are short, because an answer may begin
// with a few wrong guesses by chance; but later sequences begin with the wait that the last one has reached. If drafts
// cannot pay even when they are right, a right guess counts as a failed trial.
void Engine::judge_trial(Sequence& sequence, bool was_right) {
  constexpr int kTokensAfterARightGuess = 4, kMaxTrialWait = 1 << 20, kMaxFirstTrial = 128;
  if (was_right && (!sequence.is_trial || sequence.trial_can_pay)) {
    sequence.next_trial = kTokensAfterARightGuess;
    sequence.trial_wait = kShortestTrialWait;
  } else {
    if (sequence.is_trial) sequence.trial_wait = std::min(2 * sequence.trial_wait, kMaxTrialWait);
    sequence.next_trial = sequence.trial_wait;
  }
  first_trial_ = std::min(sequence.trial_wait, kMaxFirstTrial);
}

// Turns the first n tokens of the guess into drafts, or all tokens if the proposer does not adapt.
void Engine::bring_drafts(Sequence& sequence, int n) {
  sequence.proposed.clear();
  const bool is_fixed = !sequence.request.proposer->adapts();
  if (n == 0 && !is_fixed) return;
  try {
    if (sequence.request.proposer->is_costly() && !sequence.request.proposer->drafts_of_head(n))
      ask_for_guess(sequence, n);
    if (sequence.guess_at != sequence.len()) return;
    const std::span<const int32_t> tokens = sequence.guess.tokens;
    const std::span<const int32_t> drafts = is_fixed ? tokens : tokens.first(std::min<size_t>(n, tokens.size()));
    sequence.proposed.assign(drafts.begin(), drafts.end());
    if (sequence.constraint) cut_drafts(sequence);
  } catch (const std::exception& error) {
    finish(sequence, FinishReason::kError, message_of(error));
  }
}

// Asks the draft head for the drafts of all its sequences in this step at once. The head continues from the last
// forward pass, so a sequence that was not part of that pass gets no drafts.
void Engine::ask_draft_head() {
  if (!in_flight_.empty()) return;
  struct Asking {
    Sequence** sequence;
    int n;
  };
  std::vector<Asking> asking;
  for (size_t i = 0; i < offering_.size(); ++i) {
    Sequence& sequence = *offering_[i];
    const std::optional<int> wanted = sequence.request.proposer->drafts_of_head(offers_[i].n_chosen);
    if (!wanted || sequence.waits_for_draw || sequence.head_step != counts_.n_steps - 1) continue;
    const int n = scheduler_.make_room_for_drafts(sequence, std::min(*wanted, kMaxDrafts));
    if (n > 0) asking.push_back({&offering_[i], n});
  }
  if (asking.empty()) return;
  std::ranges::stable_sort(asking, std::greater(), &Asking::n);
  std::vector<DraftRow> rows;
  for (const auto& [sequence, n] : asking)
    rows.push_back({(*sequence)->head_row, (*sequence)->n_computed - 1, (*sequence)->blocks, n});
  try {
    const std::vector<int32_t> drafts = runner_.draft(rows);
    auto next = drafts.begin();
    for (const auto& [sequence, n] : asking) {
      (*sequence)->guess = {.tokens = {next, next + n}};
      (*sequence)->guess_at = (*sequence)->len();
      (*sequence)->n_unguessed = n_unguessed_ = 0;
      next += n;
    }
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    for (const auto& [sequence, n] : asking)
      finish(*std::exchange(*sequence, nullptr), FinishReason::kError, message_of(error));
  }
}

// Cuts the drafts before the first token that the constraint refuses. Also cuts them after the first token after which
// the grammar forces text, because forced text needs no sampling.
void Engine::cut_drafts(Sequence& sequence) {
  AnswerConstraint& constraint = *sequence.constraint;
  AnswerConstraint::Place place = constraint.place();
  std::vector<int32_t> output(sequence.tokens.begin() + sequence.n_prompt, sequence.tokens.end());
  size_t n = 0;
  while (n < sequence.proposed.size() && constraint.accept(sequence.proposed[n])) {
    output.push_back(sequence.proposed[n++]);
    if (output.size() + sequence.n_prompt >= static_cast<size_t>(sequence.max_len)) break;
    if (!forced_tokens(sequence, output).empty()) break;
  }
  sequence.proposed.resize(n);
  constraint.go_back(std::move(place));
}

// Returns the number of accepted drafts: the longest run of drafts that equal the tokens sampled in their places. Cuts
// the other drafts off. A token that ends the output is the last one, so drafts from that token on are not accepted.
int Engine::accept(Sequence& sequence, std::span<const Sampled> drawn) {
  const std::span<const int32_t> drafts = std::span<const int32_t>(sequence.tokens).last(sequence.n_drafts);
  size_t n = 0;
  while (!sequence.finished && n < drafts.size() && drawn[n].token == drafts[n] &&
         !sequence.request.stops_at(drafts[n]))
    ++n;
  ++counts_.n_drafts;
  counts_.n_draft_tokens += sequence.n_drafts;
  counts_.n_accepted_tokens += static_cast<int64_t>(n);
  for (size_t i = 0; i < n; ++i) ++counts_.n_accepted_at[i];
  sequence.n_drafted += sequence.n_drafts;
  sequence.n_accepted += static_cast<int>(n);
  sequence.tokens.resize(sequence.len() + n);
  sequence.n_drafts = static_cast<int>(n);
  return sequence.n_drafts;
}

// If steps follow each other directly, the time of a step is measured from the end of the last step.
void Engine::add_step_time(const InFlightStep& step, Clock::time_point last) {
  const Clock::duration time = step.stats.emitted - std::max(step.stats.begin, last);
  draft_lengths_.add_step(step.shape, std::chrono::duration<double>(time).count());
}

// Records the gain by drafts: the time of the step, and the time that steps without drafts would have taken for the
// same tokens. Both are the minimum times that choose the drafts, so a short slowdown of the machine does not appear as
// a loss.
void Engine::add_gain(Sequence& sequence, const InFlightStep& step, int n_tokens) {
  const int n_seqs = step.shape.n_seqs;
  const std::optional<double> seconds = draft_lengths_.seconds_of(step.shape),
                              plain = draft_lengths_.seconds_of({n_seqs, n_seqs});
  if (!step.is_timed || !seconds || !plain) return;
  sequence.step_seconds += *seconds, counts_.step_seconds += *seconds;
  sequence.plain_seconds += n_tokens * *plain, counts_.plain_seconds += n_tokens * *plain;
}

}  // namespace ingot

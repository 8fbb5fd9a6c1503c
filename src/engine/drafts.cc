#include "engine/drafts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/device_lost.h"
#include "base/log.h"

namespace ingot {
namespace {

constexpr int kTokensAfterARightGuess = 4;  // until the next trial

// The level of evidence of draft i.
size_t level_of(const Proposal& guess, size_t i) {
  return guess.probabilities.empty() ? Acceptance::level_of_match(guess.evidence + static_cast<int>(i))
                                     : Acceptance::level_of_probability(guess.probabilities[i]);
}

// Drafts that the sequence has room for.
int room_for_drafts(const Sequence& sequence) {
  return std::clamp(sequence.max_len - sequence.planned_len() - 1, 0, kMaxDrafts);
}

}  // namespace

Drafts::Drafts(Runner& runner, Scheduler& scheduler, int depth, std::function<void(Sequence&)> cut)
    : runner_(runner),
      scheduler_(scheduler),
      depth_(depth),
      cut_(std::move(cut)),
      draft_lengths_(runner.info().max_seqs, runner.info().max_logits - runner.info().max_seqs, depth > 1) {
  offers_.reserve(runner.info().max_seqs);
  offering_.reserve(runner.info().max_seqs);
}

// Compares the last guess with the delivered token. Asks proposers that are not costly for the next guess.
void Drafts::compare(Sequence& sequence) {
  Proposal& guess = sequence.guess;
  const std::span<const int32_t> history = sequence.tokens;
  sequence.proposed.clear();
  for (size_t i = 0; sequence.guess_at > 0 && i < guess.tokens.size() && sequence.guess_at + i < history.size(); ++i) {
    const bool is_right = guess.tokens[i] == history[sequence.guess_at + i];
    const size_t level = level_of(guess, i);
    sequence.acceptance.add(level, is_right);
    (guess.probabilities.empty() ? of_matches_ : of_probabilities_).add(level, is_right);
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
    stop_drafts(sequence, error);
  }
}

// Drafts only make a request faster. So when they fail, the request goes on without them.
void Drafts::stop_drafts(Sequence& sequence, const std::exception& error) {
  if (!std::exchange(has_failed_drafts_, true))
    log_warn("drafts are off for this request, and for others that fail like it: {}", error.what());
  sequence.request.proposer = nullptr;
  sequence.proposed.clear();
  sequence.guess_at = 0;
}

// The function that stops a costly proposer: the probability that all its drafts are right, by how often drafts with
// these probabilities were right, must be at least that in least_gains_. Empty: the proposer makes all drafts. In a
// step of several sequences, the proposer makes the chosen number of drafts, so that the time of the step is that of
// its rows.
GoesOn Drafts::gate_of(const Sequence& sequence) const {
  if (!sequence.request.proposer->adapts() || n_decoding_ > 1) return {};
  return [&sequence, this, gain = 1.0, n = size_t{0}](float probability) mutable {
    gain *= sequence.acceptance.of(Acceptance::level_of_probability(probability), of_probabilities_);
    return n < least_gains_.size() && gain >= least_gains_[n++];
  };
}

// The number of drafts of a costly guess that the step verifies: not the draft at which the proposer stopped. A trial
// verifies the first draft in any case, because its time shows what drafts cost.
size_t Drafts::n_worth_verifying(const Sequence& sequence) const {
  const std::vector<float>& probabilities = sequence.guess.probabilities;
  GoesOn goes_on = gate_of(sequence);
  size_t n = 0;
  while (n < probabilities.size() && (!goes_on || goes_on(probabilities[n]))) ++n;
  return std::max<size_t>(n, sequence.is_trial && !probabilities.empty() ? 1 : 0);
}

// Cuts the guess before its first token that is not in the vocabulary. May throw.
void Drafts::ask_for_guess(Sequence& sequence, int n) {
  Proposal& guess = sequence.guess;
  guess = sequence.request.proposer->propose(sequence.tokens, n, gate_of(sequence));
  const auto no_token = [&](int32_t token) { return token < 0 || token >= runner_.info().n_vocab; };
  guess.tokens.erase(std::ranges::find_if(guess.tokens, no_token), guess.tokens.end());
  guess.tokens.resize(std::min(guess.tokens.size(), static_cast<size_t>(n)));
  sequence.guess_at = sequence.len();
  sequence.n_unguessed = n_unguessed_ = 0;
}

// While a step computes a long prompt, no drafts are chosen, because the prompt fills the step.
//
// If steps overlap, the last token of a sequence is not known yet. If drafts pay, the sequence waits for that token.
// All sequences with guesses wait together. If they waited separately, each would miss every second step. With several
// stages, every sequence waits for its last token.
DraftedStep Drafts::choose(int64_t step, bool is_idle) {
  step_ = step, is_idle_ = is_idle;
  offers_.clear(), offering_.clear();
  chosen_ = {};
  int n_seqs = 0, n_rows = 0;
  bool adapts = false, reads_prompt = false, some_unseen = false, has_drafts = false, thinks_ahead = false;
  for (Sequence* sequence : scheduler_.running()) {
    sequence->waits_for_draw = false;
    if (sequence->done_when_seen() || sequence->waits_for_mask) continue;
    const int n_todo = sequence->n_todo();  // below 1: drafts are in flight
    ++n_seqs;
    n_rows += std::max(1, n_todo);
    reads_prompt |= n_todo > 1 + kMaxDrafts;
    if (!sequence->request.proposer) continue;
    const bool is_adaptive = sequence->request.proposer->adapts();
    adapts |= is_adaptive;
    thinks_ahead |= sequence->request.proposer->thinks_ahead();
    some_unseen |= is_adaptive && sequence->n_unseen > 0;
    has_drafts |= is_adaptive && n_todo < 1;
    if (n_todo == 1) offer_drafts(*sequence);
  }
  n_decoding_ = n_seqs;
  draft_lengths_.set_ahead(depth_ > 1 && n_seqs == 1 && thinks_ahead);
  if (!reads_prompt) {
    choose_lengths(n_seqs, n_rows);
    try_again(n_seqs, n_rows);
    let_costly_guess_grow(n_seqs, n_rows);
  }
  if (std::ranges::any_of(offers_, [](const DraftOffer& o) { return o.n_chosen > 0; }))
    has_drafts = true, last_drafts_ = step_;
  const bool waits = some_unseen && has_drafts;
  const bool wait_together = runner_.info().n_stages == 1;
  for (Sequence* sequence : offering_)
    sequence->waits_for_draw =
        wait_together && sequence->request.proposer->adapts() ? waits : sequence->n_unseen > 0;
  ask_draft_head();
  const auto is_ready = [](const Sequence* s) { return s != nullptr && !s->waits_for_draw && s->n_unseen == 0; };
  for (size_t i = 0; i < offering_.size(); ++i)
    if (is_ready(offering_[i]) && !begin_guess(*offering_[i], offers_[i].n_chosen)) offering_[i] = nullptr;
  for (size_t i = 0; i < offering_.size(); ++i)
    if (is_ready(offering_[i])) bring_drafts(*offering_[i], offers_[i].n_chosen);
  chosen_.is_timed = adapts;
  return chosen_;
}

// Adds an offer with the gain of each draft of the guess. The guess of a costly proposer is not made yet: its first
// drafts have the gain of the mean guess, and further drafts have less and less. If the proposer does not adapt, the
// offer is empty, because all drafts are verified.
void Drafts::offer_drafts(Sequence& sequence) {
  offering_.push_back(&sequence);
  DraftOffer& offer = offers_.emplace_back();
  const Proposer& proposer = *sequence.request.proposer;
  if (!proposer.adapts() || (!proposer.is_costly() && sequence.guess_at != sequence.len())) return;
  if (proposer.is_costly()) {
    const double n = sequence.draft_yield.n_drafts(draft_yield_);
    const int n_usual = std::max(1, static_cast<int>(std::lround(n)));
    const double share = sequence.draft_yield.n_right(draft_yield_) / n_usual;
    for (double gain = share; offer.n < room_for_drafts(sequence); ++offer.n)
      offer.gains[offer.n] = gain *= offer.n < n_usual ? 1 : share;
    return;
  }
  double gain = 1;
  for (; offer.n < std::min(static_cast<int>(sequence.guess.tokens.size()), room_for_drafts(sequence)); ++offer.n)
    offer.gains[offer.n] = gain *= sequence.acceptance.of(level_of(sequence.guess, offer.n), of_matches_);
}

// Steps of several sequences with drafts of a costly proposer are measured in trials. Otherwise, one of these steps
// would follow whenever the measurements have expired. So without a recent measurement, costly proposers get no drafts
// here. With many sequences, a choice may take a tenth of a small model's step. So after some steps without drafts,
// only every kStepsOfAChoice-th step chooses for costly proposers.
void Drafts::choose_lengths(int n_seqs, int n_rows) {
  constexpr int kStepsOfAChoice = 16, kFewSteps = 8;
  const bool is_time = step_ - last_drafts_ <= kFewSteps || step_ % kStepsOfAChoice == 0;
  const bool all_count = n_seqs == 1 || (is_time && draft_lengths_.has_measured(n_rows));
  const auto counts = [&](const Sequence* s) { return all_count || !s->request.proposer->is_costly(); };
  if (std::ranges::any_of(offering_, counts)) draft_lengths_.choose(offers_, n_seqs, n_rows);
  for (size_t i = 0; i < offering_.size(); ++i)
    if (!counts(offering_[i])) offers_[i].n_chosen = 0;
}

// In a step of one sequence, a costly proposer stops by itself, so it may make more drafts than its mean. This also
// holds for a trial, unless drafts cannot pay.
void Drafts::let_costly_guess_grow(int n_seqs, int n_rows) {
  if (n_seqs != 1 || offers_.empty() || offers_[0].n_chosen == 0) return;
  for (int n = 1; n <= kMaxDrafts; ++n) least_gains_[static_cast<size_t>(n) - 1] = draft_lengths_.least_gain(n_rows, n);
  const Sequence& sequence = *offering_[0];
  if (!sequence.request.proposer->is_costly() || (sequence.is_trial && !sequence.trial_can_pay)) return;
  const int max_drafts = std::min(draft_lengths_.most_drafts(n_rows), room_for_drafts(sequence));
  offers_[0].n_chosen = std::max(offers_[0].n_chosen, max_drafts);
}

// If a costly proposer's drafts do not pay, it is tried again after next_trial tokens, because the text may have become
// predictable. A trial of one sequence has several drafts, as far as they are probable. With one draft, the time of the
// trial would hardly show what a further draft costs: on a GPU, most of the time is the wait for the last token. A
// trial of several sequences has one draft of each, in a few steps: the first ones are slow, because the proposer may
// have to read text, and a GPU records a new kind of step.
void Drafts::try_again(int n_seqs, int n_rows) {
  constexpr int kDraftsOfATrial = 3, kStepsOfATrial = 4;
  const auto can_try = [&](size_t i) {
    return offering_[i]->request.proposer->is_costly() && offers_[i].n_chosen == 0 && offers_[i].n > 0;
  };
  const auto is_due = [&](size_t i) {
    const Sequence& sequence = *offering_[i];
    const bool is_promising = n_seqs == 1 && sequence.next_trial == kTokensAfterARightGuess;
    return can_try(i) && sequence.n_unguessed >= sequence.next_trial &&
           (is_promising || decode_seconds_ >= next_trial_);
  };
  bool begins = false;
  for (size_t i = 0; i < offering_.size(); ++i) begins |= is_due(i);
  if (n_seqs == 1) trial_steps_ = 0;
  if (n_seqs > 1 && begins && trial_steps_ == 0) trial_steps_ = kStepsOfATrial;
  for (size_t i = 0; i < offering_.size(); ++i) {
    Sequence& sequence = *offering_[i];
    sequence.is_trial = n_seqs == 1 ? begins : trial_steps_ > 0 && can_try(i);
    if (!sequence.is_trial) continue;
    offers_[i].n_chosen = n_seqs == 1 ? std::min(offers_[i].n, kDraftsOfATrial) : 1;
    sequence.trial_can_pay = draft_lengths_.can_pay(n_seqs, n_rows);
    chosen_.has_trial = true;
  }
  if (chosen_.has_trial && trial_steps_ > 0) --trial_steps_;
}

// After each failed trial, the wait until the next trial doubles. After a right guess, the next trial comes soon,
// because a few right guesses show that the text has changed. The first waits are short, because an answer may begin
// with a few wrong guesses by chance; but later sequences begin with the wait that the last one has reached. If drafts
// cannot pay even when they are right, a right guess counts as a failed trial.
void Drafts::judge_trial(Sequence& sequence, bool was_right) {
  constexpr int kMaxTrialWait = 1 << 20, kMaxFirstTrial = 128;
  if (was_right && (!sequence.is_trial || sequence.trial_can_pay)) {
    sequence.next_trial = kTokensAfterARightGuess;
    sequence.trial_wait = kShortestTrialWait;
  } else {
    if (sequence.is_trial) sequence.trial_wait = std::min(2 * sequence.trial_wait, kMaxTrialWait);
    sequence.next_trial = sequence.trial_wait;
  }
  first_trial_ = std::min(sequence.trial_wait, kMaxFirstTrial);
}

// Whether bring_drafts asks the proposer.
bool Drafts::asks_now(const Sequence& sequence, int n) const {
  const Proposer& proposer = *sequence.request.proposer;
  return proposer.is_costly() && !proposer.drafts_of_head(n) && (n > 0 || !proposer.adapts());
}

// Returns false if the sequence gets no drafts any more.
bool Drafts::begin_guess(Sequence& sequence, int n) {
  try {
    if (asks_now(sequence, n)) sequence.request.proposer->begin(sequence.tokens);
    return true;
  } catch (const std::exception& error) {
    stop_drafts(sequence, error);
    return false;
  }
}

// Turns the first n tokens of the guess into drafts, or all tokens if the proposer does not adapt.
void Drafts::bring_drafts(Sequence& sequence, int n) {
  sequence.proposed.clear();
  const bool is_fixed = !sequence.request.proposer->adapts();
  if (n == 0 && !is_fixed) return;
  try {
    if (asks_now(sequence, n)) ask_for_guess(sequence, n);
    if (sequence.guess_at != sequence.len()) return;
    chosen_.made_ahead |= sequence.guess.made_ahead;
    std::span<const int32_t> drafts = sequence.guess.tokens;
    if (!is_fixed) drafts = drafts.first(std::min<size_t>(n, drafts.size()));
    if (!is_fixed && !sequence.guess.probabilities.empty()) {
      drafts = drafts.first(std::min(n_worth_verifying(sequence), drafts.size()));
      if (drafts.empty()) add_yield(sequence, 0, 0), ++chosen_.n_vain_guesses;
    }
    sequence.proposed.assign(drafts.begin(), drafts.end());
  } catch (const std::exception& error) {
    return stop_drafts(sequence, error);
  }
  if (sequence.constraint) cut_(sequence);
}

// Asks the draft head for the drafts of all its sequences in this step at once. The head continues from the last
// forward pass, so a sequence that was not part of that pass gets no drafts.
void Drafts::ask_draft_head() {
  if (!is_idle_) return;
  struct Asking {
    Sequence** sequence;
    int n;
  };
  std::vector<Asking> asking;
  for (size_t i = 0; i < offering_.size(); ++i) {
    Sequence& sequence = *offering_[i];
    const std::optional<int> wanted = sequence.request.proposer->drafts_of_head(offers_[i].n_chosen);
    if (!wanted || sequence.waits_for_draw || sequence.head_step != step_ - 1) continue;
    const int n = scheduler_.make_room_for_drafts(sequence, std::min(*wanted, kMaxDrafts));
    if (n > 0) asking.push_back({&offering_[i], n});
  }
  if (asking.empty()) return;
  std::ranges::stable_sort(asking, std::greater(), &Asking::n);
  std::vector<DraftRow> rows;
  for (const auto& [sequence, n] : asking)
    rows.push_back({(*sequence)->head_row, (*sequence)->n_computed - 1, (*sequence)->pools[0].blocks, n});
  std::vector<GoesOn> gates;
  for (const auto& [sequence, n] : asking) gates.push_back(gate_of(**sequence));
  try {
    const auto drafts =
        runner_.draft(rows, [&](size_t row, float probability) { return !gates[row] || gates[row](probability); });
    for (size_t i = 0; i < asking.size(); ++i) {
      Sequence& sequence = **asking[i].sequence;
      sequence.guess = {};
      for (const auto& [token, probability] : drafts[i]) {
        sequence.guess.tokens.push_back(token);
        sequence.guess.probabilities.push_back(probability);
      }
      sequence.guess_at = sequence.len();
      sequence.n_unguessed = n_unguessed_ = 0;
    }
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    for (const auto& [sequence, n] : asking) stop_drafts(*std::exchange(*sequence, nullptr), error);
  }
}

void Drafts::think_ahead(const Step& step) {
  const StepItem& item = step.items.front();
  Sequence& sequence = *item.sequence;
  if (depth_ == 1 || step.items.size() > 1 || item.n_drafts == 0 || sequence.finished) return;
  try {
    sequence.request.proposer->think_ahead([this] { return runner_.is_drawn(); });
  } catch (const std::exception& error) {
    stop_drafts(sequence, error);
  }
}

// Returns the number of accepted drafts: the longest run of drafts that equal the tokens sampled in their places. Cuts
// the other drafts off. A token that ends the output is the last one, so drafts from that token on are not accepted.
int Drafts::accept(Sequence& sequence, std::span<const Sampled> drawn) {
  const std::span<const int32_t> drafts = std::span<const int32_t>(sequence.tokens).last(sequence.n_drafts);
  size_t n = 0;
  while (!sequence.finished && n < drafts.size() && drawn[n].token == drafts[n] &&
         !sequence.request.stops_at(drafts[n]))
    ++n;
  ++counts_.n_drafts;
  counts_.n_draft_tokens += sequence.n_drafts;
  counts_.n_accepted_tokens += static_cast<int64_t>(n);
  for (size_t i = 0; i < n; ++i) ++counts_.n_accepted_at[i];
  if (sequence.request.proposer && sequence.request.proposer->is_costly())
    add_yield(sequence, sequence.n_drafts, static_cast<int>(n));
  sequence.n_drafted += sequence.n_drafts;
  sequence.n_accepted += static_cast<int>(n);
  sequence.tokens.resize(sequence.len() + n);
  sequence.n_drafts = static_cast<int>(n);
  return sequence.n_drafts;
}

void Drafts::drop(Sequence& sequence) {
  sequence.tokens.resize(sequence.len());
  sequence.n_drafts = 0;
}

void Drafts::add_yield(Sequence& sequence, int n_drafts, int n_right) {
  sequence.draft_yield.add(n_drafts, n_right);
  draft_yield_.add(n_drafts, n_right);
}

// A step with vain guesses is neither one with drafts nor one without.
void Drafts::add_step_time(const DraftedStep& step, double seconds, int n_emitted) {
  decode_seconds_ += seconds;
  if (step.n_vain_guesses == 0) draft_lengths_.add_step(step.shape, seconds, step.made_ahead);
  if (step.has_trial) rest_after_trial(step, seconds, n_emitted);
}

// A trial may take as long as many steps, for example because a draft model has not read the text yet. All sequences
// wait for it. So the next trial is made when this one's loss is a small share of the time of steps, without pauses
// between requests. One sequence with drafts that can pay is an exception: its trials become rarer anyway, and should
// not be rare at the start.
void Drafts::rest_after_trial(const DraftedStep& step, double seconds, int n_emitted) {
  constexpr double kLossesToWait = 200;
  const int n_seqs = step.shape.n_seqs;
  if (n_seqs == 1 && draft_lengths_.can_pay(1, 1)) return;
  const double of_tokens =
      draft_lengths_.seconds_of({n_seqs, n_seqs}).value_or(0) * std::max(n_seqs, n_emitted) / n_seqs;
  next_trial_ = std::max(next_trial_, decode_seconds_) + kLossesToWait * std::max(0.0, seconds - of_tokens);
}

// Records the gain by drafts: the time of the step, and the time that steps without drafts would have taken for the
// same tokens. Both are the minimum times that choose the drafts, so a short slowdown of the machine does not appear as
// a loss. A step without drafts does less work, so it takes no longer than this step. Its measured time may be longer:
// few such steps are measured, the first ones with cold caches.
void Drafts::add_gain(Sequence& sequence, const DraftedStep& step, int n_tokens) {
  const int n_seqs = step.shape.n_seqs;
  StepShape shape = step.shape;
  shape.n_rows += step.n_vain_guesses;  // a vain guess takes about as long as a draft
  const std::optional<double> seconds = draft_lengths_.seconds_of(shape),
                              measured = draft_lengths_.seconds_of({n_seqs, n_seqs});
  if (!step.is_timed || !seconds || !measured) return;
  const double plain = n_tokens * std::min(*measured, *seconds);
  if (n_seqs == 1 && shape.n_rows > 1) draft_lengths_.add_speedup(plain, *seconds);
  sequence.step_seconds += *seconds, counts_.step_seconds += *seconds;
  sequence.plain_seconds += plain, counts_.plain_seconds += plain;
  ++sequence.n_gain_steps;
}

}  // namespace ingot

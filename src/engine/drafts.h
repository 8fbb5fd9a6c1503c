// Drafts: tokens that a step verifies. This class turns the guesses of proposers into drafts of the next step, chooses
// how many of them pay (speculate/draft_lengths.h), and compares drafts with sampled tokens. Only the engine's stepping
// thread uses it.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "engine/speculate/acceptance.h"
#include "engine/speculate/draft_lengths.h"
#include "model/program/runner.h"

namespace ingot {

// Counts since the start.
struct DraftCounts {
  int64_t n_drafts = 0;           // times that a sequence had drafts in a step
  int64_t n_draft_tokens = 0;     // drafts that steps verified
  int64_t n_accepted_tokens = 0;  // part of n_draft_tokens: equal to the sampled token
  int64_t n_accepted_at[kMaxDrafts] = {};  // accepted drafts by their place in the step
  double step_seconds = 0;   // measured time of decode steps of sequences with a proposer
  double plain_seconds = 0;  // time that steps without drafts would have taken for the same tokens
};

// What later choices need to know about a step.
struct DraftedStep {
  bool is_timed = false;    // the step's time is recorded, to learn the cost of drafts
  int n_vain_guesses = 0;   // costly guesses without a draft that was worth verifying
  bool has_trial = false;   // of a costly proposer
  bool made_ahead = false;  // the drafts were made during the last step, so this step's time does not contain them
  StepShape shape = {};     // set when the step is planned
};

class Drafts {
 public:
  // depth: the most steps in flight. cut: cuts the drafts that a sequence brings (Sequence::proposed) to those that its
  // constraint accepts. If the constraint fails, cut ends the request.
  Drafts(Runner& runner, Scheduler& scheduler, int depth, std::function<void(Sequence&)> cut);

  // Before a plan: chooses the drafts that step number `step` verifies. is_idle: no step is in flight.
  DraftedStep choose(int64_t step, bool is_idle);
  // After each delivered token, for a sequence with a proposer.
  void compare(Sequence& sequence);
  // While a device verifies the drafts of a single sequence, its proposer makes further drafts.
  void think_ahead(const Step& step);
  int accept(Sequence& sequence, std::span<const Sampled> drawn);
  static void drop(Sequence& sequence);
  // A timed step has ended. n_emitted: tokens that it delivered.
  void add_step_time(const DraftedStep& step, double seconds, int n_emitted);
  void add_gain(Sequence& sequence, const DraftedStep& step, int n_tokens);
  const DraftCounts& counts() const { return counts_; }

 private:
  void offer_drafts(Sequence& sequence);
  void choose_lengths(int n_seqs, int n_rows);
  void let_costly_guess_grow(int n_seqs, int n_rows);
  void try_again(int n_seqs, int n_rows);
  void judge_trial(Sequence& sequence, bool was_right);
  void rest_after_trial(const DraftedStep& step, double seconds, int n_emitted);
  bool asks_now(const Sequence& sequence, int n) const;
  bool begin_guess(Sequence& sequence, int n);
  void bring_drafts(Sequence& sequence, int n);
  void ask_for_guess(Sequence& sequence, int n);
  void ask_draft_head();
  void stop_drafts(Sequence& sequence, const std::exception& error);
  GoesOn gate_of(const Sequence& sequence) const;
  size_t n_worth_verifying(const Sequence& sequence) const;
  void add_yield(Sequence& sequence, int n_drafts, int n_right);

  Runner& runner_;
  Scheduler& scheduler_;
  const int depth_;
  const std::function<void(Sequence&)> cut_;
  DraftCounts counts_;
  DraftLengths draft_lengths_;
  // Of all sequences' drafts, by kind of evidence.
  Acceptance of_matches_{256}, of_probabilities_{256, Acceptance::Evidence::kProbability};
  DraftYield draft_yield_{256};            // of all sequences' costly guesses
  bool has_failed_drafts_ = false;         // the warning has been given
  double decode_seconds_ = 0;              // time of all steps of sequences that may have drafts
  double next_trial_ = 0;                  // none is made before these decode_seconds_, except soon after a right guess
  int n_unguessed_ = 0;                    // tokens since the last guess of any costly proposer
  int64_t last_drafts_ = 0;                // the last step for which drafts were chosen
  int trial_steps_ = 0;                    // steps of several sequences that the trial in progress still has
  int first_trial_ = kShortestTrialWait;   // trial_wait of a new sequence

  // Within choose().
  int64_t step_ = 0;
  bool is_idle_ = true;
  DraftedStep chosen_;
  int n_decoding_ = 0;                     // sequences of the step
  std::array<double, kMaxDrafts> least_gains_{};  // of the step's drafts (DraftLengths)
  std::vector<DraftOffer> offers_;         // of the decoding sequences with a proposer,
  std::vector<Sequence*> offering_;        // and those sequences; null: the drafts have failed
};

}  // namespace ingot

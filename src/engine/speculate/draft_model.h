// DraftModel: a small model with the same vocabulary guesses the next tokens of the large model (Leviathan et al.,
// arXiv:2211.17192). Unlike in that paper, a guess is the small model's likeliest token, and is accepted if the large
// model samples the same token. So the output is the large model's. The small model runs in an engine of its own, whose
// prefix cache keeps the computed tokens of each sequence. Only the thread of the large model's engine calls this
// class.
#pragma once
#include <memory>

#include "engine/speculate/proposer.h"
#include "model/program/runner.h"

namespace ingot {

class Engine;

class DraftModel : public std::enable_shared_from_this<DraftModel> {
 public:
  explicit DraftModel(std::unique_ptr<Runner> runner);
  ~DraftModel();
  std::shared_ptr<Proposer> proposer();  // for one request; keeps the model alive
  // At most n tokens that the small model generates after `history`, with their probabilities. Fewer at the end of the
  // small model's context; none if its vocabulary lacks a token of `history`. Throws Error.
  Proposal write(std::span<const int32_t> history, int n, const GoesOn& goes_on = {}) {
    return end(begin(history), n, goes_on);
  }
  // The same in two parts. The small model computes all guesses that have begun in common steps, until one ends.
  // previous: the last guess for this sequence, or null. If its tokens were right, the new guess continues it.
  class Guess;
  std::shared_ptr<Guess> begin(std::span<const int32_t> history, const std::shared_ptr<Guess>& previous = nullptr);
  Proposal end(const std::shared_ptr<Guess>& guess, int n, const GoesOn& goes_on);
  // Continues the last guess until is_over() is true. Does nothing if several sequences have guesses, or if the small
  // model runs on a GPU, where it would delay the large model.
  void think_ahead(const std::function<bool()>& is_over);
  bool thinks_ahead() const;
  void drop(const Guess& guess);  // any thread
  uint64_t progress() const;      // as EngineGauges::progress; any thread

 private:
  int n_useful(const Guess& guess) const;

  const std::unique_ptr<Runner> runner_;
  const std::unique_ptr<Engine> engine_;
  std::shared_ptr<Guess> continued_;  // the last guess, whose request goes on; or null
  int n_begun_ = 0;                   // guesses that have begun since one ended
  bool has_ended_ = false;            // a guess has ended since one began
  double n_ahead_ = 0;                // drafts made while the device computes a step; 0: not known
};

}  // namespace ingot

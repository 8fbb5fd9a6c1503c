// DraftModel: a small model with the same vocabulary guesses the next tokens of the large model (Leviathan et al.,
// arXiv:2211.17192). Unlike in that paper, a guess is the small model's likeliest token, and is accepted if the large
// model samples the same token. So the output is the large model's. The small model runs in an engine of its own, whose
// prefix cache keeps the computed tokens of each sequence. Only the thread of the large model's engine calls this
// class.
#pragma once
#include <memory>

#include "engine/speculate/proposer.h"
#include "model/runner.h"

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
    return end(begin(history, n, goes_on));
  }
  // The same in two parts. The small model computes all guesses that have begun in common steps, until one ends.
  class Guess;
  std::shared_ptr<Guess> begin(std::span<const int32_t> history, int n, const GoesOn& goes_on);
  Proposal end(const std::shared_ptr<Guess>& guess);

 private:
  const std::unique_ptr<Runner> runner_;
  const std::unique_ptr<Engine> engine_;
};

}  // namespace ingot

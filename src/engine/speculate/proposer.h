// Proposer: guesses the next tokens of one sequence. A step verifies the guesses (drafts). If drafts are right, the
// sequence gets several tokens in one step. The output is the same with any drafts. Each kind of proposer has a file in
// this folder. draft_lengths.h decides how many drafts a step verifies.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

inline constexpr int kMaxDrafts = 15;  // of one sequence in one step

struct Proposal {
  std::vector<int32_t> tokens;  // the drafts; may be empty
  int evidence = 0;             // support for the first draft, such as the length of the match before it; at least 0
  std::vector<float> probabilities;  // that each draft is right, as a costly proposer estimates it
  bool made_ahead = false;           // at least the first draft was made by think_ahead()
};

// A costly proposer calls GoesOn after each draft, with the probability that the draft is right. If the result is
// false, the proposer makes no more drafts. Empty: the proposer makes all drafts.
using GoesOn = std::function<bool(float probability)>;

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Guesses at most n tokens that follow `history` (the prompt and the output). Each history begins with the history of
  // the last call. The engine's thread calls propose() for each token, so a call must be quick (but see is_costly). An
  // exception ends the request.
  virtual Proposal propose(std::span<const int32_t> history, int n, const GoesOn& goes_on = {}) = 0;
  // Begins the guess that the next propose() with the same history returns. The engine calls begin() for all
  // sequences of a step before it calls propose() for the first, so a model can compute their guesses in common steps.
  virtual void begin(std::span<const int32_t> /*history*/) {}
  // Called while a device verifies the last guess: makes further drafts until is_over() is true. If all drafts and the
  // token after them turn out to be right, the next guess has these drafts.
  virtual void think_ahead(const std::function<bool()>& /*is_over*/) {}
  virtual bool thinks_ahead() const { return false; }
  // True: the engine chooses how many drafts to verify, if any. False: each step verifies all drafts.
  virtual bool adapts() const { return true; }
  // True: a guess takes time, such as steps of a model. The engine then asks for a guess only if a step verifies it,
  // and not for each token, and the proposer stops when further drafts are improbable (GoesOn).
  virtual bool is_costly() const { return false; }
  // If the runner's draft head makes the guesses, for all sequences at once (Runner::draft): the number of drafts that
  // the head guesses. The engine then does not call propose(). n_chosen: the number that the engine chose. Empty:
  // propose() makes the guesses.
  virtual std::optional<int> drafts_of_head(int /*n_chosen*/) const { return std::nullopt; }
};

class DraftHeadProposer final : public Proposer {
 public:
  // n_fixed: the number of drafts that every step verifies; 0: the engine decides.
  explicit DraftHeadProposer(int n_fixed = 0) : n_fixed_(n_fixed) {}
  Proposal propose(std::span<const int32_t>, int, const GoesOn&) override { return {}; }
  bool adapts() const override { return n_fixed_ == 0; }
  bool is_costly() const override { return true; }
  std::optional<int> drafts_of_head(int n_chosen) const override { return n_fixed_ > 0 ? n_fixed_ : n_chosen; }

 private:
  const int n_fixed_;
};

}  // namespace ingot

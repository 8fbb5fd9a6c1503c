// Proposer: guesses the next tokens of one sequence. A step verifies the guesses (drafts): the sequence gets several
// tokens in one step where the drafts are right, and the same tokens in any case. Each kind of proposer has a file in
// this folder. draft_lengths.h decides how many drafts a step verifies.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

inline constexpr int kMaxDrafts = 15;  // of one sequence in one step

struct Proposal {
  std::vector<int32_t> tokens;  // the drafts; may be empty
  int evidence = 0;             // what supports the first draft, such as the tokens before it that match; at least 0
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Guesses at most n tokens that follow `history`, the prompt and the output. Each history begins with the history of
  // the last call. Called on the engine's thread for each token, so a call must be quick (but see is_costly). An
  // exception ends the request.
  virtual Proposal propose(std::span<const int32_t> history, int n) = 0;
  // False: each step verifies all drafts. True: the engine verifies as many drafts as pay, or none.
  virtual bool adapts() const { return true; }
  // True: a guess takes time, such as steps of a model. The engine then asks only for guesses that a step verifies, and
  // not for each token.
  virtual bool is_costly() const { return false; }
  // Where the runner's draft head guesses (Runner::draft), for all such sequences at once: the number of drafts. The
  // engine found that n_chosen pay. Nobody calls propose() then. Empty: propose() guesses.
  virtual std::optional<int> drafts_of_head(int /*n_chosen*/) const { return std::nullopt; }
};

class DraftHeadProposer final : public Proposer {
 public:
  // With a fixed number of drafts, every step verifies that many; 0: the engine decides.
  explicit DraftHeadProposer(int n_fixed = 0) : n_fixed_(n_fixed) {}
  Proposal propose(std::span<const int32_t>, int) override { return {}; }
  bool adapts() const override { return n_fixed_ == 0; }
  bool is_costly() const override { return true; }
  std::optional<int> drafts_of_head(int n_chosen) const override { return n_fixed_ > 0 ? n_fixed_ : n_chosen; }

 private:
  const int n_fixed_;
};

}  // namespace ingot

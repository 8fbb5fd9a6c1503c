// DraftModel: a small model with the tokens of the large one guesses what the large one will write (Leviathan et al.,
// arXiv:2211.17192; here the guess is the small model's likeliest token, and the draw of the large model accepts it, so
// the output is the large model's). An engine of its own runs the small model; its prefix cache finds what it has
// computed for a sequence before. All calls come from one thread, that of the large model's engine.
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
  std::shared_ptr<Proposer> proposer();  // for one request; the model lives as long as its proposers
  // The n tokens that the small model writes after `history`; fewer at the end of its context, and none after tokens
  // that it does not know. Throws Error.
  std::vector<int32_t> write(std::span<const int32_t> history, int n);

 private:
  const std::unique_ptr<Runner> runner_;
  const std::unique_ptr<Engine> engine_;
};

}  // namespace ingot

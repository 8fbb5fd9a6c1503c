// For tests and benchmarks with a given acceptance rate. OracleProposer: is given the output, and guesses each token
// right with a given probability. GivenAnswers: a model whose output is known in advance.
#pragma once
#include "engine/speculate/proposer.h"
#include "model/program/runner.h"

namespace ingot {

class OracleProposer final : public Proposer {
 public:
  // output: all tokens that will follow a prompt of n_prompt tokens. Each draft is right with probability p_right,
  // independently of the others. n_fixed: the number of drafts that every step verifies; 0: the engine decides.
  OracleProposer(std::vector<int32_t> output, size_t n_prompt, int n_vocab, double p_right, uint64_t seed,
                 int n_fixed = 0)
      : output_(std::move(output)),
        n_prompt_(n_prompt),
        n_vocab_(n_vocab),
        p_right_(p_right),
        seed_(seed),
        n_fixed_(n_fixed) {}
  Proposal propose(std::span<const int32_t> history, int n, const GoesOn& = {}) override;
  bool adapts() const override { return n_fixed_ == 0; }

 private:
  const std::vector<int32_t> output_;
  const size_t n_prompt_;
  const int n_vocab_;
  const double p_right_;
  const uint64_t seed_;
  const int n_fixed_;
};

// Runs a model, but samples tokens that depend only on a history's first token and its length. The model's own text
// cannot be predicted: on a GPU, drafts change the last bits of a step's logits, and one different token changes all
// later tokens.
class GivenAnswers final : public Runner {
 public:
  explicit GivenAnswers(Runner& runner) : runner_(runner) {}
  const RunnerInfo& info() const override { return runner_.info(); }
  void forward(const Batch& batch) override { runner_.forward(batch); }
  void sample(std::span<const SampleRow> rows) override;
  std::vector<Sampled> wait() override { return runner_.wait(); }

 private:
  Runner& runner_;
  std::vector<SampleRow> rows_;
  std::vector<SamplingParams> params_;  // of each row
};

}  // namespace ingot

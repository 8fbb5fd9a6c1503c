// OracleProposer: knows the output, and is right with a given probability. For tests and benchmarks: their acceptance
// can be set.
#pragma once
#include "engine/speculate/proposer.h"

namespace ingot {

class OracleProposer final : public Proposer {
 public:
  // output: all tokens that will follow a prompt of n_prompt tokens. Each draft is right with probability p_right,
  // whatever the others are. With a fixed number of drafts, every step verifies that many; 0: the engine decides.
  OracleProposer(std::vector<int32_t> output, size_t n_prompt, int n_vocab, double p_right, uint64_t seed,
                 int n_fixed = 0)
      : output_(std::move(output)),
        n_prompt_(n_prompt),
        n_vocab_(n_vocab),
        p_right_(p_right),
        seed_(seed),
        n_fixed_(n_fixed) {}
  Proposal propose(std::span<const int32_t> history, int n) override;
  bool adapts() const override { return n_fixed_ == 0; }

 private:
  const std::vector<int32_t> output_;
  const size_t n_prompt_;
  const int n_vocab_;
  const double p_right_;
  const uint64_t seed_;
  const int n_fixed_;
};

}  // namespace ingot

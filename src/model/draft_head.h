// DraftHead: runs a draft head beside a model, on the model's backend. Its own KV cache has the blocks of the model's
// cache: the entry of a token is computed from the model's hidden state of the token and from the token that follows.
//
// After each step of the model, follow() computes the entries of the step's tokens. draft() then guesses: the first
// guess is the likeliest token after the last entry; for more, the head takes its own hidden state in place of the
// model's, and its guess as the next token. The entries of guesses are overwritten when the tokens are known.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "model/draft_config.h"
#include "model/memory_plan.h"
#include "model/runner.h"

namespace ingot {

class DraftHead {
 public:
  // model: the program whose hidden states the head reads; its buffers have been placed. Places the head's buffers.
  DraftHead(const Config& config, const Weights& weights, const DraftHeadWeights& head, const Program& model,
            const MemoryPlan& plan, Backend& backend);
  const StepLimits& limits() const { return limits_; }  // what the backend reserves for the head's programs
  void prepare();                                       // after that

  // See Runner.
  void follow(const Batch& batch, std::span<const int32_t> next_tokens);
  std::vector<int32_t> draft(std::span<const DraftRow> rows);
  // The logits of the first guess after each row, [n_rows, n_vocab of the head].
  std::vector<float> logits(std::span<const DraftRow> rows);

 private:
  void run(const Program& program, std::span<const DraftRow> rows, int depth, std::span<const int32_t> tokens);
  void take_hidden(std::span<const DraftRow> rows);

  const std::shared_ptr<const DraftHeadConfig> config_;
  Backend& backend_;
  const std::unique_ptr<KvCache> kv_;
  StepLimits limits_;
  Program follow_;  // from the model's hidden states to the head's, for all rows of a step
  Program chain_;   // from the head's hidden states to those for the token after, and their logits
  Program first_;   // the end of chain_: the logits of hidden states
  const SamplingParams greedy_{.temperature = 0};
  std::vector<int32_t> positions_, q_start_, kv_len_, logit_rows_, block_table_;  // of the last run
};

// The shape of the head's KV cache beside one of the model's.
KvShape draft_kv_shape(const DraftHeadConfig& head, const KvShape& model);
// The bytes of the buffers of its programs. limits: of a step; becomes what the backend reserves.
size_t draft_bytes(const Config& config, StepLimits* limits, DType act);

}  // namespace ingot

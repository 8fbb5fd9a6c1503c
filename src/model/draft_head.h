// DraftHead: runs a draft head beside a model, on the model's backend. Its own KV cache has the blocks of the model's
// cache: the entry of a token is computed from the model's hidden state of the token and from the token that follows.
//
// Nobody needs an entry before the head guesses. So after a step of the model, follow() keeps the hidden states of few
// tokens, and their entries are computed together: when the head is to guess, or when there is no room for more. Then a
// head that is not asked costs next to nothing. The entries of a long prompt are computed at once.
//
// draft() guesses: the first guess is the likeliest token after the sequence's last one. For more, the head takes its
// own hidden state in place of the model's, and its guess as the next token. The entries of guesses are overwritten
// when the tokens are known.
#pragma once
#include <memory>
#include <optional>

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

  // See Runner. drawn: after the wait for the sample that the last follow() came after.
  void follow(const Batch& batch, std::span<const int32_t> next_tokens);
  void drawn(std::span<const Sampled> tokens);
  std::vector<int32_t> draft(std::span<const DraftRow> rows);
  // The logits of the first guess after each row, [n_rows, n_vocab of the head].
  std::vector<float> logits(std::span<const DraftRow> rows);

 private:
  // A token whose entry is still to be computed.
  struct Waiting {
    int32_t token;  // that follows; a drawn_token() until drawn()
    int32_t position;
    int32_t block;
    int row;  // of waiting_hidden_
  };

  void catch_up(std::span<const DraftRow> guessing);
  void follow_late();
  std::vector<int32_t> start(std::span<const DraftRow> rows);
  void run_rows(const Program& program, std::span<const DraftRow> rows, int depth, std::span<const int32_t> tokens);
  void start_batch();
  void run(const Program& program, std::span<const int32_t> tokens, int table_width);

  const std::shared_ptr<const DraftHeadConfig> config_;
  Backend& backend_;
  const std::unique_ptr<KvCache> kv_;
  const Tensor hidden_;  // [max_tokens, dim or 3 * dim]: of the model's last forward
  Tensor waiting_hidden_, following_hidden_, starting_hidden_;
  StepLimits limits_;
  std::optional<Program> follow_;  // from following_hidden_ to entries
  std::optional<Program> start_;   // from starting_hidden_ to entries, hidden states and logits
  Program chain_;                  // from the head's hidden states to those for the token after, and their logits
  const SamplingParams greedy_{.temperature = 0};
  std::vector<Waiting> waiting_, late_;
  std::vector<int32_t> next_tokens_;  // of the last follow()
  std::vector<int32_t> table_;        // its block table, [n, table_width_]
  int table_width_ = 0;
  int last_row_ = 0;                                                              // within follow_late
  std::vector<int32_t> positions_, q_start_, kv_len_, logit_rows_, block_table_;  // of the last run
};

// The shape of the head's KV cache beside one of the model's.
KvShape draft_kv_shape(const DraftHeadConfig& head, const KvShape& model);
// The bytes of the buffers of its programs. limits: of a step; becomes what the backend reserves.
size_t draft_bytes(const Config& config, StepLimits* limits, DType act);

}  // namespace ingot

// DraftHead: runs a draft head on the backend of its model. The head has a separate KV cache with the same blocks as
// the model's cache. The entry of a token is computed from the model's hidden state of the token and from the token
// that follows.
//
// Entries are not needed until the head guesses. So if a step of the model has few tokens, follow() only keeps their
// hidden states. The entries of a sequence are computed together when the head guesses for it, and the oldest ones of
// all sequences when there is no room for more tokens. So a head that does not guess costs almost nothing. The entries
// of a long prompt are computed at once.
//
// After a step that verifies drafts, the head probably guesses again. On a device that computes while the host works,
// follow() then computes the first guess after each row at once, before the host knows how many drafts were right.
//
// draft() guesses. The first guess is the likeliest token after the sequence's last token. For further guesses, the
// head uses its own hidden state in place of the model's, and its guess as the next token. The entries of guesses are
// overwritten when the tokens are known.
#pragma once
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "model/files/draft_config.h"
#include "model/program/runner.h"

namespace ingot {

class DraftHead {
 public:
  // model: the program whose hidden states the head reads; its buffers have been placed. Places the head's buffers. kv:
  // the shape of the model's first cache. limits: of the model's steps.
  DraftHead(const Config& config, const Weights& weights, const DraftHeadWeights& head, const Program& model,
            const KvShape& kv, const StepLimits& limits, Backend& backend);
  const StepLimits& limits() const { return limits_; }  // limits for Backend::reserve
  void prepare();                                       // call it after Backend::reserve

  // See Runner. Call drawn() after the wait() for the sample that preceded the last follow().
  void follow(const Batch& batch, std::span<const int32_t> next_tokens);
  void drawn(std::span<const Sampled> tokens);
  std::vector<std::vector<HeadGuess>> draft(std::span<const DraftRow> rows, const HeadGoesOn& goes_on);
  // The logits of the first guess after each row, [n_rows, n_vocab of the head].
  std::vector<float> logits(std::span<const DraftRow> rows);

 private:
  struct Place {  // in the cache
    int32_t block, position;
  };
  // A token whose entry has not been computed yet.
  struct Waiting {
    int32_t token;  // the following token; a drawn_token() until drawn()
    Place place;
    int row;  // of waiting_hidden_
  };

  bool starts_early(const Batch& batch) const;
  void start_early(const Batch& batch);
  int n_waiting_rows() const { return waiting_.empty() ? 0 : waiting_.back().row + 1; }  // of waiting_hidden_
  void make_room(int n);
  void catch_up(std::span<const int32_t> blocks, std::span<const Place> places);
  void drop_stale(std::span<const Place> places);
  void run_late();
  void start(std::span<const DraftRow> rows);
  Tensor first_logits(std::span<const DraftRow> rows);
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
  Program follow_late_;            // gathers rows of waiting_hidden_ in following_hidden_, then as follow_
  std::optional<Program> start_;   // from starting_hidden_ to entries, hidden states and logits
  Program chain_;                  // from the head's hidden states to those of the next token, and their logits
  const SamplingParams greedy_{.temperature = 0, .n_logprobs = 0};
  std::vector<Waiting> waiting_, late_;  // late_: while their entries are computed
  size_t n_known_ = 0;                   // of waiting_: their tokens are known
  std::vector<bool> wanted_, taken_;     // of blocks, and of places in the cache; all false between calls
  std::vector<int32_t> next_tokens_;     // of the last follow()
  int n_started_ = 0;                    // rows for which the last follow() has run start_
  std::vector<int32_t> table_;           // its block table, [n, table_width_]
  int table_width_ = 0;
  std::vector<int32_t> positions_, q_start_, kv_len_, logit_rows_, block_table_;  // of the last run
};

// The shape of the head's KV cache for a model's cache of shape `model`.
KvShape draft_kv_shape(const DraftHeadConfig& head, const KvShape& model);
// The bytes of the buffers of the head's programs. limits: in, of a step; out, the limits for Backend::reserve.
size_t draft_bytes(const Config& config, StepLimits* limits, DType act);

}  // namespace ingot

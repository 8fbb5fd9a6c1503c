// FakeRunner: a model for tests of the engine and the server. The next token is a pure function of the seed and the
// history (tokens, and vectors in place of tokens). The fake's KV cache stores histories instead of keys and values. So
// the fake detects every mistake of a scheduler: a wrong position or length, a block written by another sequence or by
// two sequences, a state of another place or history, another sequence's source. Step time and failures can be set.
// With info.overlaps, the fake is an asynchronous device: forward returns at once, and wait() returns when the step's
// time has passed. With info.n_stages, several sampled steps may be in flight, and none may have a token that the host
// does not know. The fake's draft head knows the model's next tokens, and detects entries of another history.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "model/program/runner.h"

namespace ingot {

struct FakeOptions {
  RunnerInfo info = {.n_vocab = 1000,
                     .n_ctx = 256,
                     .block_size = 16,
                     .pools = {{.n_blocks = 64}},
                     .max_batch_tokens = 64,
                     .max_seqs = 16};
  // Windows of info.pools: 0 or at least 2, because a token's digest depends on the token before.
  int check_every = 1;  // one step in this many checks the whole visible history; the others only its end
  double step_us = 0;                                    // time of each step
  double token_us = 0;                                   // additional time for each token of the step
  std::function<void(int64_t step)> before_forward = {};  // may throw to make the step fail
  std::function<bool(const SampleRow&)> makes_nan = {};   // rows whose logits are NaN
  std::function<int32_t(const SampleRow&)> writes = {};   // the token to sample instead
  std::function<void()> before_wait = {};                 // may throw, like a failed device
  std::function<bool()> is_drawn = {};                    // the result of is_drawn(); empty: true
  std::function<uint64_t()> progress = {};                // the result of progress(); empty: 0
  // With info.draft_head: each guess is right with this probability if the request's seed is 0.
  double head_right = 0;
  std::function<void(std::span<const DraftRow>)> before_draft = {};  // may throw
};

class FakeRunner final : public Runner {
 public:
  explicit FakeRunner(const FakeOptions& options = {});

  // The token that follows a history.
  static int32_t next_token(std::span<const int32_t> history, uint64_t seed, int n_vocab,
                            std::span<const PromptEmbedding> embeddings = {}, const RequestSource& source = {});

  // The candidates that follow a history, for searches with beams, likeliest first.
  static std::vector<TokenLogprob> candidates(std::span<const int32_t> history, uint64_t seed, int n_vocab, int n);

  const RunnerInfo& info() const override { return options_.info; }
  void forward(const Batch& batch) override;
  void sample(std::span<const SampleRow> rows) override;
  std::vector<Sampled> wait() override;
  bool is_drawn() override { return !options_.is_drawn || options_.is_drawn(); }
  uint64_t progress() const override { return options_.progress ? options_.progress() : 0; }
  std::string kv_layout() const override { return "fake"; }
  size_t kv_block_bytes(int) const override { return sizeof(Slot) * options_.info.block_size; }
  void read_kv(int pool, int32_t block, std::span<uint8_t> to) override;
  void write_kv(int pool, int32_t block, std::span<const uint8_t> from) override;
  void follow(std::span<const int32_t> next_tokens) override;
  std::vector<std::vector<HeadGuess>> draft(std::span<const DraftRow> rows, const HeadGoesOn& goes_on) override;

  int64_t n_steps() const { return n_steps_; }
  int64_t n_tokens() const { return n_tokens_; }
  int64_t n_seeing_later() const { return n_seeing_later_; }  // tokens so far that saw later tokens of their sequence
  // The errors found in calls. Each error also makes forward or sample throw std::logic_error.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  // Digests of a history: of all inputs, and of the token ids only, because a SampleRow has only ids.
  struct History {
    uint64_t digest = 0, ids = 0;
    void add(int32_t token, uint64_t vector);
    bool operator==(const History&) const = default;
  };
  // A token's entry in the cache: the token, or the vector in its place (0: none), the position, and the digest of the
  // history up to there.
  struct Slot {
    int32_t token = -1;
    uint64_t vector = 0;
    int32_t position = -1;
    History history;
  };

  // The head's entry for a token: the history up to that token, and the next token.
  struct HeadSlot {
    History history;
    int32_t next = -1;
  };

  struct Draws {
    std::vector<Sampled> tokens;
    std::chrono::steady_clock::time_point at;  // when they are known
  };

  void begin_step(int n_tokens);
  void check_shape(const Batch& batch);
  void check_blocks(const Batch& batch, int pool);
  void check_states(const Batch& batch);
  void check_embeddings(const Batch& batch);
  void write_sources(const Batch& batch);
  uint64_t source_of(const Batch& batch, int seq);
  uint64_t vector_at(const Batch& batch, int token) const;
  bool checks_all(size_t row) const;
  History read_history(const Batch& batch, int seq, int pool);
  void write_tokens(const Batch& batch, int seq, History history);
  Slot& slot(const Batch& batch, int seq, int position, int pool = 0);
  int n_pools() const { return static_cast<int>(options_.info.pools.size()); }
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) violate(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void violate(const std::string& what);

  int64_t n_seeing_later_ = 0;
  int first_read(const Batch& batch, int seq, int pool) const;

  const FakeOptions options_;
  std::vector<std::vector<Slot>> caches_;  // of each pool, [n_blocks * block_size]
  struct SourceSlot {
    uint64_t row = 0;  // digest
    int index = -1;    // in its source
  };
  std::vector<SourceSlot> sources_;  // [source.n_blocks * block_size]
  std::vector<Slot> states_;      // [n_states]: the entry of the last token in each state
  std::vector<int> writer_;       // [n_blocks of a pool]: the sequence of this batch that writes the block, or -1
  std::vector<History> histories_;  // [n_tokens of this batch]: history up to each token
  std::vector<History> logits_;   // [n_logits]: history of each row
  std::vector<int> logit_lens_;   // [n_logits]: length of each history
  std::vector<int32_t> tokens_;   // of the batch, with sampled tokens filled in
  std::vector<Sampled> sampled_;  // by the last sample; empty after its wait
  std::deque<Draws> waiting_;     // samples that no wait has returned
  std::vector<HeadSlot> head_;         // [n_blocks * block_size]
  std::vector<int64_t> places_;        // [n_tokens of this batch]: the entry of each token in caches_[0] and head_
  std::vector<bool> has_logits_;       // [n_tokens of this batch]
  bool head_waits_ = false;            // a step that the head has not followed
  std::chrono::steady_clock::time_point busy_until_;
  int64_t n_steps_ = 0;
  int64_t n_tokens_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace ingot

// FakeRunner: a model whose next token is a pure function of what comes before it (tokens, and vectors in place of
// some) and the seed. Its KV cache holds what a real one stands for, the history, so it notices every mistake of a
// scheduler: a wrong position or length, a block read that another sequence wrote, a block written by two, a state of
// another place or history. Step time and failures are settable. With info.overlaps it is a device with a clock of
// its own: forward returns at once, and wait() when the step's time has passed. For tests of the engine and the
// server.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "model/runner.h"

namespace ingot {

struct FakeOptions {
  RunnerInfo info = {
      .n_vocab = 1000, .n_ctx = 256, .block_size = 16, .n_blocks = 64, .max_batch_tokens = 64, .max_seqs = 16};
  // info.window: 0, or 2 and more, for a token's digest is made from the one before it.
  int check_every = 1;                                   // steps, of which one checks all that a sequence sees; the others only its end
  double step_us = 0;                                    // that each step takes
  double token_us = 0;                                   // and each token of it
  std::function<void(int64_t step)> before_forward = {};  // may throw, to make that step fail
  std::function<bool(const SampleRow&)> spoils = {};      // rows whose logits are no numbers
  std::function<int32_t(const SampleRow&)> writes = {};   // what is drawn instead
  std::function<void()> before_wait = {};                 // may throw, as a device does that failed meanwhile
};

class FakeRunner final : public Runner {
 public:
  explicit FakeRunner(const FakeOptions& options = {});

  // The token that follows a history.
  static int32_t next_token(std::span<const int32_t> history, uint64_t seed, int n_vocab,
                            std::span<const PromptEmbedding> embeddings = {});

  const RunnerInfo& info() const override { return options_.info; }
  void forward(const Batch& batch) override;
  void sample(std::span<const SampleRow> rows) override;
  std::vector<Sampled> wait() override;

  int64_t n_steps() const { return n_steps_; }
  int64_t n_tokens() const { return n_tokens_; }
  // What it was told wrongly; each also throws std::logic_error from forward or sample.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  // What a history comes to: all that the model has seen, and the token ids alone, which are what a SampleRow has of
  // it.
  struct History {
    uint64_t digest = 0, ids = 0;
    void add(int32_t token, uint64_t vector);
    bool operator==(const History&) const = default;
  };
  // What a token leaves in the cache: itself or the vector in its place (0: none), where it stands, and all up to it.
  struct Slot {
    int32_t token = -1;
    uint64_t vector = 0;
    int32_t position = -1;
    History history;
  };

  void begin_step(int n_tokens);
  void check_shape(const Batch& batch);
  void check_blocks(const Batch& batch);
  void check_states(const Batch& batch);
  void check_embeddings(const Batch& batch);
  uint64_t vector_at(const Batch& batch, int token) const;
  bool checks_all(size_t row) const;
  History read_history(const Batch& batch, int seq);
  void write_tokens(const Batch& batch, int seq, History history);
  Slot& slot(const Batch& batch, int seq, int position);
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) violate(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void violate(const std::string& what);

  int first_read(const Batch& batch, int seq) const;

  const FakeOptions options_;
  std::vector<Slot> cache_;       // [n_blocks * block_size]
  std::vector<Slot> states_;      // [n_states]: each of the last token that it has seen
  std::vector<int> writer_;       // [n_blocks]: sequence of this batch that writes it, or -1
  std::vector<History> histories_;  // [n_tokens of this batch]: up to each
  std::vector<History> logits_;   // [n_logits]: each row's
  std::vector<int> logit_lens_;   // [n_logits]: its length
  std::vector<int32_t> tokens_;   // of the batch, where some were drawn
  std::vector<Sampled> sampled_;
  bool sample_waits_ = false;     // for its wait()
  std::chrono::steady_clock::time_point busy_until_, drawn_at_;
  int64_t n_steps_ = 0;
  int64_t n_tokens_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace ingot

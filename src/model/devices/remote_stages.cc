#include "model/devices/remote_stages.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "model/devices/sample_message.h"

namespace ingot {
namespace {

enum Channel : int { kRowsChannel, kHeadChannel };
enum class HeadOrder : uint8_t { kDrop, kLogits, kDraw };

std::span<const uint8_t> bytes_of(const float* x, size_t n) {
  return {reinterpret_cast<const uint8_t*>(x), n * sizeof(float)};
}
std::span<uint8_t> bytes_of(float* x, size_t n) { return {reinterpret_cast<uint8_t*>(x), n * sizeof(float)}; }

// Messages between rank 0 and the first rank of the last stage.
class HeadLink {
 public:
  HeadLink(std::shared_ptr<Communicator> ranks, int other) : ranks_(std::move(ranks)), other_(other) {}

  void pass(std::span<const uint8_t> message) {
    const uint64_t n = message.size();
    ranks_->pass(other_, kHeadChannel, {reinterpret_cast<const uint8_t*>(&n), sizeof(n)});
    if (n > 0) ranks_->pass(other_, kHeadChannel, message);
  }
  std::vector<uint8_t> take() {
    uint64_t n = 0;
    ranks_->take(other_, kHeadChannel, {reinterpret_cast<uint8_t*>(&n), sizeof(n)});
    std::vector<uint8_t> message(n);
    if (n > 0) ranks_->take(other_, kHeadChannel, message);
    return message;
  }
  void pass_order(HeadOrder order) { pass({reinterpret_cast<const uint8_t*>(&order), 1}); }
  HeadOrder take_order() { return static_cast<HeadOrder>(take().at(0)); }

 private:
  const std::shared_ptr<Communicator> ranks_;
  const int other_;
};

// Receives the rows from the stage before this process's.
class StageBefore final : public Stage {
 public:
  StageBefore(const StagePlace& place, int from, Stage& own)
      : ranks_(place.ranks), from_(from), dim_(static_cast<size_t>(place.dim)), own_(own) {}
  void run(const Batch& batch, const float*, float* out) override {
    ranks_->take(from_, kRowsChannel, bytes_of(out, static_cast<size_t>(batch.n_tokens()) * dim_));
  }
  std::shared_ptr<float[]> host_floats(size_t n) override { return own_.host_floats(n); }

 private:
  const std::shared_ptr<Communicator> ranks_;
  const int from_;
  const size_t dim_;
  Stage& own_;
};

// Sends the rows to the stage after this process's.
class StageAfter final : public Stage {
 public:
  StageAfter(const StagePlace& place, int to) : ranks_(place.ranks), to_(to), dim_(static_cast<size_t>(place.dim)) {}
  void run(const Batch& batch, const float* in, float*) override {
    ranks_->pass(to_, kRowsChannel, bytes_of(in, static_cast<size_t>(batch.n_tokens()) * dim_));
  }
  std::shared_ptr<float[]> host_floats(size_t) override { return nullptr; }

 private:
  const std::shared_ptr<Communicator> ranks_;
  const int to_;
  const size_t dim_;
};

// The head, as rank 0 sees it.
class RemoteHead final : public Stage {
 public:
  RemoteHead(const StagePlace& place, int head) : link_(place.ranks, head), n_vocab_(place.n_vocab) {}
  void run(const Batch&, const float*, float*) override {}

  std::vector<float> logits(const Batch& batch) override {
    link_.pass_order(HeadOrder::kLogits);
    const std::vector<uint8_t> message = link_.take();
    std::vector<float> logits(static_cast<size_t>(batch.n_logits()) * static_cast<size_t>(n_vocab_));
    CHECK_EQ(message.size(), logits.size() * sizeof(float));
    if (!message.empty()) std::memcpy(logits.data(), message.data(), message.size());
    return logits;
  }
  std::vector<Sampled> draw(const Batch&, std::span<const SampleRow> rows) override {
    link_.pass_order(HeadOrder::kDraw);
    link_.pass(message_of(rows, n_vocab_));
    return read_draws(link_.take(), rows);
  }
  // The answer shows that all stages have run the step, so no rank falls behind by more than the steps in flight.
  void drop(const Batch&) override {
    link_.pass_order(HeadOrder::kDrop);
    link_.take();
  }

 private:
  HeadLink link_;
  const int n_vocab_;
};

// The last stage in its own process: does what rank 0 orders for each step.
class OrderedHead final : public Stage {
 public:
  OrderedHead(const StagePlace& place, std::unique_ptr<Stage> own)
      : link_(place.ranks, 0), n_vocab_(place.n_vocab), own_(std::move(own)) {}
  void run(const Batch& batch, const float* in, float* out) override { own_->run(batch, in, out); }
  std::shared_ptr<float[]> host_floats(size_t n) override { return own_->host_floats(n); }

  void drop(const Batch& batch) override {
    for (;;) {
      const HeadOrder order = link_.take_order();
      if (order == HeadOrder::kDrop) return link_.pass({});
      if (order == HeadOrder::kDraw) return draw_ordered(batch);
      const std::vector<float> logits = own_->logits(batch);
      link_.pass(bytes_of(logits.data(), logits.size()));
    }
  }

 private:
  void draw_ordered(const Batch& batch) {
    const std::vector<uint8_t> message = link_.take();
    const ReceivedRows received(message, n_vocab_);
    link_.pass(message_of(own_->draw(batch, received.rows), received.rows));
  }

  HeadLink link_;
  const int n_vocab_;
  const std::unique_ptr<Stage> own_;
};

}  // namespace

std::vector<std::unique_ptr<Stage>> linked_stages(std::unique_ptr<Stage> own, const StagePlace& place) {
  const int rank = place.ranks->rank(), of_stage = place.ranks->size() / place.n_stages;
  const int head = place.ranks->size() - of_stage;  // the rank that draws
  std::vector<std::unique_ptr<Stage>> stages;
  if (rank >= of_stage) stages.push_back(std::make_unique<StageBefore>(place, rank - of_stage, *own));
  if (rank == head) own = std::make_unique<OrderedHead>(place, std::move(own));
  stages.push_back(std::move(own));
  if (rank < head) stages.push_back(std::make_unique<StageAfter>(place, rank + of_stage));
  if (rank == 0) stages.push_back(std::make_unique<RemoteHead>(place, head));
  return stages;
}

}  // namespace ingot

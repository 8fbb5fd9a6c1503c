#include "engine/speculate/draft_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"

namespace ingot {
namespace {

class DraftModelProposer final : public Proposer {
 public:
  explicit DraftModelProposer(std::shared_ptr<DraftModel> model) : model_(std::move(model)) {}
  void begin(std::span<const int32_t> history, int n, const GoesOn& goes_on) override {
    begun_ = model_->begin(history, n, goes_on);
  }
  Proposal propose(std::span<const int32_t> history, int n, const GoesOn& goes_on) override {
    if (!begun_) begin(history, n, goes_on);
    return model_->end(std::exchange(begun_, nullptr));
  }
  bool is_costly() const override { return true; }

 private:
  const std::shared_ptr<DraftModel> model_;
  std::shared_ptr<DraftModel::Guess> begun_;
};

}  // namespace

class DraftModel::Guess final : public TokenSink {
 public:
  explicit Guess(GoesOn asked) : goes_on(std::move(asked)) {}
  void on_token(const Sampled& token) override {
    if (stops) return;
    drafts.tokens.push_back(token.token);
    drafts.probabilities.push_back(std::exp(token.logprob));
    stops = goes_on && !goes_on(drafts.probabilities.back());
  }
  void on_finish(const Finish& f) override { is_done = true, error = f.error; }

  GoesOn goes_on;
  RequestId id = 0;
  Proposal drafts;
  bool stops = false, is_done = false;
  std::string error;
};

DraftModel::DraftModel(std::unique_ptr<Runner> runner)
    : runner_(std::move(runner)), engine_(std::make_unique<Engine>(*runner_, EngineOptions{.overlap = false})) {}

DraftModel::~DraftModel() = default;

std::shared_ptr<Proposer> DraftModel::proposer() { return std::make_shared<DraftModelProposer>(shared_from_this()); }

std::shared_ptr<DraftModel::Guess> DraftModel::begin(std::span<const int32_t> history, int n, const GoesOn& goes_on) {
  auto guess = std::make_shared<Guess>(goes_on);
  const auto room = static_cast<int64_t>(context_limit(runner_->info())) - static_cast<int64_t>(history.size());
  const auto is_unknown = [&](int32_t token) { return token >= runner_->info().n_vocab; };
  guess->is_done = room < 1 || std::ranges::any_of(history, is_unknown);
  if (guess->is_done) return guess;
  Request request{
      .prompt = {history.begin(), history.end()}, .sampling = {.temperature = 0, .n_logprobs = 0}, .sink = guess};
  request.max_tokens = static_cast<int>(std::min<int64_t>(n, room));
  guess->id = engine_->submit(std::move(request));
  return guess;
}

Proposal DraftModel::end(const std::shared_ptr<Guess>& guess) {
  while (!guess->is_done && engine_->step())
    if (guess->stops) engine_->cancel(guess->id);
  guess->goes_on = {};  // it may refer to a sequence that ends before the small model's engine forgets this request
  if (!guess->error.empty()) throw Error("the draft model failed: {}", guess->error);
  return std::move(guess->drafts);
}

}  // namespace ingot

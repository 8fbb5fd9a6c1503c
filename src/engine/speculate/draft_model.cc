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
  Proposal propose(std::span<const int32_t> history, int n, const GoesOn& goes_on) override {
    return model_->write(history, n, goes_on);
  }
  bool is_costly() const override { return true; }

 private:
  const std::shared_ptr<DraftModel> model_;
};

struct Writer final : TokenSink {
  explicit Writer(GoesOn asked) : goes_on(std::move(asked)) {}
  void on_token(const Sampled& token) override {
    if (stops) return;
    drafts.tokens.push_back(token.token);
    drafts.probabilities.push_back(std::exp(token.logprob));
    stops = goes_on && !goes_on(drafts.probabilities.back());
  }
  void on_finish(const Finish& f) override { error = f.error; }
  GoesOn goes_on;
  Proposal drafts;
  bool stops = false;
  std::string error;
};

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Runner> runner)
    : runner_(std::move(runner)), engine_(std::make_unique<Engine>(*runner_, EngineOptions{.overlap = false})) {}

DraftModel::~DraftModel() = default;

std::shared_ptr<Proposer> DraftModel::proposer() { return std::make_shared<DraftModelProposer>(shared_from_this()); }

Proposal DraftModel::write(std::span<const int32_t> history, int n, const GoesOn& goes_on) {
  const auto room = static_cast<int64_t>(context_limit(runner_->info())) - static_cast<int64_t>(history.size());
  const auto is_unknown = [&](int32_t token) { return token >= runner_->info().n_vocab; };
  if (room < 1 || std::ranges::any_of(history, is_unknown)) return {};
  const auto writer = std::make_shared<Writer>(goes_on);
  Request request{
      .prompt = {history.begin(), history.end()}, .sampling = {.temperature = 0, .n_logprobs = 0}, .sink = writer};
  request.max_tokens = static_cast<int>(std::min<int64_t>(n, room));
  const RequestId id = engine_->submit(std::move(request));
  while (engine_->step())
    if (writer->stops) engine_->cancel(id);
  if (!writer->error.empty()) throw Error("the draft model failed: {}", writer->error);
  return std::move(writer->drafts);
}

}  // namespace ingot

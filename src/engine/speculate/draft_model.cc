#include "engine/speculate/draft_model.h"

#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace ingot {
namespace {

class DraftModelProposer final : public Proposer {
 public:
  explicit DraftModelProposer(std::shared_ptr<DraftModel> model) : model_(std::move(model)) {}
  Proposal propose(std::span<const int32_t> history, int n) override { return {.tokens = model_->write(history, n)}; }
  bool is_costly() const override { return true; }

 private:
  const std::shared_ptr<DraftModel> model_;
};

struct Writer final : TokenSink {
  void on_token(const Sampled& token) override { tokens.push_back(token.token); }
  void on_finish(const Finish& f) override { error = f.error; }
  std::vector<int32_t> tokens;
  std::string error;
};

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Runner> runner)
    : runner_(std::move(runner)), engine_(std::make_unique<Engine>(*runner_, EngineOptions{.overlap = false})) {}

DraftModel::~DraftModel() = default;

std::shared_ptr<Proposer> DraftModel::proposer() { return std::make_shared<DraftModelProposer>(shared_from_this()); }

std::vector<int32_t> DraftModel::write(std::span<const int32_t> history, int n) {
  const auto room = static_cast<int64_t>(context_limit(runner_->info())) - static_cast<int64_t>(history.size());
  const auto is_unknown = [&](int32_t token) { return token >= runner_->info().n_vocab; };
  if (room < 1 || std::ranges::any_of(history, is_unknown)) return {};
  const auto writer = std::make_shared<Writer>();
  Request request{.prompt = {history.begin(), history.end()}, .sampling = {.temperature = 0}, .sink = writer};
  request.max_tokens = static_cast<int>(std::min<int64_t>(n, room));
  engine_->submit(std::move(request));
  while (engine_->step()) {}
  if (!writer->error.empty()) throw Error("the draft model failed: {}", writer->error);
  return std::move(writer->tokens);
}

}  // namespace ingot

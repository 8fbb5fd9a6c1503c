#include "engine/speculate/draft_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"

namespace ingot {
namespace {

constexpr int kMaxGuessTokens = 256;          // of one request to the small model
constexpr size_t kMaxAhead = kMaxDrafts + 1;  // drafts, and the token before them

}  // namespace

// A request to the small model. Its tokens may serve several guesses, one after another.
class DraftModel::Guess final : public TokenSink {
 public:
  void on_token(const Sampled& token) override {
    made.tokens.push_back(token.token);
    made.probabilities.push_back(std::exp(token.logprob));
  }
  void on_finish(const Finish& f) override { is_done = true, error = f.error; }
  // Whether the request has the tokens of this history so far, in any number.
  bool agrees_with(std::span<const int32_t> history) const {
    const auto since = history.subspan(n_prompt);
    return since.size() <= made.tokens.size() && std::ranges::equal(since, std::span(made.tokens).first(since.size()));
  }

  RequestId id = 0;
  size_t n_prompt = 0;
  size_t first = 0;   // of the tokens made: the first draft of this guess
  size_t n_used = 0;  // the tokens made up to the last draft of this guess
  int n_ahead = 0;    // drafts of this guess that had been made when it began
  Proposal made;      // all tokens after the prompt, with their probabilities
  bool is_done = false;
  std::string error;
};

namespace {

class DraftModelProposer final : public Proposer {
 public:
  explicit DraftModelProposer(std::shared_ptr<DraftModel> model) : model_(std::move(model)) {}
  ~DraftModelProposer() override {
    if (guess_) model_->drop(*guess_);
  }
  void begin(std::span<const int32_t> history) override {
    guess_ = model_->begin(history, guess_);
    has_begun_ = true;
  }
  Proposal propose(std::span<const int32_t> history, int n, const GoesOn& goes_on) override {
    if (!has_begun_) begin(history);
    has_begun_ = false;
    return model_->end(guess_, n, goes_on);
  }
  void think_ahead(const std::function<bool()>& is_over) override { model_->think_ahead(is_over); }
  bool thinks_ahead() const override { return model_->thinks_ahead(); }
  bool is_costly() const override { return true; }

 private:
  const std::shared_ptr<DraftModel> model_;
  std::shared_ptr<DraftModel::Guess> guess_;  // the last one
  bool has_begun_ = false;                    // propose() has not returned it yet
};

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Runner> runner)
    : runner_(std::move(runner)), engine_(std::make_unique<Engine>(*runner_, EngineOptions{.overlap = false})) {}

DraftModel::~DraftModel() = default;

std::shared_ptr<Proposer> DraftModel::proposer() { return std::make_shared<DraftModelProposer>(shared_from_this()); }

std::shared_ptr<DraftModel::Guess> DraftModel::begin(std::span<const int32_t> history,
                                                     const std::shared_ptr<Guess>& previous) {
  n_begun_ = std::exchange(has_ended_, false) ? 1 : n_begun_ + 1;
  if (const auto last = std::exchange(continued_, nullptr)) {
    if (last == previous && last->agrees_with(history)) {
      last->first = history.size() - last->n_prompt;
      last->n_ahead = static_cast<int>(last->made.tokens.size() - last->first);
      return last;
    }
    drop(*last);
  }
  auto guess = std::make_shared<Guess>();
  guess->n_prompt = history.size();
  const auto room = static_cast<int64_t>(context_limit(runner_->info())) - static_cast<int64_t>(history.size());
  const auto is_unknown = [&](int32_t token) { return token >= runner_->info().n_vocab; };
  guess->is_done = room < 1 || std::ranges::any_of(history, is_unknown);
  if (guess->is_done) return guess;
  Request request{
      .prompt = {history.begin(), history.end()}, .sampling = {.temperature = 0, .n_logprobs = 0}, .sink = guess};
  request.max_tokens = static_cast<int>(std::min<int64_t>(kMaxGuessTokens, room));
  guess->id = engine_->submit(std::move(request));
  return guess;
}

Proposal DraftModel::end(const std::shared_ptr<Guess>& guess, int n, const GoesOn& goes_on) {
  has_ended_ = true;
  const Proposal& made = guess->made;
  Proposal drafts{.made_ahead = guess->n_ahead > 0};
  n = std::min(n, n_useful(*guess));
  size_t& used = guess->n_used;
  used = guess->first;
  for (bool goes = true; goes && std::ssize(drafts.tokens) < n; ++used) {
    while (made.tokens.size() <= used && !guess->is_done && engine_->step()) {}
    if (made.tokens.size() <= used) break;
    drafts.tokens.push_back(made.tokens[used]);
    drafts.probabilities.push_back(made.probabilities[used]);
    goes = !goes_on || goes_on(made.probabilities[used]);
  }
  if (!guess->error.empty()) throw Error("the draft model failed: {}", guess->error);
  if (guess->is_done) return drafts;
  if (n_begun_ == 1) {
    continued_ = guess;
  } else {
    drop(*guess);
  }
  return drafts;
}

uint64_t DraftModel::progress() const { return engine_->gauges().progress; }

bool DraftModel::thinks_ahead() const { return !runner_->info().overlaps; }

void DraftModel::think_ahead(const std::function<bool()>& is_over) {
  if (!continued_ || !thinks_ahead()) return;
  const Guess& guess = *continued_;
  const auto n = [&] { return guess.made.tokens.size() - guess.n_used; };
  bool is_too_late = false;
  while (!guess.is_done && n() < kMaxAhead && !(is_too_late = is_over()) && engine_->step()) {}
  if (guess.is_done || n() < 2) return;
  constexpr double kNew = 0.25;  // the weight of the last step
  const double n_drafts = static_cast<double>(n() - 1);
  n_ahead_ = n_ahead_ > 0 && is_too_late ? n_ahead_ + kNew * (n_drafts - n_ahead_) : n_drafts;
}

// If the small model thinks ahead, more drafts than it makes during a step do not pay. While they are right, the small
// model alone limits the speed, and a draft that the device waits for takes as long as one made ahead. A short guess
// brings the small model there sooner.
int DraftModel::n_useful(const Guess& guess) const {
  if (n_begun_ > 1 || !thinks_ahead()) return kMaxDrafts;
  if (guess.n_ahead > 0) return guess.n_ahead;
  return n_ahead_ > 0 ? std::max(2, static_cast<int>(std::lround(n_ahead_))) : kMaxDrafts;
}

void DraftModel::drop(const Guess& guess) {
  if (guess.id > 0) engine_->cancel(guess.id);
}

}  // namespace ingot

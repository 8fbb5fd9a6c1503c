// Replays a run's sequences on a fresh engine after the engine has lost its device.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "server/answers/generation.h"

namespace ingot {

// Asks for a fresh engine once all unfinished sequences have been reported lost.
void GenerationRun::on_lost(int index) {
  choices_[index].lost = true;
  if (!std::ranges::all_of(choices_, [](const Choice& choice) { return choice.lost || choice.finished; })) return;
  replayed_ = true;
  model_->ask_for_fresh([self = shared_from_this()](std::shared_ptr<ServedModel> model, const std::string& failure) {
    self->push({0, Fresh{std::move(model), failure}, Clock::now()});
  });
}

void GenerationRun::restart(const Fresh& fresh) {
  if (!fresh.model) return give_up(printable(fresh.failure, 512));
  bool is_cancelled = false;
  {
    std::lock_guard lock(mutex_);
    is_cancelled = cancelled_;
    lost_ = std::exchange(model_, fresh.model);
    ids_.clear();
    paused_ = false;
  }
  if (is_cancelled) return give_up("the request was cancelled");
  log_info("a request is repeated on a new engine after {} tokens", choices_[0].taken.size());
  try {
    for (size_t i = 0; i < choices_.size(); i += static_cast<size_t>(n_of_request())) {
      if (!choices_[i].lost) continue;
      const std::span<Choice> of_request = std::span(choices_).subspan(i, static_cast<size_t>(n_of_request()));
      for (Choice& choice : of_request) choice.scored.clear(), choice.n_again = 0;
      submit(static_cast<int>(i));
      for (Choice& choice : of_request) choice.lost = false;
    }
  } catch (const std::exception& error) {
    return give_up(printable(error.what(), 512));
  }
  std::vector<RequestId> unwanted;  // if the client has disconnected meanwhile
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) unwanted = ids_;
  }
  for (const RequestId id : unwanted) model_->engine().cancel(id);
}

// Sequences that the fresh engine has taken are cancelled, and the request is over when they have finished.
void GenerationRun::give_up(const std::string& why) {
  for (Choice& choice : choices_)
    if (choice.lost && !std::exchange(choice.finished, true)) ++n_finished_;
  fail(ApiError(503, "the model has failed: " + why));
  if (n_finished_ == spec_.n_choices()) {
    ticket_.reset();
    return complete();
  }
  std::vector<RequestId> taken;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    taken = ids_;
  }
  for (const RequestId id : taken) model_->engine().cancel(id);
}

// Whether the client already has the token. Ends the request if the token differs from the first run's token at that
// place.
bool GenerationRun::is_repeated(int index, const Sampled& token) {
  Choice& choice = choices_[index];
  if (choice.n_again == choice.taken.size()) {
    choice.taken.push_back(token.token);
    ++choice.n_again;
    return false;
  }
  if (choice.taken[choice.n_again++] != token.token)
    throw Error("the new engine computed a different token from the lost engine, so the answer cannot continue");
  return true;
}

}  // namespace ingot

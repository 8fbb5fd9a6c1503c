#include "server/answers/generation.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace ingot {

class GenerationRun::Sink final : public TokenSink {
 public:
  Sink(std::shared_ptr<GenerationRun> generation, int choice) : generation_(std::move(generation)), choice_(choice) {}
  void on_prompt_progress(const PromptProgress& progress) override {
    generation_->push({choice_, progress, Clock::now()});
  }
  void on_prompt_token(const Sampled& token) override { generation_->push({choice_, OfPrompt{token}, Clock::now()}); }
  void on_token(const Sampled& token) override { generation_->push({choice_, token, Clock::now()}); }
  void on_finish(const Finish& finish) override { generation_->push({choice_, finish, Clock::now()}); }

 private:
  const std::shared_ptr<GenerationRun> generation_;
  const int choice_;
};

GenerationRun::Choice::Choice(const Tokenizer& tokenizer, StreamOptions options,
                              const AnswerForm& form, int index)
    : decoder(tokenizer, options), reader(form, index) {}

static GenerationSpec with_form(GenerationSpec spec) {
  spec.form.stops = spec.stops;
  spec.form.keep_stop = spec.keep_stop;
  spec.form.whole_calls |= !spec.stream;
  return spec;
}

GenerationRun::GenerationRun(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, GenerationSpec spec,
                             Pacer& pacer, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder)
    : model_(std::move(model)),
      ticket_(std::move(ticket)),
      spec_(with_form(std::move(spec))),
      pacer_(pacer),
      writer_(std::move(writer)),
      responder_(std::move(responder)) {
  choices_.reserve(spec_.n_choices());
  ids_.reserve(spec_.n_choices());
  for (int i = 0; i < spec_.n_choices(); ++i)
    choices_.emplace_back(model_->tokenizer(),
                          StreamOptions{.skip_special = spec_.skip_special,
                                        .shown_special = shown_special(),
                                        .previous = spec_.prompts[i / spec_.n].back()},
                          spec_.form, i);
}

void GenerationRun::start(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, GenerationSpec spec,
                          Pacer& pacer, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder) {
  const auto generation = std::make_shared<GenerationRun>(std::move(model), std::move(ticket), std::move(spec), pacer,
                                                          std::move(writer), responder);
  generation->submit_all();
  try {
    generation->begin_answer();
    pacer.workers().post([generation] { generation->drain(); });
  } catch (const std::exception& error) {
    generation->end_with_failure(error);
    generation->drain();
  }
}

void GenerationRun::begin_answer() {
  if (spec_.stream)
    responder_->stream({.content_type = writer_->stream_type(),
                        .headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}}});
  responder_->on_gone([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->aborted_ = true;
    self->cancel();
  });
  responder_->on_room([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->resume();
  });
}

// ---- any thread ----

void GenerationRun::submit_all() {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;  // no output before all sequences are submitted and the head is set
  }
  try {
    for (int i = 0; i < spec_.n_choices(); i += n_of_request()) submit(i);
  } catch (...) {  // the caller answers; the sequences submitted so far end without output
    over_ = failed_ = true;
    responder_.reset();
    cancel();
    drain();
    throw;
  }
}

// Submits choice i, or with beams all choices of a prompt from i on. Throws Error, or ApiError for what is the client's
// fault.
void GenerationRun::submit(int i) {
  Request request = request_of(i);
  RequestId id = 0;
  try {
    id = model_->engine().submit(std::move(request));
  } catch (const Error& error) {
    if (!model_->fault().empty())
      throw ApiError(503, "the model has failed, so the server ends: start the server again");
    throw ApiError(400, error.what());
  }
  std::lock_guard lock(mutex_);
  ids_.push_back(id);
  const size_t n_slots = spec_.slots.size();
  for (const int end = i + n_of_request(); i < end; ++i) {
    choices_[i].id = id;
    choices_[i].slot = n_slots == 0 ? model_->slots().choose(spec_.prompts[i / spec_.n])
                                    : spec_.slots[std::min(static_cast<size_t>(i), n_slots - 1)];
    model_->slots().begin(choices_[i].slot);
  }
}

Request GenerationRun::request_of(int i) {
  Request request;
  request.prompt = spec_.prompts[i / spec_.n];
  request.embeddings = spec_.embeddings;
  request.sampling = spec_.sampling;
  request.sampling.seed += static_cast<uint64_t>(i % spec_.n);
  if (spec_.n_best > 0) request.sampling.n_logprobs = std::max(0, request.sampling.n_logprobs);
  request.max_tokens = max_tokens(request.prompt);
  request.stop_tokens = model_->tokenizer().end_tokens();
  request.stop_tokens.insert(request.stop_tokens.end(), spec_.stop_tokens.begin(), spec_.stop_tokens.end());
  request.ignore_eos = spec_.ignore_eos;
  request.min_tokens = std::min(spec_.min_tokens, request.max_tokens);
  if (spec_.echo || i % spec_.n == 0) request.prompt_logprobs = spec_.prompt_logprobs;
  request.wants_progress = spec_.wants_progress || spec_.wants_totals;
  if (!spec_.beams)
    request.proposer =
        make_proposer(spec_.speculate, model_->info().draft_head, model_->draft(), spec_.prediction);
  request.constraint = spec_.constraint;
  request.constraint_start = spec_.constraint_start;
  request.priority = spec_.priority;
  request.client = spec_.client;
  request.cache_salt = spec_.cache_salt;
  request.publishes_prefix = spec_.publishes_prefix;
  request.begin_by = (replayed_ ? Clock::now() : begin_) + model_->queue_timeout();
  request.sink = std::make_shared<Sink>(shared_from_this(), i);
  request.beams = spec_.beams;
  for (int j = 1; j < n_of_request(); ++j)
    request.more_sinks.push_back(std::make_shared<Sink>(shared_from_this(), i + j));
  return request;
}

void GenerationRun::push(Event event) {
  {
    std::lock_guard lock(mutex_);
    const Clock::time_point now = event.at;
    urgent_ |= std::holds_alternative<Finish>(event.what) || std::holds_alternative<Fresh>(event.what);
    events_.push_back(std::move(event));
    if (draining_) return;
    if (may_wait(now)) return wait_for_slot();
    draining_ = true;
  }
  try {
    pacer_.workers().post([self = shared_from_this()] { self->drain(); });
  } catch (...) {  // no memory: the engine ends the sequence
    std::lock_guard lock(mutex_);
    draining_ = false;
    throw;
  }
}

// Call both functions with the mutex held. may_wait(): whether events may wait for the end of the slot. With stop
// strings, tokens are processed at once, because the model must stop soon after a stop string. Then only the output can
// wait (output_may_wait).
bool GenerationRun::may_wait(Clock::time_point now) const {
  return !urgent_ && spec_.stops.empty() &&
         (held_ ? pacer_.in_one_slot(now, written_) : pacer_.should_wait(now, written_));
}

void GenerationRun::wait_for_slot() {
  if (held_) return;
  pacer_.at_end_of_slot([self = shared_from_this()] { self->drain_at_end_of_slot(); });
  held_ = true;
}

void GenerationRun::cancel() {
  std::vector<RequestId> ids;
  std::shared_ptr<ServedModel> model;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(cancelled_, true)) return;
    ids = ids_;
    model = model_;
  }
  for (RequestId id : ids) model->engine().cancel(id);
}

// If a client does not read, only its own sequences are paused.
void GenerationRun::pause_if_full() {
  if (!responder_->full()) return;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(paused_, true)) return;
    for (RequestId id : ids_) model_->engine().pause(id);
  }
  if (!responder_->full()) resume();  // the client has read since the check, before paused_ was set
}

void GenerationRun::resume() {
  std::lock_guard lock(mutex_);
  if (!std::exchange(paused_, false)) return;
  for (RequestId id : ids_) model_->engine().resume(id);
}

// ---- a worker's thread, one at a time ----

void GenerationRun::drain_at_end_of_slot() {
  {
    std::lock_guard lock(mutex_);
    held_ = false;
    due_ = !spec_.stops.empty();
    if (std::exchange(draining_, true)) return;
  }
  drain();
}

// Returns false if there is nothing to do now. The drain is then over.
bool GenerationRun::take_events(bool& cancelled) {
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  draining_ = std::exchange(due_, false) || !events_.empty();
  if (draining_ && may_wait(now)) {
    try {
      wait_for_slot();
      draining_ = false;
    } catch (const std::bad_alloc&) {  // no memory: do not wait
    }
  }
  if (!draining_) return false;
  taken_.clear();
  taken_.swap(events_);
  urgent_ = false;
  if (spec_.stops.empty()) written_ = now;
  cancelled = cancelled_;
  return true;
}

// With stop strings: whether the output may wait for the end of the slot. Without stop strings, take_events() has
// decided already.
bool GenerationRun::output_may_wait() {
  if (spec_.stops.empty() || std::exchange(has_ended_, false) || over_) return false;
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  try {
    if (held_ ? pacer_.in_one_slot(now, written_) : pacer_.should_wait(now, written_)) {
      wait_for_slot();
      return true;
    }
  } catch (const std::bad_alloc&) {  // no memory: do not wait
  }
  written_ = now;
  return false;
}

void GenerationRun::drain() {
  for (bool cancelled = false; take_events(cancelled);) {
    for (Event& event : taken_) {
      if (!cancelled || std::holds_alternative<Finish>(event.what) || std::holds_alternative<Fresh>(event.what))
        process(event);
    }
    try {
      send_output();
    } catch (const std::exception& error) {
      end_with_failure(error);
    }
  }
}

void GenerationRun::send_output() {
  if (over_ && responder_ && spec_.stream && !failed_) {
    responder_->end(std::exchange(out_, {}));
  } else if (!out_.empty() && responder_ && !output_may_wait()) {
    responder_->write(std::exchange(out_, {}));
    pause_if_full();
  }
  if (over_) responder_.reset();
}

void GenerationRun::process(Event& event) {
  try {
    if (const auto* finish = std::get_if<Finish>(&event.what)) {
      on_finish(event.choice, *finish);
    } else if (const auto* fresh = std::get_if<Fresh>(&event.what)) {
      restart(*fresh);
    } else if (choices_[event.choice].over || over_) {
      return;
    } else if (const auto* scored = std::get_if<OfPrompt>(&event.what)) {
      on_prompt_token(event.choice, scored->token);
    } else if (const auto* progress = std::get_if<PromptProgress>(&event.what)) {
      on_prompt_progress(event.choice, *progress, event.at);
    } else {
      on_token(event.choice, std::get<Sampled>(event.what), event.at);
    }
  } catch (const std::exception& error) {
    end_with_failure(error);
  }
}

// Ends the request after an internal failure, usually a lack of memory. Sends the client an error if possible.
void GenerationRun::end_with_failure(const std::exception& why) {
  try {
    log_warn("an answer failed: {}", why.what());
    const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&why) != nullptr;
    send_failure(lacks_memory ? no_memory() : ApiError(500, "the answer could not be written"));
    cancel();
  } catch (const std::exception&) {  // the destroyed responder answers
  }
  over_ = failed_ = true;
  responder_.reset();
  out_.clear();
}

void GenerationRun::on_finish(int index, const Finish& finish) {
  Choice& choice = choices_[index];
  const bool has_failed = finish.reason == FinishReason::kError && !finish.has_nan && !choice.over && !over_;
  if (has_failed && may_replay() && model_->lost_device()) return on_lost(index);
  if (!std::exchange(choice.finished, true)) {
    ++n_finished_;
    end_slot(index);
  }
  if (n_finished_ == spec_.n_choices()) ticket_.reset();
  choice.usage = finish.usage;
  // Tokens after a stop string do not count.
  if (choice.over || spec_.prompt_only) choice.usage.output_tokens = choice.n_tokens;
  if (!over_) {
    if (finish.reason == FinishReason::kError && finish.has_nan) {
      log_warn("an answer ends early: {}", finish.error);
      end_choice(index, "error", finish.error);
    } else if (finish.reason == FinishReason::kError) {
      log_warn("a request failed: {}", finish.error);
      fail(finish.error == kOutOfMemory ? no_memory() : ApiError(500, "generation failed: " + printable(finish.error)));
      cancel();
    } else if (finish.reason == FinishReason::kNotBegun) {
      fail(ApiError(503, "the request has waited too long for its turn; try again soon", "", "queue_timeout"));
      cancel();
    } else if (finish.reason == FinishReason::kCancelled && !choice.over) {
      fail(ApiError(503, "the request was cancelled"));  // the server stops, or the client has disconnected
      cancel();
    } else {
      end_choice(index, finish.reason == FinishReason::kLength || spec_.prompt_only ? "length" : "stop");
    }
  }
  if (n_finished_ == spec_.n_choices()) complete();
}

void GenerationRun::end_slot(int index) {
  Choice& choice = choices_[index];
  std::vector<int32_t> tokens = spec_.prompts[index / spec_.n];
  tokens.insert(tokens.end(), choice.taken.begin(), choice.taken.end());
  model_->slots().end(choice.slot, {root_key(spec_.cache_salt), std::move(tokens)});
}

// Called when all sequences are over.
void GenerationRun::complete() {
  const bool failed = std::exchange(over_, true);
  if (failed || aborted_) return count(aborted_ ? RequestEnd::kAbort : RequestEnd::kError);
  const Totals sum = totals();
  responder_->note("prompt_tokens", std::to_string(sum.prompt_tokens));
  responder_->note("completion_tokens", std::to_string(sum.completion_tokens));
  const bool is_whole = std::ranges::all_of(choices_, [](const Choice& c) { return c.result.end.failure.empty(); });
  const bool is_cut = std::string_view(choices_[0].result.end.reason) == "length";
  count(!is_whole ? RequestEnd::kError : is_cut ? RequestEnd::kLength : RequestEnd::kStop);
  if (spec_.stream) return writer_->end(sum, out_);
  responder_->respond({.body = writer_->whole(take_results(), sum)});
}

// The results of the choices to send, best first if only the best are sent. The first of a prompt has the prompt's
// log-probabilities.
std::vector<ChoiceResult> GenerationRun::take_results() {
  const auto mean = [](const Choice& choice) { return choice.sum_logprob / std::max(1, choice.n_tokens); };
  std::vector<ChoiceResult> results;
  for (size_t first = 0; first < choices_.size(); first += static_cast<size_t>(spec_.n)) {
    const std::span<Choice> of_prompt = std::span(choices_).subspan(first, static_cast<size_t>(spec_.n));
    std::vector<TokenText> scored = std::move(of_prompt[0].result.prompt);
    std::vector<Choice*> order;
    for (Choice& choice : of_prompt) order.push_back(&choice);
    if (spec_.n_best > 0) std::ranges::stable_sort(order, std::greater<>(), [&](const Choice* c) { return mean(*c); });
    order[0]->result.prompt = std::move(scored);
    for (int i = 0; i < spec_.n_sent(); ++i) results.push_back(std::move(order[static_cast<size_t>(i)]->result));
  }
  return results;
}

void GenerationRun::fail(const ApiError& error) {
  if (!std::exchange(over_, true)) send_failure(error);
}

// Also for a request that is over but has no answer yet.
void GenerationRun::send_failure(const ApiError& error) {
  if (!responder_) return;
  failed_ = true;
  if (!out_.empty()) responder_->write(std::exchange(out_, {}));
  responder_->fail(writer_->error(error), spec_.stream ? writer_->error_event(error) : "");
}

}  // namespace ingot

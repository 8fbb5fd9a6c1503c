#include "engine/engine.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "base/log.h"
#include "base/splitmix.h"
#include "base/thread_start.h"
#include "engine/ending.h"
#include "engine/faults.h"
#include "engine/speculate/oracle.h"

namespace ingot {
namespace {

int depth_of(const RunnerInfo& info, const EngineOptions& options) {
  return options.overlap.value_or(info.overlaps) ? std::max(2, info.n_stages) : 1;
}

SchedulerLimits scheduler_limits(const RunnerInfo& info, const EngineOptions& options) {
  if (options.chunk < 0) throw Error("chunk is {}: a step needs at least one token of a prompt", options.chunk);
  return {.max_batch_tokens = info.max_batch_tokens,
          .max_seqs = info.max_seqs,
          .chunk = options.chunk > 0 ? std::min(options.chunk, info.max_batch_tokens) : info.max_batch_tokens,
          .block_size = info.block_size,
          .pools = info.pools,
          .n_states = info.n_states,
          .spare_rows = std::max(0, info.max_logits - info.max_seqs),
          .n_in_flight = depth_of(info, options),
          .n_stages = depth_of(info, options) > 1 ? info.n_stages : 1,
          .embedding_dim = info.takes_embeddings ? info.embedding_dim : 0,
          .embedding_token = info.embedding_token,
          .n_rope_axes = info.n_rope_axes,
          .source = info.source,
          .prefix_cache = options.prefix_cache,
          .cache_listener = options.cache_listener.get()};
}

// Drafts need spare rows of logits. In models with states, they also need a spare slot.
bool can_draft(const RunnerInfo& info) {
  return info.max_logits > info.max_seqs && (info.n_states == 0 || info.n_states > info.max_seqs);
}

// The time at which the request ends: its deadline, or begin_by if that is earlier and the request has not started.
// Zero: never.
Clock::time_point next_limit(const Sequence& sequence) {
  const Request& request = sequence.request;
  const bool begun = sequence.first_step != Clock::time_point{};
  if (begun || request.begin_by == Clock::time_point{}) return request.deadline;
  return request.deadline == Clock::time_point{} ? request.begin_by : std::min(request.begin_by, request.deadline);
}

}  // namespace

Engine::Engine(Runner& runner, const EngineOptions& options)
    : runner_(runner),
      options_(options),
      depth_(depth_of(runner.info(), options)),
      scheduler_(scheduler_limits(runner.info(), options)),
      drafts_(runner, scheduler_, depth_, [this](Sequence& sequence) { cut_drafts(sequence); }) {
  for (int i = 0; i < depth_; ++i)
    builders_.emplace_back(scheduler_limits(runner.info(), options), context_limit(runner.info()));
  in_flight_.reserve(static_cast<size_t>(depth_) + 1);
  publish();
}

Engine::~Engine() { stop(); }

// ---- any thread ----

RequestId Engine::submit(Request request) {
  validate(request, runner_.info());
  ++n_queued_;
  return push(std::move(request));
}

std::optional<RequestId> Engine::try_submit(Request request) {
  validate(request, runner_.info());
  if (++n_queued_ > options_.max_queue && options_.max_queue > 0) {
    --n_queued_;
    return std::nullopt;
  }
  return push(std::move(request));
}

// If anything fails here, the request gives its place in the queue back.
RequestId Engine::push(Request request) {
  try {
    auto sequence = make_sequence(std::move(request));
    const RequestId id = sequence->id;
    if (!inbox_.push({Order::kSubmit, std::move(sequence)}))
      throw Error("the engine has stopped and takes no more requests");
    return id;
  } catch (...) {
    --n_queued_;
    throw;
  }
}

// A waiting sequence takes memory for its prompt only: memory for its output is reserved when it is admitted.
std::unique_ptr<Sequence> Engine::make_sequence(Request request) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id_++;
  sequence->n_prompt = static_cast<int>(request.prompt.size());
  sequence->max_len = request.max_tokens < 0 ? context_limit(runner_.info()) : sequence->n_prompt + request.max_tokens;
  sequence->tokens = std::move(request.prompt);
  for (const PromptEmbedding& e : request.embeddings) {
    if (e.sees_all) sequence->n_whole_rows = std::max(sequence->n_whole_rows, e.n_rows);
    sequence->rows.resize(static_cast<size_t>(e.position) + static_cast<size_t>(e.n_rows));
    // The same rows at other places give other keys.
    uint64_t places = e.n_places > 0 ? splitmix(static_cast<uint64_t>(e.n_places)) : 0;
    for (const auto& place : e.places)
      for (const int32_t at : place) places = splitmix(places + kSplitMixStep + static_cast<uint64_t>(at));
    for (int i = 0; i < e.n_rows; ++i)
      sequence->rows[e.position + i] = {e.digest[0] ^ places, e.digest[1] + static_cast<uint64_t>(i)};
  }
  if (request.beams) {
    if (!runner_.copies_kv()) throw Error("beams need copies of KV blocks, which several processes do not make");
    sequence->beams = make_beams(*sequence, request);
  }
  if (request.min_tokens > 0) {
    sequence->early = request.sampling;
    for (const int32_t token : request.ignore_eos ? std::vector<int32_t>() : request.stop_tokens)
      sequence->early.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  }
  if (request.constraint)
    sequence->constraint = std::make_shared<AnswerConstraint>(request.constraint, request.constraint_start);
  sequence->mirostat_mu = 2 * request.sampling.mirostat_tau;
  // Mirostat's state changes with each sampled token, but a step samples the rows of all drafts at once.
  if (!can_draft(runner_.info()) || request.sampling.mirostat != 0) request.proposer = nullptr;
  CHECK(!request.proposer || !request.proposer->drafts_of_head(0) || has_draft_head());
  sequence->request = std::move(request);
  sequence->submitted = Clock::now();
  return sequence;
}

void Engine::cancel(RequestId id) { inbox_.push({Order::kCancel, nullptr, id}); }
void Engine::pause(RequestId id) { inbox_.push({Order::kPause, nullptr, id}); }
void Engine::resume(RequestId id) { inbox_.push({Order::kResume, nullptr, id}); }

EngineGauges Engine::gauges() const {
  const bool is_working = is_working_;
  std::lock_guard lock(gauges_mutex_);
  EngineGauges gauges = gauges_;
  gauges.is_working = is_working;
  gauges.progress = runner_.progress() + static_cast<uint64_t>(gauges.n_steps);
  return gauges;
}

void Engine::start() {
  CHECK(!thread_.joinable());
  thread_ = start_thread("the engine's thread", [this] { return std::thread([this] { run(); }); });
}

void Engine::stop() {
  inbox_.close();
  is_stopping_ = true;
  if (thread_.joinable()) {
    thread_.join();
  } else if (fault().empty()) {
    try {
      cancel_all();
    } catch (const DeviceLost& error) {
      die(error.what(), true);
    }
  }
  workers_.reset();  // runs the job in progress to its end
}

void Engine::warm_up() {
  struct Sink : TokenSink {
    void on_token(const Sampled&) override {}
    void on_finish(const Finish& f) override { finish = f; }
    Finish finish;
  };
  const RunnerInfo& info = runner_.info();
  // An asynchronous device may record each step shape of up to 8 rows a sequence at its first use.
  const int n_most = depth_ > 1 && can_draft(info) ? std::min(7, info.max_logits - info.max_seqs) : 0;
  for (int n_drafts = 0; n_drafts <= n_most; ++n_drafts) {
    const auto sink = std::make_shared<Sink>();
    Request request;
    request.sink = sink;
    request.prompt.assign(std::clamp(context_limit(info) - 2, 1, 2), 0);
    request.sampling.temperature = 0;
    request.max_tokens = std::min(2 + n_drafts, context_limit(info) - static_cast<int>(request.prompt.size()));
    if (n_drafts > 0 && has_draft_head()) {
      request.proposer = std::make_shared<DraftHeadProposer>(n_drafts);
    } else if (n_drafts > 0) {
      request.proposer = std::make_shared<OracleProposer>(std::vector<int32_t>(2 + n_drafts), request.prompt.size(),
                                                          info.n_vocab, 1, 0, n_drafts);
    }
    submit(std::move(request));
    while (step()) {}
    if (sink->finish.reason == FinishReason::kError) throw Error("the first step failed: {}", sink->finish.error);
  }
}

// ---- the stepping thread ----

void Engine::run() {
  try {
    while (receive(idle())) {
      if (!idle()) run_step();
    }
    cancel_all();
  } catch (const DeviceLost& error) {
    die(error.what(), true);
  } catch (const std::exception& error) {
    die(error.what());
  } catch (...) {
    die("an exception that is not a std::exception");
  }
}

// The engine's state may be half changed, so this function uses nothing but the sinks that wait for an answer.
void Engine::die(const char* why, bool lost_device) {
  log_warn("the engine has ended: {}", why);
  inbox_.close();
  {
    std::lock_guard lock(gauges_mutex_);
    fault_ = *why == '\0' ? "unknown" : why;
    lost_device_ = lost_device;
  }
  const auto tell = [&](Sequence& sequence) {
    const bool is_further = sequence.beams && sequence.beams->leader() != &sequence;
    if (!sequence.finished && !is_further)
      tell_end(sequence, {FinishReason::kError, -1, why, false, usage_of(sequence)});
    sequence.request.sink.reset();  // it may own an object that owns this engine
    sequence.request.more_sinks.clear();
  };
  for (const auto& [id, sequence] : sequences_) tell(*sequence);
  for (const Message& message : inbox_.drain(false))
    if (message.sequence) tell(*message.sequence);
}

std::string Engine::fault() const {
  std::lock_guard lock(gauges_mutex_);
  return fault_;
}

bool Engine::lost_device() const {
  std::lock_guard lock(gauges_mutex_);
  return lost_device_;
}

bool Engine::step() {
  CHECK(!thread_.joinable());
  receive(false);
  if (idle()) {
    std::this_thread::yield();  // to the workers, if sequences wait for masks
    return scheduler_.waits_for_masks();
  }
  try {
    run_step();
  } catch (const DeviceLost& error) {
    die(error.what(), true);
    throw;
  }
  return true;
}

// Handles the messages that have arrived. Returns false once the engine must stop.
bool Engine::receive(bool block) {
  const bool timed = block && next_limit_ != Clock::time_point::max();
  is_working_ = !block;
  std::vector<Message> messages = timed ? inbox_.drain_until(next_limit_) : inbox_.drain(block);
  is_working_ = true;
  needs_message_ = false;
  for (Message& message : messages) handle(message);
  end_late_requests();
  publish();
  return !inbox_.closed();
}

void Engine::handle(Message& message) {
  if (message.order == Order::kSubmit) return admit(std::move(message.sequence));
  if (message.order == Order::kCall) return message.call();
  const auto found = sequences_.find(message.id);
  if (found == sequences_.end() || found->second->finished) return;
  Sequence& sequence = *found->second;
  if (message.order == Order::kCancel) return finish(sequence, FinishReason::kCancelled);
  if (sequence.beams) return;
  if (message.order == Order::kPause) scheduler_.pause(&sequence);
  if (message.order == Order::kResume) scheduler_.resume(&sequence);
}

// If memory runs out here, only this request fails.
void Engine::admit(std::unique_ptr<Sequence> owned) {
  Sequence& sequence = *owned;
  try {
    const auto place = sequences_.try_emplace(sequence.id).first;
    try {
      scheduler_.add(&sequence);
    } catch (...) {
      sequences_.erase(place);
      throw;
    }
    place->second = std::move(owned);
  } catch (const std::exception& error) {
    --n_queued_;
    return tell_end(sequence, {FinishReason::kError, -1, message_of(error), false, usage_of(sequence)});
  }
  const Clock::time_point limit = next_limit(sequence);
  if (limit != Clock::time_point{}) next_limit_ = std::min(next_limit_, limit);
}

void Engine::end_late_requests() {
  const Clock::time_point now = Clock::now();
  if (now < next_limit_) return;
  next_limit_ = Clock::time_point::max();
  for (auto next = sequences_.begin(); next != sequences_.end();) {
    Sequence& sequence = *next++->second;  // finish() may erase the sequence
    const Clock::time_point limit = next_limit(sequence), deadline = sequence.request.deadline;
    if (limit == Clock::time_point{} || sequence.finished) continue;
    const bool over = deadline != Clock::time_point{} && deadline <= now;
    if (limit <= now) {
      const bool has_beams = sequence.beams != nullptr;
      finish(sequence, over ? FinishReason::kDeadline : FinishReason::kNotBegun);
      if (has_beams) next = sequences_.begin();  // several sequences may be erased
    } else {
      next_limit_ = std::min(next_limit_, limit);
    }
  }
}

// Ends a sequence, and destroys it unless a step in flight uses its blocks. Sequences end only here, so on_finish is
// called once. Beams end together.
void Engine::finish(Sequence& sequence, FinishReason reason, const std::string& error, int32_t stop_token) {
  if (sequence.beams) return finish_beams(*sequence.beams, reason, error);
  Finish finish{reason, stop_token, {}, sequence.has_nan, usage_of(sequence)};
  try {
    finish.error = error;
  } catch (const std::bad_alloc&) {
    finish.error = kOutOfMemory;  // short enough not to allocate
  }
  count_end(sequence, reason);
  const std::unique_ptr<Sequence> owned = retire(sequence);
  publish();  // before tell_end, so that the consumer sees the blocks released
  tell_end(sequence, finish);
}

void Engine::count_end(const Sequence& sequence, FinishReason reason) {
  if (sequence.first_step == Clock::time_point{}) --n_queued_;
  ++counts_.n_finished;
  ++counts_.n_finished_by[static_cast<int>(reason)];
}

// The sequence takes part in no later step. It lives as long as the returned pointer, or until its last step ends.
std::unique_ptr<Sequence> Engine::retire(Sequence& sequence) {
  sequence.finished = true;
  scheduler_.remove(&sequence);
  return sequence.n_steps == 0 ? destroy(sequence) : nullptr;
}

// The sequence lives as long as the returned pointer.
std::unique_ptr<Sequence> Engine::destroy(Sequence& sequence) {
  scheduler_.release(&sequence);
  return std::move(sequences_.extract(sequence.id).mapped());
}

void Engine::cancel_all() {
  receive(false);
  while (!in_flight_.empty()) complete_oldest();
  while (!sequences_.empty()) finish(*sequences_.begin()->second, FinishReason::kCancelled);
  publish();
}

void Engine::publish() {
  static_cast<DraftCounts&>(counts_) = drafts_.counts();
  counts_.n_running = scheduler_.n_running();
  counts_.n_waiting = scheduler_.n_waiting();
  counts_.n_paused = scheduler_.n_paused();
  counts_.blocks_used = scheduler_.pool().n_used();
  counts_.blocks_cached = scheduler_.pool().n_cached();
  counts_.states_used = scheduler_.states().n_used();
  counts_.states_cached = scheduler_.states().n_cached();
  counts_.n_states = scheduler_.states().n_slots();
  counts_.n_blocks_released = scheduler_.n_blocks_released();
  counts_.block_size = runner_.info().block_size;
  counts_.n_blocks = scheduler_.pool().n_blocks();
  std::lock_guard lock(gauges_mutex_);
  gauges_ = counts_;
}

}  // namespace ingot

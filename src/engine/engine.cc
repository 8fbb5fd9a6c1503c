#include "engine/engine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace ingot {
namespace {

SchedulerLimits scheduler_limits(const RunnerInfo& info, int chunk) {
  if (chunk < 1) throw Error("chunk is {}: a step needs at least one token of a prompt", chunk);
  return {.max_batch_tokens = info.max_batch_tokens,
          .max_seqs = info.max_seqs,
          .chunk = std::min(chunk, info.max_batch_tokens),
          .block_size = info.block_size,
          .n_blocks = info.n_blocks};
}

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double, std::milli>(end - begin).count());
}

Usage usage_of(const Sequence& sequence) {
  Usage usage;
  usage.prompt_tokens = sequence.n_prompt;
  usage.output_tokens = sequence.n_output();
  usage.preemptions = sequence.n_preempted;
  const bool started = sequence.first_step != Clock::time_point{};
  usage.queue_ms = ms_between(sequence.submitted, started ? sequence.first_step : Clock::now());
  if (usage.output_tokens > 0) {
    usage.prefill_ms = ms_between(sequence.first_step, sequence.first_token);
    usage.decode_ms = ms_between(sequence.first_token, sequence.last_token);
  }
  return usage;
}

}  // namespace

Engine::Engine(Runner& runner, const EngineOptions& options)
    : runner_(runner),
      options_(options),
      scheduler_(scheduler_limits(runner.info(), options.chunk)),
      builder_(scheduler_limits(runner.info(), options.chunk), context_limit(runner.info())) {
  sampled_.reserve(runner.info().max_seqs);
  publish();
}

Engine::~Engine() { stop(); }

// ---- any thread ----

RequestId Engine::submit(Request request) {
  validate(request, runner_.info());
  auto sequence = std::make_unique<Sequence>();
  const int limit = context_limit(runner_.info());
  sequence->id = next_id_++;
  sequence->n_prompt = static_cast<int>(request.prompt.size());
  sequence->max_len = request.max_tokens < 0 ? limit : sequence->n_prompt + request.max_tokens;
  sequence->tokens = std::move(request.prompt);
  sequence->tokens.reserve(sequence->max_len);
  sequence->blocks.reserve(sequence->max_len / runner_.info().block_size + 1);
  sequence->request = std::move(request);
  sequence->submitted = Clock::now();
  const RequestId id = sequence->id;
  if (!inbox_.push({std::move(sequence), 0})) throw Error("the engine has stopped and takes no more requests");
  return id;
}

void Engine::cancel(RequestId id) { inbox_.push({nullptr, id}); }

EngineGauges Engine::gauges() const {
  std::lock_guard lock(gauges_mutex_);
  return gauges_;
}

void Engine::start() {
  CHECK(!thread_.joinable());
  thread_ = std::thread([this] { run(); });
}

void Engine::stop() {
  inbox_.close();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    cancel_all();
  }
}

void Engine::warm_up() {
  struct Sink : TokenSink {
    void on_token(const Sampled&) override {}
    void on_finish(const Finish& f) override { finish = f; }
    Finish finish;
  };
  const auto sink = std::make_shared<Sink>();
  Request request;
  request.sink = sink;
  request.prompt.assign(std::clamp(context_limit(runner_.info()) - 2, 1, 2), 0);
  request.sampling.temperature = 0;
  request.max_tokens = std::min(2, context_limit(runner_.info()) - static_cast<int>(request.prompt.size()));
  submit(std::move(request));
  while (step()) {
  }
  if (sink->finish.reason == FinishReason::kError) throw Error("the first step failed: {}", sink->finish.error);
}

// ---- the stepping thread ----

void Engine::run() {
  while (receive(scheduler_.idle())) {
    if (!scheduler_.idle()) run_step();
  }
  cancel_all();
}

bool Engine::step() {
  CHECK(!thread_.joinable());
  receive(false);
  if (scheduler_.idle()) return false;
  run_step();
  return true;
}

// Takes in what has come. False once the engine is to stop.
bool Engine::receive(bool block) {
  for (Message& message : inbox_.drain(block)) {
    if (message.submitted) {
      Sequence* sequence = message.submitted.get();
      sequences_.emplace(sequence->id, std::move(message.submitted));
      scheduler_.add(sequence);
    } else if (const auto found = sequences_.find(message.cancelled); found != sequences_.end()) {
      finish(*found->second, FinishReason::kCancelled);
    }
  }
  publish();
  return !inbox_.closed();
}

void Engine::run_step() {
  StepStats stats{.index = counts_.n_steps++, .begin = Clock::now()};
  const Step& step = scheduler_.plan();
  stats.planned = Clock::now();
  const Batch& batch = builder_.fill(step);
  stats.filled = Clock::now();
  for (const StepItem& item : step.items) {
    if (item.sequence->first_step == Clock::time_point{}) item.sequence->first_step = stats.begin;
  }
  stats.n_tokens = step.n_tokens;
  stats.n_seqs = static_cast<int>(step.items.size());
  stats.n_decodes = step.n_decodes;
  stats.n_preempted = step.n_preempted;
  stats.n_running = scheduler_.n_running();
  stats.n_waiting = scheduler_.n_waiting();
  stats.blocks_used = scheduler_.pool().n_used();

  stats.failed = !compute(batch, stats);
  stats.sampled = Clock::now();
  if (stats.failed) {
    for (const StepItem& item : step.items) finish(*item.sequence, FinishReason::kError, step_error_);
  } else {
    emit(step);
  }
  stats.emitted = Clock::now();

  counts_.n_failed_steps += stats.failed;
  counts_.n_preemptions += stats.n_preempted;
  publish();
  if (options_.on_step) options_.on_step(stats);
}

// Fills sampled_. A failure costs the requests of this step, whose cache may be half written, and no others.
bool Engine::compute(const Batch& batch, StepStats& stats) {
  try {
    runner_.forward(batch);
    stats.submitted = Clock::now();
    runner_.sample(builder_.rows());
    sampled_ = runner_.wait();
    CHECK_EQ(sampled_.size(), builder_.rows().size());
    return true;
  } catch (const std::exception& error) {
    step_error_ = error.what();
    if (stats.submitted == Clock::time_point{}) stats.submitted = Clock::now();
    log_info("a step of {} sequences failed: {}", stats.n_seqs, step_error_);
    return false;
  }
}

void Engine::emit(const Step& step) {
  size_t row = 0;
  for (const StepItem& item : step.items) {
    if (item.samples) emit_token(*item.sequence, sampled_[row++]);
  }
}

void Engine::emit_token(Sequence& sequence, const Sampled& sampled) {
  const Request& request = sequence.request;
  if (sampled.token < 0 || sampled.token >= runner_.info().n_vocab) {
    return finish(sequence, FinishReason::kError, "the model's output allows no token here");
  }
  sequence.last_token = Clock::now();
  if (sequence.n_output() == 0) sequence.first_token = sequence.last_token;
  sequence.tokens.push_back(sampled.token);
  const bool stops =
      !request.ignore_eos && std::ranges::find(request.stop_tokens, sampled.token) != request.stop_tokens.end();
  if (stops) return finish(sequence, FinishReason::kStop, "", sampled.token);
  try {
    request.sink->on_token(sampled);
  } catch (const std::exception& error) {
    return finish(sequence, FinishReason::kError, error.what());
  }
  if (sequence.len() == sequence.max_len) finish(sequence, FinishReason::kLength);
}

// Ends a sequence and destroys it. In no other place does a sequence end, so its sink hears of it once.
void Engine::finish(Sequence& sequence, FinishReason reason, const std::string& error, int32_t stop_token) {
  scheduler_.remove(&sequence);
  ++counts_.n_finished;
  publish();  // first, so that who hears of the end sees the blocks returned
  const auto node = sequences_.extract(sequence.id);
  try {
    sequence.request.sink->on_finish({reason, stop_token, error, usage_of(sequence)});
  } catch (const std::exception& sink_error) {
    log_warn("request {}: its consumer failed at the end: {}", sequence.id, sink_error.what());
  }
}

void Engine::cancel_all() {
  receive(false);
  while (!sequences_.empty()) finish(*sequences_.begin()->second, FinishReason::kCancelled);
  publish();
}

void Engine::publish() {
  counts_.n_running = scheduler_.n_running();
  counts_.n_waiting = scheduler_.n_waiting();
  counts_.blocks_used = scheduler_.pool().n_used();
  counts_.n_blocks = scheduler_.pool().n_blocks();
  std::lock_guard lock(gauges_mutex_);
  gauges_ = counts_;
}

}  // namespace ingot

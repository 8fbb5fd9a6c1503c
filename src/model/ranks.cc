#include "model/ranks.h"

#include <algorithm>
#include <chrono>

#include "backend/recorded_steps.h"
#include "backend/trace.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "model/batch_message.h"
#include "model/decoder_program.h"

namespace ingot {
namespace {

std::unique_ptr<Backend> make_backend(const RunnerOptions& options) {
  std::unique_ptr<Backend> backend = create_backend(options.backend);
  if (auto* recorded = dynamic_cast<RecordedSteps*>(backend.get())) {
    if (options.check_replay) recorded->check_replays();
    if (options.trace && !options.trace_ops) recorded->trace_steps(options.trace);
  }
  if (options.parallel.communicator) backend->connect(options.parallel.communicator);
  if (options.check_nan) backend = nan_check_backend(std::move(backend));
  if (options.trace && options.trace_ops) backend = trace_backend(std::move(backend), options.trace);
  return backend;
}

}  // namespace

Ranks::Ranks(const Config& config, std::unique_ptr<WeightSource> source, const RunnerOptions& options,
             const LoadProgress& progress)
    : config_(config),
      communicator_(options.parallel.communicator),
      source_(options.check_tensors ? checked_source(std::move(source)) : std::move(source)),
      backend_(make_backend(options)) {
  if (!backend_->keeps_kv_as(options.kv_dtype))
    throw Error("KV caches of q8_0 run on the CPU: use fp8 or f16, or the device cpu");
  const size_t before = backend_->allocated_bytes(), free_before = backend_->available_bytes();
  size_t limit = memory_limit(options);
  if (options.fills_memory()) limit -= std::min(limit, backend_->driver_bytes());
  plan_ = plan_memory(config_, weight_bytes(*source_, config_, *backend_), limit, options, backend_.get());
  if (communicator_) agree(*communicator_, plan_);
  if (options.n_ctx > config_.n_ctx_train)
    log_warn("a context of {} tokens is more than the {} that the model was trained for", options.n_ctx,
             config_.n_ctx_train);
  load(progress);
  if (options.fills_memory()) {  // the bytes that the weights take are known only now
    plan_ = plan_memory(config_, {backend_->allocated_bytes() - before, plan_.borrowed_bytes}, limit, options,
                        backend_.get());
    if (communicator_) agree(*communicator_, plan_);
  }
  log_info("memory:\n{}", plan_.table());
  kv_ = backend_->make_kv(plan_.kv);
  if (plan_.states) states_ = backend_->make_states(plan_.states);
  program_.emplace(decoder_layers(config_, weights_, {kv_.get(), states_.get()}, backend_.get(), plan_.n_ctx));
  program_->blocks.emplace_back(head_block(config_, weights_));
  program_->allocate(*backend_, plan_.limits);
  const size_t free_after = std::min(backend_->available_bytes(), free_before);
  log_info("{} of the device's memory are taken, and nothing more while it runs; the device has {} less than before",
           human_bytes(backend_->allocated_bytes()), human_bytes(free_before - free_after));
  info_ = {.n_vocab = config_.n_vocab,
           .n_ctx = plan_.n_ctx,
           .block_size = kv_->shape.block_size,
           .n_blocks = kv_->shape.n_blocks,
           .max_batch_tokens = plan_.max_batch_tokens,
           .max_seqs = plan_.max_seqs,
           .max_logits = plan_.limits.max_logits,
           .n_states = plan_.states.n_slots,
           .window = config_.widest_window(),
           .takes_embeddings = true,
           .embedding_dim = config_.dim,
           .overlaps = backend_->overlaps()};
  if (communicator_) await_all(*communicator_);
}

void Ranks::load(const LoadProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  weights_ = load_weights(*source_, config_, *backend_, progress);
  backend_->synchronize();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_info("{} of weights in {:.3f} s, {:.1f} GB/s", human_bytes(weights_.file_bytes), seconds,
           static_cast<double>(weights_.file_bytes) / seconds * 1e-9);
  if (const std::string path = changed_mapped_file(); !path.empty())
    throw Error("{} was written to or cut while it was loaded: start again when it is whole", printable(path));
}

Ranks::~Ranks() {
  if (!communicator_) return;
  try {
    if (communicator_->rank() == 0) communicator_->send({});
  } catch (...) {  // the others have ended already
  }
  backend_->connect(nullptr);
  followers_.reset();
}

void Ranks::follow() {
  for (;;) {
    const std::vector<uint8_t> message = communicator_->receive();
    if (message.empty()) return;
    const ReceivedBatch received(message, kv_->shape.block_size);
    forward(received.batch);
  }
}

// Of several ranks none can go on without the others.
void Ranks::forward(const Batch& batch) {
  if (!communicator_) {
    backend_->run(*program_, batch);
  } else {
    try {
      if (communicator_->rank() == 0) communicator_->send(message_of(batch, kv_->shape.block_size));
      backend_->run(*program_, batch);
    } catch (const DeviceLost& lost) {
      communicator_->abort(std::current_exception());
      throw;
    } catch (const std::exception& fault) {
      const DeviceLost lost("{}: {}", rank_name(communicator_->rank(), communicator_->size()), fault.what());
      communicator_->abort(std::make_exception_ptr(lost));
      throw lost;
    }
  }
  logits_ = program_->output(batch.n_tokens(), batch.n_seqs(), batch.n_logits());
}

// The device memory that the model may take.
size_t Ranks::memory_limit(const RunnerOptions& o) const {
  const size_t sharers = backend_->is_host() ? static_cast<size_t>(o.parallel.ranks_of_host) : 1;
  const size_t free = backend_->available_bytes() / sharers, all = std::max(backend_->device_bytes() / sharers, free);
  if (o.memory_bytes > free)
    throw Error("the device has {} free, and {} are to be taken: use fewer", human_bytes(free),
                human_bytes(o.memory_bytes));
  if (o.memory_bytes > 0) return o.memory_bytes;
  if (o.memory_share == 0) return free;
  const auto limit = static_cast<size_t>(o.memory_share * static_cast<double>(all));
  if (limit <= all - free)
    throw Error("{} of the device's {} are in use already: a share of {} leaves nothing", human_bytes(all - free),
                human_bytes(all), o.memory_share);
  return limit - (all - free);
}

std::vector<float> Ranks::logits() {
  std::vector<float> host(static_cast<size_t>(logits_.rows * logits_.cols));
  if (!host.empty()) backend_->download(host.data(), logits_);
  return host;
}

}  // namespace ingot

#include "model/ranks.h"

#include <algorithm>
#include <chrono>

#include "backend/recorded_steps.h"
#include "backend/repacked_weights.h"
#include "backend/trace.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"

namespace ingot {
namespace {

std::unique_ptr<Backend> make_backend(const RunnerOptions& options) {
  std::unique_ptr<Backend> backend = create_backend(options.backend);
  if (auto* recorded = dynamic_cast<RecordedSteps*>(backend.get())) {
    if (options.check_replay) recorded->check_replays();
    if (options.trace && !options.trace_verbs) recorded->trace_steps(options.trace);
  }
  if (options.check_nan) backend = nan_check_backend(std::move(backend));
  if (options.trace && options.trace_verbs) backend = trace_backend(std::move(backend), options.trace);
  return backend;
}

}  // namespace

Ranks::Ranks(const Config& config, std::unique_ptr<WeightSource> source, const RunnerOptions& options,
             const LoadProgress& progress)
    : config_(config), source_(options.check_tensors ? checked_source(std::move(source)) : std::move(source)), backend_(make_backend(options)) {
  if (needs_experts(config_) && !backend_->runs_experts())
    throw Error("{} does not run models with a mixture of experts, or with attention over latents: use --device cpu", backend_->name());
  if (config_.n_recurrent_layers() > 0 && !backend_->runs_recurrence())
    throw Error("{} does not run models with recurrent layers (gated delta nets): use --device cpu", backend_->name());
  if (!backend_->keeps_kv_as(options.kv_dtype)) throw Error("KV caches of q8_0 run on the CPU: use --kv-type fp8 or f16, or --device cpu");
  const size_t limit = memory_limit(options);
  plan_ = plan_memory(config_, weight_bytes(), limit, options);
  const int max_logits = options.max_logits > 0 ? options.max_logits : options.max_seqs;
  const auto limits = [&] { return step_limits(config_, plan_.max_batch_tokens, plan_.max_seqs, max_logits, plan_.n_ctx); };
  if (options.n_ctx > config_.n_ctx_train)
    log_warn("a context of {} tokens is more than the {} that the model was trained for", options.n_ctx, config_.n_ctx_train);
  const size_t before = backend_->allocated_bytes();
  const auto start = std::chrono::steady_clock::now();
  weights_ = load_weights(*source_, config_, *backend_, progress);
  backend_->synchronize();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_info("{} of weights in {:.3f} s, {:.1f} GB/s", human_bytes(weights_.file_bytes), seconds, static_cast<double>(weights_.file_bytes) / seconds * 1e-9);
  if (const std::string path = changed_mapped_file(); !path.empty())
    throw Error("{} was written to or cut while it was loaded: start again when it is whole", printable(path));
  if (options.fills_memory()) {  // now that it is known what the weights take there
    const size_t scratch = std::min(limit, backend_->scratch_bytes(limits()));
    plan_ = plan_memory(config_, backend_->allocated_bytes() - before, limit - scratch, options);
  }
  log_info("memory:\n{}", plan_.table());
  kv_ = backend_->make_kv(plan_.kv);
  if (plan_.states) states_ = backend_->make_states(plan_.states);
  transformer_ = std::make_unique<Transformer>(config_, weights_, *backend_, *kv_, states_.get(), limits());
  log_info("{} of the device's memory are taken, and nothing more while it runs", human_bytes(backend_->allocated_bytes()));
  info_ = {.n_vocab = config_.n_vocab,
           .n_ctx = plan_.n_ctx,
           .block_size = kv_->shape.block_size,
           .n_blocks = kv_->shape.n_blocks,
           .max_batch_tokens = plan_.max_batch_tokens,
           .max_seqs = plan_.max_seqs,
           .max_logits = max_logits,
           .n_states = plan_.states.n_slots,
           .window = config_.widest_window(),
           .overlaps = backend_->overlaps()};
}

// What they will take on the device; told before they are loaded, which may take minutes.
size_t Ranks::weight_bytes() const {
  const auto* repacked = dynamic_cast<const RepackedWeights*>(backend_.get());
  if (repacked == nullptr) return source_->total_bytes();
  return source_->total_bytes_as([&](Format format, int64_t n_elements) { return repacked->packed_bytes(format, n_elements); });
}

// What the model may take.
size_t Ranks::memory_limit(const RunnerOptions& o) const {
  const size_t free = backend_->available_bytes(), all = std::max(backend_->device_bytes(), free);
  if (o.memory_bytes > free) throw Error("the device has {} free, and {} are to be taken: use fewer", human_bytes(free), human_bytes(o.memory_bytes));
  if (o.memory_bytes > 0) return o.memory_bytes;
  if (o.memory_share == 0) return free;
  const auto limit = static_cast<size_t>(o.memory_share * static_cast<double>(all));
  if (limit <= all - free)
    throw Error("{} of the device's {} are in use already: a share of {} leaves nothing", human_bytes(all - free), human_bytes(all), o.memory_share);
  return limit - (all - free);
}

std::vector<float> Ranks::logits() {
  const Tensor logits = transformer_->logits();
  std::vector<float> host(logits.rows * logits.cols);
  if (!host.empty()) backend_->download(host.data(), logits);
  return host;
}

}  // namespace ingot

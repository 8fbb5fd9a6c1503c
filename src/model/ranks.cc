#include "model/ranks.h"

#include "backend/trace.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace ingot {
namespace {

std::unique_ptr<Backend> make_backend(const RunnerOptions& options) {
  std::unique_ptr<Backend> backend = create_backend(options.backend);
  if (options.check_nan) backend = nan_check_backend(std::move(backend));
  if (options.trace) backend = trace_backend(std::move(backend), options.trace);
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
  plan_ = plan_memory(config_, source_->total_bytes(), backend_->available_bytes(), options);
  log_info("memory:\n{}", plan_.table());
  if (options.n_ctx > config_.n_ctx_train)
    log_warn("a context of {} tokens is more than the {} that the model was trained for", options.n_ctx, config_.n_ctx_train);
  weights_ = load_weights(*source_, config_, *backend_, progress);
  if (const std::string path = changed_mapped_file(); !path.empty())
    throw Error("{} was written to or cut while it was loaded: start again when it is whole", printable(path));
  kv_ = backend_->make_kv(plan_.kv);
  if (plan_.states) states_ = backend_->make_states(plan_.states);
  const int max_logits = options.max_logits > 0 ? options.max_logits : options.max_seqs;
  transformer_ = std::make_unique<Transformer>(
      config_, weights_, *backend_, *kv_, states_.get(), step_limits(config_, plan_.max_batch_tokens, plan_.max_seqs, max_logits, plan_.n_ctx));
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

std::vector<float> Ranks::logits() {
  const Tensor logits = transformer_->logits();
  std::vector<float> host(logits.rows * logits.cols);
  if (!host.empty()) backend_->download(host.data(), logits);
  return host;
}

}  // namespace ingot

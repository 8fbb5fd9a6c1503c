#include "model/ranks.h"

#include <algorithm>

#include "backend/trace.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"

namespace ingot {
namespace {

std::unique_ptr<Backend> make_backend(const RunnerOptions& options) {
  std::unique_ptr<Backend> backend = create_backend(options.backend);
  if (options.check_nan) backend = nan_check_backend(std::move(backend));
  if (options.trace) backend = trace_backend(std::move(backend), options.trace);
  return backend;
}

KvShape kv_shape_of(const Config& c, const RunnerOptions& options, int n_ctx) {
  const int64_t n_tokens = options.n_kv_tokens > 0 ? options.n_kv_tokens : n_ctx;
  return {.n_layers = c.n_layers,
          .n_kv_heads = c.n_kv_heads,
          .head_dim = c.head_dim,
          .block_size = options.block_size,
          .n_blocks = static_cast<int>((n_tokens + options.block_size - 1) / options.block_size),
          .dtype = options.kv_dtype};
}

int context_of(const Config& config, const RunnerOptions& options, size_t weight_bytes) {
  if (options.n_ctx == 0) return default_context(config, weight_bytes, 1, options.kv_dtype);
  if (options.n_ctx > config.n_ctx_train)
    log_warn("a context of {} tokens is more than the {} that the model was trained for", options.n_ctx, config.n_ctx_train);
  return options.n_ctx;
}

}  // namespace

int default_context(const Config& config, size_t weight_bytes, int n_seqs, DType kv_dtype) {
  constexpr int kSmallest = 512;
  const KvShape token = {config.n_layers, config.n_kv_heads, config.head_dim, 1, 1, kv_dtype};
  const size_t available = available_memory_bytes();
  const size_t left = available > weight_bytes ? (available - weight_bytes) / 2 : 0;  // the other half is not ours to plan
  const size_t fit = left / (token.token_bytes() * static_cast<size_t>(n_seqs));
  return std::min(config.n_ctx_train, static_cast<int>(std::clamp<size_t>(fit, kSmallest, 1 << 30)));
}

Ranks::Ranks(const Config& config, std::unique_ptr<WeightSource> source, const RunnerOptions& options,
             const LoadProgress& progress)
    : config_(config), source_(options.check_tensors ? checked_source(std::move(source)) : std::move(source)), backend_(make_backend(options)) {
  if (needs_experts(config_) && !backend_->runs_experts())
    throw Error("models with a mixture of experts, or with attention over latents, run on the CPU so far: use --device cpu");
  const size_t weight_bytes = source_->total_bytes(), available = available_memory_bytes();
  if (weight_bytes > available)
    throw Error("the weights need {} and this machine has {} free: use a smaller model or a smaller quant",
                human_bytes(weight_bytes), human_bytes(available));
  const int n_ctx = context_of(config_, options, weight_bytes);
  weights_ = load_weights(*source_, config_, *backend_, progress);
  kv_ = backend_->make_kv(kv_shape_of(config_, options, n_ctx));
  const int max_tokens = std::min(options.max_batch_tokens, std::max(n_ctx, options.max_seqs));
  const int max_logits = options.max_logits > 0 ? options.max_logits : options.max_seqs;
  transformer_ = std::make_unique<Transformer>(
      config_, weights_, *backend_, *kv_, step_limits(config_, max_tokens, options.max_seqs, max_logits, n_ctx));
  info_ = {.n_vocab = config_.n_vocab,
           .n_ctx = n_ctx,
           .block_size = kv_->shape.block_size,
           .n_blocks = kv_->shape.n_blocks,
           .max_batch_tokens = max_tokens,
           .max_seqs = options.max_seqs,
           .overlaps = backend_->overlaps()};
}

std::vector<float> Ranks::logits() {
  const Tensor logits = transformer_->logits();
  std::vector<float> host(logits.rows * logits.cols);
  if (!host.empty()) backend_->download(host.data(), logits);
  return host;
}

}  // namespace ingot

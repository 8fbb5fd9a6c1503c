#include "model/ranks.h"

#include <algorithm>
#include <chrono>

#include "backend/recorded_steps.h"
#include "backend/trace.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "model/decoder_program.h"

namespace ingot {
namespace {

std::unique_ptr<Backend> make_backend(const RunnerOptions& options) {
  std::unique_ptr<Backend> backend = create_backend(options.backend);
  if (auto* recorded = dynamic_cast<RecordedSteps*>(backend.get())) {
    if (options.check_replay) recorded->check_replays();
    if (options.trace && !options.trace_ops) recorded->trace_steps(options.trace);
  }
  if (options.check_nan) backend = nan_check_backend(std::move(backend));
  if (options.trace && options.trace_ops) backend = trace_backend(std::move(backend), options.trace);
  return backend;
}

// A head that nobody asked for by name is left out if its tensors are not as expected.
DraftHeadFile open_head(WeightSource& source, const Config& config, const RunnerOptions& options,
                        const Backend& backend) {
  if (options.eagle_head) return open_eagle_head(*options.eagle_head, config);
  if (options.mtp_head == MtpHead::kNone) return {};
  DraftHeadFile head = find_mtp_head(source, config);
  if (!head && options.mtp_head == MtpHead::kNeeded)
    throw Error("{}: the model has no layer for multi-token prediction (MTP): guess tokens in another way, or not",
                source.name());
  try {
    if (head) head_bytes(head, backend);
  } catch (const Error& error) {
    if (options.mtp_head == MtpHead::kNeeded) throw;
    log_warn("the model's layer for multi-token prediction is not used: {}", error.what());
    return {};
  }
  return head;
}

Config with_head(Config config, const DraftHeadFile& head) {
  config.draft_head = head.config;
  return config;
}

}  // namespace

Ranks::Ranks(const Config& config, std::unique_ptr<WeightSource> source, const RunnerOptions& options,
             const LoadProgress& progress)
    : source_(options.check_tensors ? checked_source(std::move(source)) : std::move(source)),
      backend_(make_backend(options)),
      head_file_(open_head(*source_, config, options, *backend_)),
      config_(with_head(config, head_file_)) {
  if (!backend_->keeps_kv_as(options.kv_dtype))
    throw Error("KV caches of q8_0 run on the CPU: use fp8 or f16, or the device cpu");
  const size_t before = backend_->allocated_bytes(), free_before = backend_->available_bytes();
  size_t limit = memory_limit(options);
  if (options.fills_memory()) limit -= std::min(limit, backend_->driver_bytes());
  WeightBytes bytes = weight_bytes(*source_, config_, *backend_);
  if (head_file_) bytes += head_bytes(head_file_, *backend_);
  plan_ = plan_memory(config_, bytes, limit, options, backend_.get());
  if (options.n_ctx > config_.n_ctx_train)
    log_warn("a context of {} tokens is more than the {} that the model was trained for", options.n_ctx,
             config_.n_ctx_train);
  load(progress);
  if (options.fills_memory())  // the bytes that the weights take are known only now
    plan_ = plan_memory(config_, {backend_->allocated_bytes() - before, plan_.borrowed_bytes}, limit, options,
                        backend_.get());
  log_info("memory:\n{}", plan_.table());
  kv_ = backend_->make_kv(plan_.kv);
  if (plan_.states) states_ = backend_->make_states(plan_.states);
  program_.emplace(decoder_layers(config_, weights_, {kv_.get(), states_.get()}, backend_.get(), plan_.n_ctx));
  program_->blocks.emplace_back(head_block(config_, weights_));
  StepLimits limits = program_->place(*backend_, plan_.limits);
  if (head_file_) {
    draft_head_.emplace(config_, weights_, head_weights_, *program_, plan_, *backend_);
    limits = largest(limits, draft_head_->limits());
  }
  backend_->reserve(limits);
  backend_->prepare_program(*program_);
  if (draft_head_) draft_head_->prepare();
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
           .overlaps = backend_->overlaps(),
           .draft_head = !head_file_                    ? DraftHeadKind::kNone
                         : head_file_.config->is_eagle ? DraftHeadKind::kEagle3
                                                       : DraftHeadKind::kMtp};
}

void Ranks::load(const LoadProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  weights_ = load_weights(*source_, config_, *backend_, progress);
  if (head_file_) head_weights_ = load_head(head_file_, *backend_);
  backend_->synchronize();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_info("{} of weights in {:.3f} s, {:.1f} GB/s", human_bytes(weights_.file_bytes), seconds,
           static_cast<double>(weights_.file_bytes) / seconds * 1e-9);
  if (const std::string path = changed_mapped_file(); !path.empty())
    throw Error("{} was written to or cut while it was loaded: start again when it is whole", printable(path));
}

void Ranks::forward(const Batch& batch) {
  batch_ = batch;
  backend_->run(*program_, batch);
  logits_ = program_->output(batch.n_tokens(), batch.n_seqs(), batch.n_logits());
}

// The device memory that the model may take.
size_t Ranks::memory_limit(const RunnerOptions& o) const {
  const size_t free = backend_->available_bytes(), all = std::max(backend_->device_bytes(), free);
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

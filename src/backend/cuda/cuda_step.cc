// A step of CudaBackend: the batch, and the launches or the record of the step (recorded/).
#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/blocks/remote.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/recorded/recorded_context.h"
#include "base/log.h"

namespace ingot {

using cuda::check;

namespace {

Padding padding_of(const Program& program, int n_seqs, int q_len, int n_logits) {
  Padding padding{.n_seqs = n_seqs, .q_len = q_len, .n_logits = n_logits};
  for (const KvCache* kv : program.kv) {
    const int table = kv->shape.table;
    padding.blocks[static_cast<size_t>(table)] = kv->shape.n_blocks;
    padding.n_tables = std::max(padding.n_tables, table + 1);
    padding.n_blocks = (q_len + kv->shape.block_size - 1) / kv->shape.block_size;
  }
  if (program.states != nullptr) padding.state = program.states->shape.n_slots;
  return padding;
}

}  // namespace

void CudaBackend::begin(const Batch& batch) { start(batch, {}, sizes_.plain_context(cuda::longest_of(batch))); }

void CudaBackend::start(const Batch& batch, const Padding& padding, int most_kv) {
  core_.device.make_current();
  load_ready_kernels();
  Batch known = batch;
  known.tokens = draws_.host_drawn_tokens(batch);
  core_.step.set_sizes(known, padding, most_kv);
  set_step(
      known,
      {.n_tokens = core_.step.n_tokens, .n_seqs = core_.step.n_seqs, .n_logits = batch.n_logits() + padding.n_logits});
  const bool has_drawn =
      std::ranges::any_of(known.tokens, [](int32_t token) { return token < 0; }) && rank_ops_.draws();
  const cuda::BatchUpload::Draws draws = has_drawn ? draws_.on_device() : cuda::BatchUpload::Draws{};
  if (core_.step.batch.upload(known, padding, draws, std::exchange(copy_, {}), core_.step.block_size, core_.device))
    recorder_.drop();
  rank_ops_.share_drawn_tokens(batch);
}

// The kernel that uploads the next batch also copies, which saves a launch.
void CudaBackend::copy_before_run(Tensor y, Tensor x) {
  const auto fits = [](const Tensor& t) { return t.stride == t.cols && cuda::on_16_bytes(t) && t.cols % 4 == 0; };
  if (!fits(y) || !fits(x)) return copy(y, x);
  finish_copy();
  copy_ = {y.f32(), x.f32(), x.rows * x.cols};
}

void CudaBackend::finish_copy() {
  const cuda::FloatCopy todo = std::exchange(copy_, {});
  if (todo.n == 0) return;
  check(cudaMemcpyAsync(todo.to, todo.from, static_cast<size_t>(todo.n) * sizeof(float), cudaMemcpyDeviceToDevice,
                        core_.device.stream()),
        "cudaMemcpyAsync");
}

void CudaBackend::run(const Program& program, const Batch& batch) {
  core_.device.make_current();
  const auto key = sizes_.key_of(program, batch);
  if (key) {
    const int n_pad = key->n_seqs - batch.n_seqs();
    const bool has_rows = program.has_logits() || batch.n_logits() > 0;  // the record reads logit_rows
    start(batch, padding_of(program, n_pad, key->q_len, has_rows ? key->n_seqs * key->q_len - batch.n_logits() : 0),
          key->most_kv);
  } else {
    begin(batch);
  }
  if (core_.clock) core_.clock->begin(core_.step.n_tokens, core_.step.n_seqs);
  key ? recorder_.run(*key, program, this->batch()) : run_blocks(program);
}

// Records the decode steps of a program, so no request waits for a recording. First, a step of each size runs once with
// padding only, so that the driver loads kernel code and cuBLASLt plans are made. Padding writes to no sequence's
// blocks.
void CudaBackend::prepare_program(const Program& program) {
  core_.device.make_current();
  weights_.join(program);
  if (program.kv.empty() || !program.has_logits()) return;
  const auto begun = std::chrono::steady_clock::now();
  fused_.compile(program, sizes_.most_rows(cuda::kMaxGridTokens), [this] { load_ready_kernels(); });
  rank_ops_.meet();
  const size_t before = available_bytes();
  size_t n_records = 0;
  const auto before_size = [&](int n_seqs) {
    if (!rank_ops_.has_peers()) return;  // ranks have to run the same steps, but they may record different ones
    start({}, padding_of(program, n_seqs, 1, n_seqs), sizes_.plain_context(cuda::kContexts[0]));
    run_blocks(program);
    rank_ops_.meet();
  };
  sizes_.each_at_load(program, before_size, [&](const cuda::RecordKey& key, bool runs_first) {
    if (!recorder_.wants(key, program)) return;
    start({}, padding_of(program, key.n_seqs, key.q_len, key.n_seqs * key.q_len), key.most_kv);
    if (runs_first && (key.q_len > 1 || !rank_ops_.has_peers())) run_blocks(program);
    n_records += recorder_.record(key, program);
  });
  synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  log_info("{} steps recorded in {:.2f} s, in {} MiB", n_records, took.count(),
           (before - std::min(before, available_bytes())) >> 20);
}

void CudaBackend::trace_steps(std::shared_ptr<TraceFile> file) {
  core_.clock = std::make_unique<cuda::StepClock>(std::move(file), core_.device);
}

std::vector<Sampled> CudaBackend::wait() {
  core_.device.make_current();
  return draws_.take();
}

void CudaBackend::synchronize() { check(cudaStreamSynchronize(core_.device.stream()), "cudaStreamSynchronize"); }

}  // namespace ingot

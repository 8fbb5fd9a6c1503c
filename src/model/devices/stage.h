// A stage of a pipeline (pipeline.h), as this process sees it: some blocks of a model on a device, or an exchange with
// the stages of other processes (remote_stages.h).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace ingot {

class Stage {
 public:
  virtual ~Stage() = default;
  // The stage's part of a step. One thread calls this function, for each step in turn.
  virtual void run(const Batch& batch, const float* in /* [n_tokens, dim]; null: the first stage */,
                   float* out /* [n_tokens, dim]; null: the last stage */) = 0;
  // Memory for the `out` of several steps; null: the stage passes no rows on.
  virtual std::shared_ptr<float[]> host_floats(size_t n) { return std::make_shared<float[]>(n); }

  // Of the last stage, after run. For each step, either draw or drop is called, and logits only before.
  virtual std::vector<float> logits(const Batch&) { return {}; }
  virtual std::vector<Sampled> draw(const Batch&, std::span<const SampleRow>) { return {}; }
  virtual void drop(const Batch&) {}
};

class DeviceStage final : public Stage {
 public:
  // The program is allocated.
  DeviceStage(Backend* backend, const Program* program) : backend_(*backend), program_(*program) {}

  void run(const Batch& batch, const float* in, float* out) override {
    const Tensor x = program_.x.slice_rows(0, batch.n_tokens());
    if (in != nullptr) backend_.upload(x, in);
    backend_.run(program_, batch);
    if (out != nullptr) backend_.download(out, x);
  }
  std::shared_ptr<float[]> host_floats(size_t n) override { return backend_.host_floats(n); }

  std::vector<float> logits(const Batch& batch) override {
    const Tensor logits = logits_of(batch);
    std::vector<float> host(static_cast<size_t>(logits.rows * logits.cols));
    if (!host.empty()) backend_.download(host.data(), logits);
    return host;
  }
  std::vector<Sampled> draw(const Batch& batch, std::span<const SampleRow> rows) override {
    backend_.sample(logits_of(batch), rows);
    return backend_.wait();
  }

 private:
  Tensor logits_of(const Batch& batch) const {  // [n_logits, n_vocab]
    return program_.output(batch.n_tokens(), batch.n_seqs(), batch.n_logits());
  }

  Backend& backend_;
  const Program& program_;
};

}  // namespace ingot

// The parts of a step that all backends share: the batch, and sampling by the host's sampler.
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/ref/host_rows.h"
#include "backend/sampler.h"

namespace ingot {

void Backend::begin(const Batch& batch) {
  set_step(batch, {batch.n_tokens(), batch.n_seqs(), batch.n_logits()});
  batch_.tokens = with_drawn_tokens(batch, drawn_, tokens_);
}

void Backend::sample(const Tensor& logits, std::span<const SampleRow> rows) {
  HostRows host(*this);
  const Tensor read = host.in(logits);
  SamplerScratch scratch(static_cast<int>(read.cols));
  drawn_.clear();
  for (size_t i = 0; i < rows.size(); ++i)
    drawn_.push_back(draw_row({read.f32(static_cast<int64_t>(i)), static_cast<size_t>(read.cols)}, rows[i], scratch));
}

std::vector<Sampled> Backend::wait() { return std::exchange(drawn_, {}); }

}  // namespace ingot

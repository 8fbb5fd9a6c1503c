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

void Backend::run(const Program& program, const Batch& step) {
  begin(step);
  run_blocks(program, program.all());
}

void Backend::run_part(const Program& program, const Batch& step, BlockRange range) {
  if (range.first == 0) begin(step);
  run_blocks(program, range);
}

void Backend::run_blocks(const Program& program, BlockRange range) {
  if (range.first == 0 && program.source && batch_.n_source_rows() > 0)
    upload(program.source.slice_rows(0, batch_.n_source_rows()), batch_.sources.data());
  if (range.first == 0)
    for (const RopeTable& rope : program.ropes)
      rope_angles(token_rows(rope.angles), rope.inv_freq, rope.magnitude, rope.axis_of);
  run_blocks(std::span(program.blocks)
                 .subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.end - range.first)));
}

void Backend::run_blocks(std::span<const Block> blocks) {
  for (const Block& block : blocks) {
    n_blocks_begun_.fetch_add(1, std::memory_order_relaxed);
    block.run(*this);
  }
}

// The input of a block: x after the block's norm, or x itself without a norm.
Tensor Backend::normed(const Tensor& x, const Tensor& to, const NormArgs& args) {
  if (!args.weight) return x;
  norm(to, x, args);
  return to;
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

#include "engine/batch_builder.h"

#include <algorithm>

namespace ingot {

BatchBuilder::BatchBuilder(const SchedulerLimits& limits, int max_len) {
  const size_t max_blocks = (static_cast<size_t>(max_len) + limits.block_size - 1) / limits.block_size;
  tokens_.reserve(limits.max_batch_tokens);
  positions_.reserve(limits.max_batch_tokens);
  q_start_.reserve(limits.max_seqs + 1);
  kv_len_.reserve(limits.max_seqs);
  block_table_.reserve(limits.max_seqs * max_blocks);
  logit_rows_.reserve(limits.max_seqs);
  rows_.reserve(limits.max_seqs);
}

const Batch& BatchBuilder::fill(const Step& step) {
  tokens_.clear();
  positions_.clear();
  kv_len_.clear();
  logit_rows_.clear();
  rows_.clear();
  q_start_.assign(1, 0);
  for (const StepItem& item : step.items) {
    const Sequence& sequence = *item.sequence;
    const int end = item.begin + item.n_tokens;
    tokens_.insert(tokens_.end(), sequence.tokens.begin() + item.begin, sequence.tokens.begin() + end);
    for (int position = item.begin; position < end; ++position) positions_.push_back(position);
    q_start_.push_back(static_cast<int32_t>(tokens_.size()));
    kv_len_.push_back(end);
    if (!item.samples) continue;
    logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    rows_.push_back({&sequence.request.sampling, sequence.len(), sequence.tokens, nullptr});
  }
  fill_block_table(step);
  batch_.tokens = tokens_;
  batch_.positions = positions_;
  batch_.q_start = q_start_;
  batch_.kv_len = kv_len_;
  batch_.block_table = block_table_;
  batch_.logit_rows = logit_rows_;
  return batch_;
}

// Rows as long as the longest of this step; 0 beyond a sequence's own blocks, where nothing reads.
void BatchBuilder::fill_block_table(const Step& step) {
  size_t max_blocks = 0;
  for (const StepItem& item : step.items) max_blocks = std::max(max_blocks, item.sequence->blocks.size());
  block_table_.assign(step.items.size() * max_blocks, 0);
  for (size_t i = 0; i < step.items.size(); ++i) {
    std::ranges::copy(step.items[i].sequence->blocks, block_table_.begin() + static_cast<ptrdiff_t>(i * max_blocks));
  }
  batch_.max_blocks = static_cast<int>(max_blocks);
}

}  // namespace ingot

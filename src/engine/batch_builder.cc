#include "engine/batch_builder.h"

#include <algorithm>

namespace ingot {

BatchBuilder::BatchBuilder(const SchedulerLimits& limits, int max_len) : has_states_(limits.n_states > 0) {
  const size_t max_blocks = (static_cast<size_t>(max_len) + limits.block_size - 1) / limits.block_size;
  tokens_.reserve(limits.max_batch_tokens);
  positions_.reserve(limits.max_batch_tokens);
  q_start_.reserve(limits.max_seqs + 1);
  kv_len_.reserve(limits.max_seqs);
  block_table_.reserve(limits.max_seqs * max_blocks);
  logit_rows_.reserve(limits.max_seqs + limits.spare_rows);
  rows_.reserve(limits.max_seqs + limits.spare_rows);
  forced_.resize(limits.max_seqs + limits.spare_rows);
  for (auto* states : {&state_in_, &state_out_}) states->reserve(limits.max_seqs);
}

const Batch& BatchBuilder::fill(const Step& step) {
  tokens_.clear();
  positions_.clear();
  kv_len_.clear();
  logit_rows_.clear();
  state_in_.clear();
  state_out_.clear();
  q_start_.assign(1, 0);
  for (const StepItem& item : step.items) {
    const Sequence& sequence = *item.sequence;
    const int end = item.begin + item.n_tokens;
    const int n_seen = std::min(end, sequence.len()), first_row = static_cast<int>(tokens_.size()) - item.begin;
    tokens_.insert(tokens_.end(), sequence.tokens.begin() + item.begin, sequence.tokens.begin() + n_seen);
    if (n_seen < end) tokens_.push_back(drawn_token(sequence.unseen_row));
    for (int position = item.begin; position < end; ++position) positions_.push_back(position);
    q_start_.push_back(static_cast<int32_t>(tokens_.size()));
    kv_len_.push_back(end);
    if (has_states_) state_in_.push_back(item.state_in), state_out_.push_back(item.state_out);
    for (int i = 0; i < item.n_scored; ++i) logit_rows_.push_back(first_row + item.score_begin + i);
    if (item.samples) logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  }
  fill_block_table(step);
  batch_.tokens = tokens_;
  batch_.positions = positions_;
  batch_.q_start = q_start_;
  batch_.kv_len = kv_len_;
  batch_.block_table = block_table_;
  batch_.logit_rows = logit_rows_;
  batch_.state_in = state_in_;
  batch_.state_out = state_out_;
  return batch_;
}

std::span<const SampleRow> BatchBuilder::fill_rows(const Step& step) {
  rows_.clear();
  for (const StepItem& item : step.items) {
    const Sequence& sequence = *item.sequence;
    const std::span<const int32_t> tokens = sequence.tokens;
    for (int end = item.score_begin + 1; end <= item.score_begin + item.n_scored; ++end) {
      SamplingParams& params = forced_[rows_.size()];
      force(params, tokens[end], sequence.request.prompt_logprobs);
      rows_.push_back({.params = &params, .position = end, .history = tokens.first(end), .unwanted = sequence.finished});
    }
    if (!item.samples) continue;
    rows_.push_back({.params = &sequence.sampling(),
                     .position = item.begin + item.n_tokens,
                     .history = tokens,
                     .unwanted = sequence.finished});
  }
  return rows_;
}

// Rows as long as the longest of this step; 0 past a sequence's last block, for nothing reads there. In front of a window kernels
// may read what they then mask, and get the first block that is left: it is the sequence's own, and full.
void BatchBuilder::fill_block_table(const Step& step) {
  size_t max_blocks = 0;
  for (const StepItem& item : step.items) max_blocks = std::max(max_blocks, item.sequence->blocks.size());
  block_table_.assign(step.items.size() * max_blocks, 0);
  for (size_t i = 0; i < step.items.size(); ++i) {
    const Sequence& sequence = *step.items[i].sequence;
    const auto row = block_table_.begin() + static_cast<ptrdiff_t>(i * max_blocks);
    std::ranges::copy(sequence.blocks, row);
    std::fill_n(row, sequence.n_given_up, sequence.blocks[sequence.n_given_up]);
  }
  batch_.max_blocks = static_cast<int>(max_blocks);
}

}  // namespace ingot

#include "engine/batch_builder.h"

#include <algorithm>

namespace ingot {

BatchBuilder::BatchBuilder(const SchedulerLimits& limits, int max_len)
    : has_states_(limits.n_states > 0), n_pools_(limits.pools.size()), embedding_dim_(limits.embedding_dim),
      n_rope_axes_(limits.n_rope_axes),
      embedding_token_(limits.embedding_token),
      has_sources_(limits.source.dim > 0) {
  const int longest = std::max(max_len, limits.source.max_rows);
  const size_t max_blocks = (static_cast<size_t>(longest) + limits.block_size - 1) / limits.block_size;
  tokens_.reserve(limits.max_batch_tokens);
  positions_.reserve(limits.max_batch_tokens);
  next_tokens_.reserve(limits.max_batch_tokens);
  q_start_.reserve(limits.max_seqs + 1);
  kv_len_.reserve(limits.max_seqs);
  block_table_.reserve((limits.pools.size() + has_sources_) * static_cast<size_t>(limits.max_seqs) * max_blocks);
  logit_rows_.reserve(limits.max_seqs + limits.spare_rows);
  rows_.reserve(limits.max_seqs + limits.spare_rows);
  forced_.resize(limits.max_seqs + limits.spare_rows);
  if (embedding_dim_ > 0) {
    embedding_rows_.reserve(limits.max_batch_tokens);
    seen_len_.reserve(limits.max_batch_tokens);
    embeddings_.reserve(static_cast<size_t>(limits.max_batch_tokens) * static_cast<size_t>(embedding_dim_));
  }
  if (n_rope_axes_ > 1) rope_positions_.reserve(kRopeAxes * static_cast<size_t>(limits.max_batch_tokens));
  if (has_sources_) {
    source_start_.reserve(limits.max_seqs + 1), source_len_.reserve(limits.max_seqs);
    sources_.reserve(static_cast<size_t>(limits.source.max_rows) * static_cast<size_t>(limits.source.dim));
  }
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
    const int n_seen = std::min(end, static_cast<int>(sequence.tokens.size())),
              first_row = static_cast<int>(tokens_.size()) - item.begin;
    tokens_.insert(tokens_.end(), sequence.tokens.begin() + item.begin, sequence.tokens.begin() + n_seen);
    if (n_seen < end) tokens_.push_back(drawn_token(sequence.unseen_row));
    for (int position = item.begin; position < end; ++position) positions_.push_back(position);
    q_start_.push_back(static_cast<int32_t>(tokens_.size()));
    kv_len_.push_back(end);
    if (has_states_) state_in_.push_back(item.state_in), state_out_.push_back(item.state_out);
    for (int i = 0; i < item.n_scored; ++i) logit_rows_.push_back(first_row + item.score_begin + i);
    for (int i = item.samples ? item.n_drafts : -1; i >= 0; --i)
      logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1 - i);
  }
  fill_block_table(step);
  if (embedding_dim_ > 0) fill_embeddings(step), fill_seen_len(step);
  if (n_rope_axes_ > 1) fill_rope_positions(step);
  if (has_sources_) fill_sources(step);
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
    Sequence& sequence = *item.sequence;
    const std::span<const int32_t> tokens = sequence.tokens;
    for (int end = item.score_begin + 1; end <= item.score_begin + item.n_scored; ++end) {
      SamplingParams& params = forced_[rows_.size()];
      force(params, tokens[end], sequence.request.prompt_logprobs);
      rows_.push_back(
          {.params = &params, .position = end, .history = tokens.first(end), .unwanted = sequence.finished});
    }
    if (!item.samples) continue;
    const int first = item.begin + item.n_tokens - item.n_drafts;
    for (int end = first; end <= item.begin + item.n_tokens; ++end) {
      const bool unwanted = sequence.finished || item.is_outrun() || item.is_undrawn();
      const bool has_mask = !unwanted && sequence.constraint && sequence.masks[end - first];
      rows_.push_back({.params = &sequence.sampling(end - sequence.n_prompt),
                       .position = end,
                       // shorter if the sequence has ended
                       .history = tokens.first(std::min(tokens.size(), static_cast<size_t>(end))),
                       .mask = has_mask ? sequence.masks[end - first]->data() : nullptr,
                       .unwanted = unwanted,
                       .mirostat_mu = &sequence.mirostat_mu});
    }
  }
  return rows_;
}

// A token that the step samples is represented by the drawn_token() of its row, unless a grammar forced another token.
// The tokens after a wrong draft do not matter.
std::span<const int32_t> BatchBuilder::fill_next_tokens(const Step& step) {
  next_tokens_.clear();
  int row = 0;
  for (const StepItem& item : step.items) {
    const std::span<const int32_t> tokens = item.sequence->tokens;
    const int end = item.begin + item.n_tokens, first_sampled = item.samples ? end - 1 - item.n_drafts : end;
    row += item.n_scored;
    for (int position = item.begin; position < end; ++position) {
      const bool is_drawn = position >= first_sampled && !item.is_outrun() && !item.is_undrawn();
      const auto next = static_cast<size_t>(position) + 1;
      next_tokens_.push_back(is_drawn ? drawn_token(row + position - first_sampled)
                                      : next < tokens.size() ? tokens[next] : 0);
    }
    if (item.samples) row += 1 + item.n_drafts;
  }
  return next_tokens_;
}

// The vectors of this step's chunks, one after another. Other chunks of the same image are in other steps. The chunk of
// a single image stays where it is: copying the 17 MB of a large image takes 2 ms.
void BatchBuilder::fill_embeddings(const Step& step) {
  embeddings_.clear();
  embedding_rows_.clear();
  shared_ = {};
  std::span<const float> only;
  int n_chunks = 0, n_rows = 0;
  for (size_t i = 0; i < step.items.size(); ++i) {
    const StepItem& item = step.items[i];
    for (const PromptEmbedding& e : item.sequence->request.embeddings) {
      const int begin = std::max(item.begin, e.position),
                end = std::min(item.begin + item.n_tokens, e.position + e.n_rows);
      if (begin >= end) continue;
      embedding_rows_.resize(tokens_.size(), -1);
      const auto dim = static_cast<size_t>(embedding_dim_);
      const std::span<const float> chunk =
          e.rows.part(static_cast<size_t>(begin - e.position) * dim, static_cast<size_t>(end - begin) * dim);
      for (int position = begin; position < end; ++position) {
        const auto at = static_cast<size_t>(q_start_[i]) + static_cast<size_t>(position - item.begin);
        embedding_rows_[at] = n_rows++;
        if (embedding_token_ >= 0) tokens_[at] = embedding_token_;
      }
      if (++n_chunks == 1) {
        shared_ = e.rows, only = chunk;
        continue;
      }
      if (n_chunks == 2) embeddings_.assign(only.begin(), only.end());
      embeddings_.insert(embeddings_.end(), chunk.begin(), chunk.end());
    }
  }
  batch_.embeddings = n_chunks == 1 ? only : embeddings_;
  batch_.embedding_rows = embedding_rows_;
}

// The rows of some images see all rows of the image. Other tokens see no later token.
void BatchBuilder::fill_seen_len(const Step& step) {
  seen_len_.clear();
  for (size_t i = 0; i < step.items.size(); ++i) {
    const StepItem& item = step.items[i];
    for (const PromptEmbedding& e : item.sequence->request.embeddings) {
      const int begin = std::max(item.begin, e.position),
                end = std::min(item.begin + item.n_tokens, e.position + e.n_rows);
      if (!e.sees_all || begin >= end) continue;
      if (seen_len_.empty())
        for (const int32_t position : positions_) seen_len_.push_back(position + 1);
      std::fill_n(seen_len_.begin() + q_start_[i] + (begin - item.begin), end - begin, e.position + e.n_rows);
    }
  }
  batch_.seen_len = seen_len_;
}

// Text moves on by one place a token, on all axes. An image has a place on each axis for each row, and the text after
// the image continues after its last place. So the array is needed only if a sequence has such rows.
void BatchBuilder::fill_rope_positions(const Step& step) {
  rope_positions_.clear();
  const auto has_places = [](const StepItem& item) {
    return std::ranges::any_of(item.sequence->request.embeddings, [](const PromptEmbedding& e) {
      return !e.places.empty() || e.n_places > 0;
    });
  };
  if (std::ranges::any_of(step.items, has_places)) {
    rope_positions_.resize(kRopeAxes * tokens_.size());
    for (size_t i = 0; i < step.items.size(); ++i) {
      const StepItem& item = step.items[i];
      const std::vector<PromptEmbedding>& embeddings = item.sequence->request.embeddings;
      auto next = embeddings.begin();  // the first that does not end before the position
      int shift = 0;                   // of places, from positions
      for (int t = 0; t < item.n_tokens; ++t) {
        const int position = item.begin + t;
        for (; next != embeddings.end() && position >= next->position + next->n_rows; ++next)
          shift += next->size() - next->n_rows;
        const bool is_inside = next != embeddings.end() && position >= next->position && !next->places.empty();
        for (size_t axis = 0; axis < kRopeAxes; ++axis)
          rope_positions_[axis * tokens_.size() + static_cast<size_t>(q_start_[i] + t)] =
              shift + (is_inside ? next->position + next->places[static_cast<size_t>(position - next->position)][axis]
                                 : position);
      }
    }
  }
  batch_.rope_positions = rope_positions_;
}

void BatchBuilder::fill_sources(const Step& step) {
  sources_.clear(), source_len_.clear();
  source_start_.assign(1, 0);
  for (const StepItem& item : step.items) {
    const RequestSource& source = item.sequence->request.source;
    source_len_.push_back(source.n_rows);
    source_start_.push_back(source_start_.back() + (item.brings_source ? source.n_rows : 0));
    if (item.brings_source) sources_.insert(sources_.end(), source.rows.all().begin(), source.rows.all().end());
  }
  batch_.sources = sources_, batch_.source_start = source_start_, batch_.source_len = source_len_;
}

// All rows have the length of the longest row of this step. Entries past a sequence's last block are 0, because kernels
// do not read there. Before a window, kernels may read values and then mask them. So entries before the window are set
// to the sequence's first remaining block, which is full.
void BatchBuilder::fill_block_table(const Step& step) {
  size_t max_blocks = 0;
  for (const StepItem& item : step.items)
    max_blocks = std::max({max_blocks, item.sequence->pools[0].blocks.size(), item.sequence->source_blocks.size()});
  block_table_.assign((n_pools_ + has_sources_) * step.items.size() * max_blocks, 0);
  auto row = block_table_.begin();
  for (size_t pool = 0; pool < n_pools_; ++pool) {
    for (const StepItem& item : step.items) {
      const SequenceBlocks& own = item.sequence->pools[pool];
      std::ranges::copy(own.blocks, row);
      std::fill_n(row, own.n_released, own.blocks[static_cast<size_t>(own.n_released)]);
      row += static_cast<ptrdiff_t>(max_blocks);
    }
  }
  for (const StepItem& item : step.items) {
    if (!has_sources_) break;
    std::ranges::copy(item.sequence->source_blocks, row);
    row += static_cast<ptrdiff_t>(max_blocks);
  }
  batch_.max_blocks = static_cast<int>(max_blocks);
}

}  // namespace ingot

// BatchBuilder: turns a planned step into the arrays that a backend reads. All storage is allocated at start-up.
// fill_rows runs later than fill, because a row's history may need the tokens that the step before samples.
#pragma once
#include <span>
#include <vector>

#include "backend/batch.h"
#include "backend/sampling.h"
#include "engine/scheduler.h"

namespace ingot {

class BatchBuilder {
 public:
  BatchBuilder(const SchedulerLimits& limits, int max_len /* of one sequence */);

  const Batch& fill(const Step& step);                     // valid until the next fill
  std::span<const SampleRow> fill_rows(const Step& step);  // one for each logit row of the batch, in the same order
  // For a draft head: the token after each token of the batch.
  std::span<const int32_t> fill_next_tokens(const Step& step);

 private:
  void fill_block_table(const Step& step);
  void fill_embeddings(const Step& step);
  void fill_rope_positions(const Step& step);
  void fill_seen_len(const Step& step);
  void fill_sources(const Step& step);

  const bool has_states_;
  const size_t n_pools_;
  const int embedding_dim_, n_rope_axes_;
  const int32_t embedding_token_;
  const bool has_sources_;
  std::vector<int32_t> tokens_, positions_, q_start_, kv_len_, block_table_, logit_rows_, state_in_, state_out_,
      embedding_rows_, next_tokens_, rope_positions_, seen_len_,
      source_start_, source_len_;
  std::vector<float> embeddings_;  // [n_embeddings, embedding_dim]: rows of several images, one after another
  SharedFloats shared_;            // the only image of the step, which is not copied
  std::vector<float> sources_;     // [n_source_rows, dim of a source]
  std::vector<SampleRow> rows_;
  std::vector<SamplingParams> forced_;  // parameters of rows whose token is known
  Batch batch_;
};

}  // namespace ingot

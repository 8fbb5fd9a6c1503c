// How many tokens of a prompt a step computes.
#include <algorithm>
#include <limits>

#include "engine/scheduler.h"

namespace ingot {
namespace {

// The number of tokens near `wanted` that cuts no image whose rows are in one step: fewer tokens, up to the image, or
// all of the image if they are at most `most`; otherwise 0.
int without_cut_images(const Sequence& sequence, int wanted, int most) {
  const int begin = sequence.n_computed, end = begin + wanted;
  for (const PromptEmbedding& e : sequence.request.embeddings) {
    const int e_end = e.position + e.n_rows;
    if (!e.sees_all || end <= e.position || end >= e_end) continue;
    if (begin < e.position) return e.position - begin;
    return e_end - begin <= most ? e_end - begin : 0;
  }
  return wanted;
}

}  // namespace

// The number of tokens that this step computes of the sequence's prompt, at most `most`. The limits are the chunk, the
// budget, the blocks, the rows of logits and the next snapshot.
int Scheduler::prefill_tokens(const Sequence& sequence, int most) const {
  if (!has_room_for_source(sequence)) return 0;
  int64_t n_blocks = std::numeric_limits<int>::max();
  for (int pool = 0; pool < n_pools(); ++pool)
    n_blocks = std::min(n_blocks, int64_t{sequence.pools[0].size()} + this->pool(pool).n_free());
  const int64_t room = n_blocks * limits_.block_size - sequence.n_computed;
  const int rows = sequence.scores() ? 1 + limits_.spare_rows - step_->n_spare_rows : budget();
  const int64_t free = std::min<int64_t>({room, rows, budget(), most, sequence.n_todo()});
  const int64_t wanted =
      std::min<int64_t>({free, limits_.chunk, next_snapshot(sequence) - int64_t{sequence.n_computed}});
  if (wanted <= 0) return static_cast<int>(wanted);
  return without_cut_images(sequence, static_cast<int>(wanted), static_cast<int>(free));
}

// If the sequence's next token is of an image whose rows are in one step: the rows up to its end. Otherwise 0.
int Scheduler::whole_rows_next(const Sequence& sequence) const {
  for (const PromptEmbedding& e : sequence.request.embeddings)
    if (e.sees_all && sequence.n_computed >= e.position && sequence.n_computed < e.position + e.n_rows)
      return e.position + e.n_rows - sequence.n_computed;
  return 0;
}

int Scheduler::next_snapshot(const Sequence& sequence) const {
  if (limits_.n_states <= limits_.max_seqs || !limits_.prefix_cache)
    return std::numeric_limits<int>::max();                          // no spare slots for snapshots
  for (const int place : {sequence.branch, sequence.last_boundary})  // in order
    if (place > sequence.n_computed) return place;
  return std::numeric_limits<int>::max();
}

}  // namespace ingot

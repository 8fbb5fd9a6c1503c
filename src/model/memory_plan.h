// What a model will take of memory, before any of it is taken: weights, KV cache, activations. From it come the default
// context and the size of the KV pool, and the refusal of what cannot fit, with both numbers.
#pragma once
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/kv.h"
#include "backend/state.h"
#include "model/config.h"
#include "model/weights.h"

namespace ingot {

class Backend;
struct RunnerOptions;

struct MemoryPlan {
  int n_ctx = 0;  // tokens of one sequence
  KvShape kv;
  StateShape states;  // of recurrent layers: of max_seqs sequences, and checkpoints
  int max_batch_tokens = 0;
  int max_seqs = 0;
  // All that weights keep in memory: what the backend allocates for them, and embeddings that it goes on reading where
  // the source has them. These last are pages of a file. The system drops them when memory is short and reads them
  // again, which makes a model slow, so they count. A tied embedding is both: a copy for products, and the rows in the
  // file.
  size_t weight_bytes = 0;
  size_t borrowed_bytes = 0;    // of weight_bytes: where the source has them
  size_t kv_bytes = 0;          // with what the backend pads it by
  size_t state_bytes = 0;       // likewise
  size_t activation_bytes = 0;  // of a step: buffers of the program's blocks, scratch of the backend
  StepLimits limits;            // of a step
  size_t available_bytes = 0;   // before

  int n_checkpoints() const { return states ? states.n_slots - max_seqs : 0; }
  size_t total_bytes() const { return weight_bytes + kv_bytes + state_bytes + activation_bytes; }
  size_t allocated_bytes() const { return total_bytes() - borrowed_bytes; }  // by the backend, once the model is loaded
  std::string table() const;                                                 // for people, some lines
};

// Options of 0 are chosen: the tokens of a step as the backend likes them, or fewer (512 at least) where the buffers
// would take more than an eighth of what is free; the context as the model was trained, or what fits; the pool one
// context for a single sequence, for several as much as fits, up to a context for each, or where the options say how much is to be taken,
// all that is left of it. Where every layer has a window, less of a sequence has to fit than its context. Without a
// backend its own scratch is not counted, nor what it pads caches by. Throws Error when the weights, or what the user
// asked for, do not fit.
MemoryPlan plan_memory(const Config& config, const WeightBytes& weights, size_t available_bytes,
                       const RunnerOptions& options, const Backend* backend = nullptr);

// For 1, 2, 4 ... sequences at once the longest context that each may fill, up to the model's own, until not even a
// short one fits. Empty where the weights do not. A twentieth of what is available is left alone.
std::vector<MemoryPlan> plans_that_fit(const Config& config, const WeightBytes& weights, size_t available_bytes,
                                       const RunnerOptions& options, const Backend* backend = nullptr);

}  // namespace ingot

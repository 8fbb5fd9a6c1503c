// Runner: the engine's view of a model. `Ranks` (ranks.h) runs real backends; tests use a fake Runner.
#pragma once
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/sampling.h"

namespace ingot {

enum class DraftHeadKind : uint8_t { kNone, kMtp, kEagle3 };

// The blocks of one KV cache. Layers of one shape and window share a cache, and each cache has a block table of its own
// in a batch.
struct KvPool {
  int n_blocks = 0;
  int window = 0;  // tokens that a query sees in the cache's layers; 0: all
};

// The cache of sources (Batch::sources). Its blocks are the last table of a batch.
struct SourceInfo {
  int dim = 0;       // of a row; 0: the model reads no sources
  int max_rows = 0;  // of a sequence's source, and of all sources in one batch
  int n_blocks = 0;
};

struct RunnerInfo {
  int n_vocab = 0;
  int n_ctx = 0;                // tokens of one sequence, prompt and output together
  int block_size = 0;           // tokens a KV block
  std::vector<KvPool> pools;    // in the order of a batch's tables; no window is wider than that of the first
  int max_batch_tokens = 0;
  int max_seqs = 0;    // sequences in one batch
  int max_logits = 0;  // rows of logits in one batch; 0: one for each sequence
  int n_states =
      0;  // slots for states: one for each sequence in a batch, the rest for snapshots; 0: the model has no states
  bool takes_embeddings = false;  // accepts Batch::embeddings, rows of embedding_dim floats
  int embedding_dim = 0;
  int32_t embedding_token = -1;  // a batch has this token where it has embeddings; -1: any token
  SourceInfo source;              // every request of a model with sources has one
  int n_rope_axes = 1;            // kRopeAxes: a batch may have rope_positions
  bool overlaps = false;  // forward and sample return before the device is done, so the host can work meanwhile
  int n_stages = 1;       // of a pipeline: as many steps may be in flight; with several, no batch has a drawn token
  DraftHeadKind draft_head = DraftHeadKind::kNone;  // not kNone: follow and draft work
};

// A sequence that a draft head continues.
struct DraftRow {
  int row = 0;                      // index in the last forward's tokens: the token before the sequence's last
  int position = 0;                 // of the row
  std::span<const int32_t> blocks;  // of the sequence, in the first pool, with room for n - 1 tokens after the row
  int n = 0;                        // wanted guesses, at most
};

struct HeadGuess {
  int32_t token = 0;
  float probability = 0;  // that the token is right, as the head estimates it
};
// Whether a draft head goes on after this guess for a row.
using HeadGoesOn = std::function<bool(size_t row, float probability)>;

class Runner {
 public:
  virtual ~Runner() = default;
  virtual const RunnerInfo& info() const = 0;
  // Computes the logits of batch.logit_rows and writes the keys and values of every token. Steps may overlap: the next
  // forward may be called before wait() for the last sample, and may use the tokens of that sample (drawn_token). The
  // next sample must be called after that wait(), or, with several stages, while fewer than n_stages - 1 samples wait.
  // A batch's arrays must stay valid until the wait() of its step has returned.
  virtual void forward(const Batch& batch) = 0;
  virtual void sample(
      std::span<const SampleRow> rows) = 0;  // one row for each of logit_rows, in order; must stay valid until wait()
  virtual std::vector<Sampled> wait() = 0;  // the tokens of the oldest sample not waited for, in row order
  virtual bool is_drawn() { return true; }  // whether wait() would return at once
  // A number that changes while a step proceeds, for a watchdog. Any thread may call this function at any time.
  virtual uint64_t progress() const { return 0; }
  // After each sample: next_tokens [n_tokens of the last forward] are the tokens that follow the rows: token ids, or
  // drawn_token()s of this sample. The head computes its keys and values for all rows. next_tokens must stay valid
  // until wait().
  virtual void follow(std::span<const int32_t> /*next_tokens*/) {}
  // While nothing is in flight: for each row, at most n tokens that the head expects after the token that follows the
  // row. The rows are ordered by n, the largest first. goes_on is called after each guess; empty: all n are made.
  virtual std::vector<std::vector<HeadGuess>> draft(std::span<const DraftRow> /*rows*/,
                                                    const HeadGoesOn& /*goes_on*/ = {}) {
    return {};
  }
  // Between a forward and its sample: the logits of that forward on the host, [n_logits, n_vocab].
  virtual std::vector<float> logits() { throw std::logic_error("this runner shows no logits"); }
  // Copies of a pool's KV blocks for files of cached prefixes and for beams, between steps. Blocks with equal layouts,
  // of one model, can be exchanged. "": this runner copies no blocks.
  virtual std::string kv_layout() const { return ""; }
  virtual size_t kv_block_bytes(int /*pool*/) const { return 0; }
  virtual void read_kv(int /*pool*/, int32_t /*block*/, std::span<uint8_t> /*to*/) {
    throw std::logic_error("no copies");
  }
  virtual void write_kv(int /*pool*/, int32_t /*block*/, std::span<const uint8_t> /*from*/) {
    throw std::logic_error("no copies");
  }
  virtual bool copies_kv() const { return !kv_layout().empty(); }
  virtual void copy_kv(int pool, int32_t from, int32_t to) {
    std::vector<uint8_t> bytes(kv_block_bytes(pool));
    read_kv(pool, from, bytes), write_kv(pool, to, bytes);
  }
};

}  // namespace ingot

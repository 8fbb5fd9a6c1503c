// The encoder, read top to bottom: embed, layers of attention and feed-forward in which every token sees all others, a vector for
// each token. A batch holds whole texts: keys and values live for one layer only, so one layer's pages serve all.
#pragma once
#include <memory>

#include "model/encoder_weights.h"

namespace ingot {

class Encoder {
 public:
  Encoder(const EncoderConfig& config, const EncoderWeights& weights, Backend& backend, const StepLimits& limits);

  struct Rows {
    int64_t first, n;
  };
  // Enqueues the whole step for a batch whose sequences begin at position 0. Afterwards the result holds the vectors, f32 [n_tokens, dim],
  // until the next step. second_rows: those of the second text of each pair.
  Tensor forward(const Batch& batch, std::span<const Rows> second_rows = {});

  // Tokens of a KV block, which the batch's block table counts in.
  static constexpr int kBlockSize = 16;

 private:
  void attention_block(const EncoderLayer& w, const Tensor& angles, int window);
  void ffn_block(const EncoderLayer& w);
  Tensor normed_before(const NormArgs& norm);

  const EncoderConfig& config_;
  const EncoderWeights& weights_;
  Backend& backend_;
  std::unique_ptr<KvCache> kv_;
  struct Activations {
    Tensor x;               // f32 [n_tokens, dim]
    Tensor normed;          // [n_tokens, dim], as are those below but for the last two
    Tensor q, k, v, attended;
    Tensor hidden;          // [n_tokens, ffn_dim]
    Tensor angles, local_angles;  // f32 [n_tokens, head_dim], in models that have rope
  };
  Activations all_, step_;
  Tensor inv_freq_, local_inv_freq_;  // [1, head_dim / 2]
};

}  // namespace ingot

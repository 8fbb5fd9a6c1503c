// The tensors of an encoder on a backend. Checkpoints have them under several names, and q, k and v in one matrix or three; what
// comes out is one form.
#pragma once
#include <vector>

#include "model/encoder_config.h"
#include "model/weights.h"

namespace ingot {

struct EncoderLayer {
  NormArgs attn_norm, ffn_norm;  // weight [1, dim], bias too where the model has it; empty: this layer has none
  Weight wq, wk, wv;             // [dim, dim]
  Tensor bq, bk, bv;             // [1, dim] or empty, as are all biases
  Weight wo;                     // [dim, dim]
  Tensor bo;
  Weight w_gate, w_up;           // [ffn_dim, dim]; no gate in models without one
  Tensor b_gate, b_up;
  Weight w_down;                 // [dim, ffn_dim]
  Tensor b_down;
};

struct EncoderWeights {
  Weight embedding;              // [n_vocab, dim]
  Tensor positions;              // [n_ctx, dim], or [1, dim], or empty: what is added to every token's; the first token type is in it
  NormArgs embed_norm, final_norm;
  std::vector<EncoderLayer> layers;
};

// Throws Error naming the tensor that is missing, has another shape, or would change the numbers and is not known.
EncoderWeights load_encoder_weights(WeightSource& source, const EncoderConfig& config, Backend& backend, const LoadProgress& progress);

}  // namespace ingot

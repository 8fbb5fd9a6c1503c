// The tensors of an encoder on a backend. Checkpoints name the tensors differently and have q, k and v in one matrix or
// in three; the loaded form is always the same.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/encoder_config.h"
#include "model/weights.h"

namespace ingot {

struct EncoderLayer {
  NormArgs attn_norm, ffn_norm;  // weight [1, dim], and bias if the model has it; empty: the layer has no norm here
  Weight wq, wk, wv;             // [dim, dim]
  Tensor bq, bk, bv;             // [1, dim] or empty, as are all biases
  Weight wo;                     // [dim, dim]
  Tensor bo;
  Weight w_gate, w_up;  // [ffn_dim, dim]; empty w_gate: the model has no gate
  Tensor b_gate, b_up;
  Weight w_down;  // [dim, ffn_dim]
  Tensor b_down;
};

struct EncoderWeights {
  Weight embedding;  // [n_vocab, dim]
  Tensor
      positions;  // [n_ctx, dim], or [1, dim], or empty; added to every token's vector, the first token type included
  Tensor second_type;  // [1, dim] or empty: type 1 less type 0, added to the tokens of a pair's second text
  NormArgs embed_norm, final_norm;
  std::vector<EncoderLayer> layers;
};

// The names of a tensor, without .weight or .bias: GGUF's name, and the names in Hugging Face checkpoints. "{}" stands
// for the layer.
struct EncoderTensor {
  const char* gguf;
  const char* hf[4];
  bool per_layer() const { return std::string_view(gguf).find('{') != std::string_view::npos; }
};
// All tensors, for code that writes an encoder as another kind of file.
std::vector<EncoderTensor> encoder_tensors();
// Finds the tensor by any of its names in the source's dialect and returns that name. A size of -1 is not checked.
std::optional<std::string> find_encoder_tensor(WeightSource& source, const EncoderTensor& names, int layer,
                                               const char* suffix, HostTensor& out, int64_t n_out = -1,
                                               int64_t n_in = -1);

// Throws Error naming a tensor that is missing, has another shape, or is unknown and would change the results.
EncoderWeights load_encoder_weights(WeightSource& source, const EncoderConfig& config, Backend& backend,
                                    const LoadProgress& progress);

}  // namespace ingot

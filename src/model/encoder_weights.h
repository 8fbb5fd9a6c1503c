// The tensors of an encoder on a backend. Checkpoints have them under several names, and q, k and v in one matrix or
// three; what comes out is one form.
#pragma once
#include <optional>
#include <string>
#include <string_view>
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
  Weight w_gate, w_up;  // [ffn_dim, dim]; no gate in models without one
  Tensor b_gate, b_up;
  Weight w_down;  // [dim, ffn_dim]
  Tensor b_down;
};

struct EncoderWeights {
  Weight embedding;  // [n_vocab, dim]
  Tensor
      positions;  // [n_ctx, dim], or [1, dim], or empty: what is added to every token's; the first token type is in it
  Tensor second_type;  // [1, dim] or empty: what the second text of a pair has more, in models that tell the two apart
  NormArgs embed_norm, final_norm;
  std::vector<EncoderLayer> layers;
};

// A tensor's names, without .weight or .bias: GGUF's, and those that Hugging Face checkpoints have. "{}" stands for the
// layer.
struct EncoderTensor {
  const char* gguf;
  const char* hf[4];
  bool per_layer() const { return std::string_view(gguf).find('{') != std::string_view::npos; }
};
// All that there are, for those who write an encoder as another kind of file.
std::vector<EncoderTensor> encoder_tensors();
// The tensor under any of its names of the source's dialect, which is the result; a shape of -1 is not asked for.
std::optional<std::string> find_encoder_tensor(WeightSource& source, const EncoderTensor& names, int layer,
                                               const char* suffix, HostTensor& out, int64_t n_out = -1,
                                               int64_t n_in = -1);

// Throws Error naming the tensor that is missing, has another shape, or would change the numbers and is not known.
EncoderWeights load_encoder_weights(WeightSource& source, const EncoderConfig& config, Backend& backend,
                                    const LoadProgress& progress);

}  // namespace ingot

// Which tensors a model has: their names in each dialect, their shapes as functions of the config, and where they go. One
// table for all architectures; an optional row that the checkpoint lacks leaves its weight empty, and the step it feeds out.
#pragma once
#include <span>
#include <string>

#include "backend/tensor.h"
#include "model/config.h"

namespace ingot {

// Matrices are [n_out, n_in]; vectors are [1, n] in f32.
struct LayerWeights {
  Tensor attn_norm;          // [1, dim]
  Weight wq, wk, wv;         // [q_dim | kv_dim | kv_dim, dim]
  Tensor bq, bk, bv;         // [1, q_dim | kv_dim | kv_dim]
  Tensor q_norm, k_norm;     // [1, head_dim]
  Weight wo;                 // [dim, q_dim]
  Tensor bo;                 // [1, dim]
  Tensor ffn_norm;           // [1, dim]
  Weight w_gate, w_up;       // [ffn_dim, dim]
  Tensor b_gate, b_up;       // [1, ffn_dim]
  Weight w_down;             // [dim, ffn_dim]
  Tensor b_down;             // [1, dim]
};

struct ModelWeights {
  Weight embedding;          // [n_vocab, dim]
  Tensor final_norm;         // [1, dim]
  Weight output;             // [n_vocab, dim]
  bool tied = false;         // the output is the embedding
  Tensor rope_divisors;      // [1, rot_dim / 2]
};

enum class Size : uint8_t { kDim, kQ, kKv, kHead, kFfn, kVocab, kHalfRot };
int64_t size_of(Size size, const Config& config);

template <class Owner>
struct MatrixRow {
  const char* gguf_name;     // "{}" stands for the layer
  const char* hf_name;
  Size n_out, n_in;
  Weight Owner::*weight;
  bool optional = false;
  unsigned use = kForMatmul;
};

template <class Owner>
struct VectorRow {
  const char* gguf_name;
  const char* hf_name;
  Size n;
  Tensor Owner::*vector;
  bool optional = false;
};

std::span<const MatrixRow<LayerWeights>> layer_matrices();
std::span<const VectorRow<LayerWeights>> layer_vectors();
std::span<const MatrixRow<ModelWeights>> model_matrices();
std::span<const VectorRow<ModelWeights>> model_vectors();

}  // namespace ingot

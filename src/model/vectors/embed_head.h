// EmbedHead: the small layers after pooling. A Dense module of sentence-transformers turns an embedding into another
// vector. A cross-encoder's classifier turns it into one number, how well a document answers a query. The layers are a
// few matrices on one row a text, so they are computed on the host in f32 on every device.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/files/checkpoint.h"

namespace ingot {

struct HeadLayer {
  enum class Act : uint8_t { kNone, kTanh, kGelu, kSilu, kRelu };
  int n_in = 0, n_out = 0;
  std::vector<float> weight;  // [n_in, n_out], transposed
  std::vector<float> bias;    // [n_out] or empty
  Act activation = Act::kNone;
  std::vector<float> norm, norm_bias;  // LayerNorm after the layer: [n_out] or empty
  float norm_eps = 0;
  bool takes_unit = false;  // the layer's input is scaled to length 1 first
};

// Reads the matrix NAME.weight [n_out, n_in] and, if the checkpoint has it, NAME.bias. n_out -1: any. Throws Error if
// the matrix is missing or has another shape.
HeadLayer read_head_layer(WeightSource& source, const std::string& name, int n_in, int n_out,
                          HeadLayer::Act activation);
// Reads a vector of n elements; empty if the checkpoint has no such tensor.
std::vector<float> read_head_vector(WeightSource& source, const std::string& name, int n);

// Scales each row of n numbers to length 1; rows of zeros do not change.
void normalize_rows(std::vector<float>& values, int n);

class EmbedHead {
 public:
  EmbedHead() = default;
  explicit EmbedHead(std::vector<HeadLayer> layers) : layers_(std::move(layers)) {}
  bool empty() const { return layers_.empty(); }
  int n_out() const { return layers_.back().n_out; }
  const std::vector<HeadLayer>& layers() const { return layers_; }
  std::vector<float> apply(std::vector<float> rows /* [n, n_in of the first layer] */) const;  // [n, n_out()]

 private:
  std::vector<HeadLayer> layers_;
};

// Reads the layers that turn a pooled vector of `dim` numbers into an embedding: the dense layers of modules.json, or
// dense_2 and dense_3 of GGUF; empty for most models. dim 0: any input size of the first layer. Throws Error if a
// module is of an unknown kind, and if the shapes of successive layers do not match.
EmbedHead read_dense_head(const Checkpoint& checkpoint, WeightSource& source, int dim);

}  // namespace ingot

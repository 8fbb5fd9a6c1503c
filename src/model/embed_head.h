// EmbedHead: the small layers after pooling. sentence-transformers' Dense modules make another vector of an embedding;
// a cross-encoder's classifier makes one number of it, which says how well a document answers a query. A few matrices
// on a row a text: computed on the host in f32, whatever the device.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint.h"

namespace ingot {

struct HeadLayer {
  enum class Act : uint8_t { kNone, kTanh, kGelu, kSilu, kRelu };
  int n_in = 0, n_out = 0;
  std::vector<float> weight;  // [n_in, n_out]: transposed
  std::vector<float> bias;    // [n_out] or empty
  Act activation = Act::kNone;
  std::vector<float> norm, norm_bias;  // LayerNorm after it: [n_out] or empty
  float norm_eps = 0;
  bool takes_unit = false;  // what it takes is brought to length 1 before
};

// A matrix of a checkpoint, NAME.weight [n_out, n_in], with NAME.bias if there is one. n_out -1: any. Throws Error for
// one that is missing or has another shape.
HeadLayer read_head_layer(WeightSource& source, const std::string& name, int n_in, int n_out,
                          HeadLayer::Act activation);
// A vector of n elements; empty when there is no such tensor.
std::vector<float> read_head_vector(WeightSource& source, const std::string& name, int n);

// Rows of n numbers to length 1; zeros stay.
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

// (dim 0: whatever its first layer takes.) What turns a pooled vector of `dim` numbers into an embedding: the dense
// layers of modules.json, dense_2 and dense_3 of GGUF. Mostly empty. Throws Error for what is not known of such a module,
// and for shapes that do not follow each other.
EmbedHead read_dense_head(const Checkpoint& checkpoint, WeightSource& source, int dim);

}  // namespace ingot

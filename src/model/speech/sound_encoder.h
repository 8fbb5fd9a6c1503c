// The encoder of Whisper (arXiv:2212.04356), which many models have as their ears: two convolutions over the frames of
// a window, and layers in which each row sees the window whole.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/blocks/attention.h"
#include "backend/blocks/feed_forward.h"
#include "backend/blocks/frames.h"
#include "backend/program.h"
#include "model/files/placed_tensors.h"

namespace ingot {

struct SoundEncoderSizes {
  int n_mels = 0;  // features of a frame
  int n_rows = 0;  // of a window, which has twice as many frames
  int dim = 0, n_layers = 0, n_heads = 0, ffn = 0;
  float eps = 1e-5f;  // of norms
};

// The names of the tensors, without ".weight" and ".bias"; "{}" stands for the layer.
struct SoundEncoderNames {
  std::string conv1, conv2, positions, norm1, q, k, v, o, norm2, up, down, norm;
};
SoundEncoderNames hf_sound_names(const std::string& prefix);  // Hugging Face's: prefix "model.encoder.", "audio_tower."
SoundEncoderNames gguf_sound_names();                         // of mmproj files

// The blocks with their weights. All layers share the pages of one layer of `kv`.
struct SoundEncoder {
  FramesBlock frames;
  std::vector<AttentionBlock> attention;       // [n_layers]
  std::vector<FeedForwardBlock> feed_forward;  // [n_layers]
  NormArgs norm;                               // of the rows at the end
  std::unique_ptr<KvCache> kv;
};

// n_windows: encoded at once. Throws Error naming a tensor that is missing or has another shape.
SoundEncoder load_sound_encoder(const SoundEncoderSizes& sizes, const SoundEncoderNames& names, PlacedTensors& tensors,
                                Backend& backend, int n_windows);
// Appends the blocks, all but the end, to a program.
void add_to(Program& program, SoundEncoder& encoder);

// The frames of windows of equal length as a batch of the encoder.
class SoundBatch {
 public:
  // features: [n_windows, 2 * n_rows, n_mels] of windows that have at most sizes.n_rows rows; one alone may be shorter.
  SoundBatch(const SoundEncoderSizes& sizes, std::span<const float> features);
  Batch batch() const;  // valid as long as this and the features
  int n_windows() const { return static_cast<int>(lengths_.size()); }
  int n_tokens() const { return static_cast<int>(tokens_.size()); }  // rows of all windows

 private:
  std::span<const float> features_;
  int max_blocks_;
  std::vector<int32_t> tokens_, positions_, starts_ = {0}, lengths_, blocks_;
};

// Attention of heads over the rows of one layer, without a mask.
AttentionArgs sound_attention(int dim, int n_heads, int layer);
// LayerNorm with the weights "NAME.weight" and "NAME.bias".
NormArgs sound_norm(PlacedTensors& tensors, const std::string& name, int dim, float eps);
// The six tensors of an attention between rows of the same width; keys may lack biases. For AttentionBlock and
// CrossAttentionBlock.
template <class Block>
void load_square_attention(Block& b, PlacedTensors& tensors, int dim, const std::string& q, const std::string& k,
                           const std::string& v, const std::string& o) {
  const auto matrix = [&](const std::string& name) { return tensors.matrix(name + ".weight", dim, dim); };
  const auto bias = [&](const std::string& name) { return tensors.vector(name + ".bias", dim, true); };
  b.wq = matrix(q), b.wk = matrix(k), b.wv = matrix(v), b.wo = matrix(o);
  b.bq = bias(q), b.bk = bias(k), b.bv = bias(v), b.bo = bias(o);
}
// A feed-forward of two matrices with biases and GELU.
FeedForwardBlock sound_feed_forward(PlacedTensors& tensors, NormArgs norm, int dim, int ffn, const std::string& up,
                                    const std::string& down);

}  // namespace ingot

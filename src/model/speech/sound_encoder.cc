#include "model/speech/sound_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

constexpr int kSoundBlockSize = 16;  // rows of a KV block

int sound_blocks(int n) { return (n + kSoundBlockSize - 1) / kSoundBlockSize; }

std::string of_layer(const std::string& name, int layer) { return fmt::format(fmt::runtime(name), layer); }

// A convolution over three frames, stored as [dim, n_in, 3], as a matrix over three frames side by side.
Weight convolution(PlacedTensors& tensors, const std::string& name, int dim, int n_in) {
  constexpr int kTaps = 3;
  const std::vector<float> stored = tensors.convolution_numbers(name + ".weight", dim, int64_t{kTaps} * n_in, kTaps);
  std::vector<float> rows(stored.size());
  const float* from = stored.data();
  for (int64_t out = 0; out < dim; ++out)
    for (int64_t in = 0; in < n_in; ++in)
      for (int64_t tap = 0; tap < kTaps; ++tap) rows[static_cast<size_t>((out * kTaps + tap) * n_in + in)] = *from++;
  return tensors.matrix_of(rows, dim, int64_t{kTaps} * n_in);
}

FramesBlock load_frames(const SoundEncoderSizes& c, const SoundEncoderNames& names, PlacedTensors& tensors) {
  FramesBlock b{.n_features = c.n_mels, .n_rows = c.n_rows};
  // GGUF files have the biases of convolutions as columns.
  const auto bias = [&](const std::string& name) {
    return tensors.upload(tensors.convolution_numbers(name + ".bias", 1, c.dim, 1), 1, c.dim);
  };
  b.w1 = convolution(tensors, names.conv1, c.dim, c.n_mels), b.b1 = bias(names.conv1);
  b.w2 = convolution(tensors, names.conv2, c.dim, c.dim), b.b2 = bias(names.conv2);
  b.positions = tensors.upload(tensors.numbers(names.positions + ".weight", c.n_rows, c.dim), c.n_rows, c.dim);
  return b;
}

}  // namespace

SoundEncoderNames hf_sound_names(const std::string& prefix) {
  const std::string layer = prefix + "layers.{}.", attention = layer + "self_attn.";
  return {.conv1 = prefix + "conv1",
          .conv2 = prefix + "conv2",
          .positions = prefix + "embed_positions",
          .norm1 = layer + "self_attn_layer_norm",
          .q = attention + "q_proj",
          .k = attention + "k_proj",
          .v = attention + "v_proj",
          .o = attention + "out_proj",
          .norm2 = layer + "final_layer_norm",
          .up = layer + "fc1",
          .down = layer + "fc2",
          .norm = prefix + "layer_norm"};
}

SoundEncoderNames gguf_sound_names() {
  return {.conv1 = "a.conv1d.1",
          .conv2 = "a.conv1d.2",
          .positions = "a.position_embd",
          .norm1 = "a.blk.{}.ln1",
          .q = "a.blk.{}.attn_q",
          .k = "a.blk.{}.attn_k",
          .v = "a.blk.{}.attn_v",
          .o = "a.blk.{}.attn_out",
          .norm2 = "a.blk.{}.ln2",
          .up = "a.blk.{}.ffn_up",
          .down = "a.blk.{}.ffn_down",
          .norm = "a.post_ln"};
}

AttentionArgs sound_attention(int dim, int n_heads, int layer) {
  const int head_dim = dim / n_heads;
  return {.layer = layer,
          .n_heads = n_heads,
          .n_kv_heads = n_heads,
          .head_dim = head_dim,
          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
          .causal = false};
}

NormArgs sound_norm(PlacedTensors& tensors, const std::string& name, int dim, float eps) {
  return {.weight = tensors.vector(name + ".weight", dim),
          .bias = tensors.vector(name + ".bias", dim),
          .eps = eps,
          .kind = NormKind::kLayer};
}

FeedForwardBlock sound_feed_forward(PlacedTensors& tensors, NormArgs norm, int dim, int ffn, const std::string& up,
                                    const std::string& down) {
  FeedForwardBlock b{.norm = norm, .act = Activation::kGelu, .ffn_dim = ffn};
  b.w_up = tensors.matrix(up + ".weight", ffn, dim);
  b.b_up = tensors.vector(up + ".bias", ffn);
  b.w_down = tensors.matrix(down + ".weight", dim, ffn);
  b.b_down = tensors.vector(down + ".bias", dim);
  return b;
}

SoundEncoder load_sound_encoder(const SoundEncoderSizes& c, const SoundEncoderNames& names, PlacedTensors& tensors,
                                Backend& backend, int n_windows) {
  SoundEncoder encoder{.frames = load_frames(c, names, tensors)};
  encoder.kv = backend.make_kv({.n_layers = 1,
                                .n_kv_heads = c.n_heads,
                                .head_dim = c.dim / c.n_heads,
                                .block_size = kSoundBlockSize,
                                .n_blocks = sound_blocks(c.n_rows) * n_windows,
                                .dtype = backend.act_dtype() == DType::kF32 ? DType::kF32 : DType::kF16});
  for (int i = 0; i < c.n_layers; ++i) {
    AttentionBlock attention{.norm = sound_norm(tensors, of_layer(names.norm1, i), c.dim, c.eps)};
    load_square_attention(attention, tensors, c.dim, of_layer(names.q, i), of_layer(names.k, i), of_layer(names.v, i),
                          of_layer(names.o, i));
    attention.attention = sound_attention(c.dim, c.n_heads, 0);
    attention.kv = encoder.kv.get();
    encoder.attention.push_back(std::move(attention));
    encoder.feed_forward.push_back(sound_feed_forward(tensors,
                                                      sound_norm(tensors, of_layer(names.norm2, i), c.dim, c.eps),
                                                      c.dim, c.ffn, of_layer(names.up, i), of_layer(names.down, i)));
  }
  encoder.norm = sound_norm(tensors, names.norm, c.dim, c.eps);
  return encoder;
}

void add_to(Program& program, SoundEncoder& encoder) {
  program.blocks.emplace_back(encoder.frames);
  for (size_t i = 0; i < encoder.attention.size(); ++i) {
    program.blocks.emplace_back(std::move(encoder.attention[i]));
    program.blocks.emplace_back(std::move(encoder.feed_forward[i]));
  }
}

SoundBatch::SoundBatch(const SoundEncoderSizes& c, std::span<const float> features)
    : features_(features), max_blocks_(sound_blocks(c.n_rows)) {
  const int n_frames = static_cast<int>(features.size() / static_cast<size_t>(c.n_mels));
  const int n_rows = std::min(c.n_rows, n_frames / 2), n = n_frames / std::max(1, 2 * n_rows);
  CHECK(n >= 1 && n_rows >= 2 && n_frames == 2 * n * n_rows);
  CHECK_EQ(features.size(), static_cast<size_t>(n_frames) * static_cast<size_t>(c.n_mels));
  tokens_.resize(static_cast<size_t>(n * n_rows));
  for (int w = 0; w < n; ++w) {
    for (int i = 0; i < n_rows; ++i) positions_.push_back(i);
    starts_.push_back(starts_.back() + n_rows);
    lengths_.push_back(n_rows);
    for (int b = 0; b < max_blocks_; ++b) blocks_.push_back(w * max_blocks_ + b);
  }
}

Batch SoundBatch::batch() const {
  return {.tokens = tokens_,
          .positions = positions_,
          .q_start = starts_,
          .kv_len = lengths_,
          .block_table = blocks_,
          .max_blocks = max_blocks_,
          .logit_rows = {},
          .embeddings = features_};
}

}  // namespace ingot

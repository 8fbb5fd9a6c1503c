// Small decoders whose layers the GPU runs in one launch, to be compared with the same ops one by one.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/blocks/embed.h"
#include "backend/blocks/head.h"
#include "backend/blocks/plain_layers.h"
#include "backend/wrapped.h"
#include "ops_rig.h"

namespace ingot {

struct LayersCase {
  const char* name;
  Format format;
  int past;
  bool fits = true;  // one launch
  int64_t dim = 320, ffn = 608;
  int n_heads = 6, n_kv_heads = 2, head_dim = 64, n_layers = 3;
  bool biases = false, head_norms = false, output_bias = false;
  RopeLayout layout = RopeLayout::kHalfSplit;
  int window = 0;
  Activation act = Activation::kSilu;
  DType kv = DType::kF16;
  int n_experts = 0, n_used = 2;  // 0: a plain feed-forward network
  Scoring scoring = Scoring::kSoftmax;
  bool plain_choice = false;  // without a bias that decides which experts are chosen

  bool runs_on_clusters() const {
    const bool has_codes = format == Format::Q4_0 || format == Format::Q4_1 || format == Format::Q8_0 ||
                           format == Format::Q5_K;
    return fits && has_codes && head_dim == 64 && n_experts == 0 && window == 0 && past < 4000;
  }
};

// Runs each op by itself: steps are not recorded, and layers are not fused into one kernel.
class OpByOp final : public Wrapped {
 public:
  using Wrapped::Wrapped;

 private:
  void around(const char*, const Tensor&, const std::function<void()>& call) override { call(); }
};

class Decoder {
 public:
  // q_lens: tokens of each sequence in a step.
  Decoder(Backend& backend, const LayersCase& c, uint64_t seed, std::vector<int> q_lens = {1})
      : backend_(backend), c_(c), rig_(backend, seed), q_lens_(std::move(q_lens)) {
    kv_ = &rig_.cache_and_batch(
        seqs(0, kSteps),
        {.n_layers = c.n_layers, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .dtype = c.kv});
    program_.dim = static_cast<int>(c.dim);
    RopeTable rope{.rot_dim = c.head_dim, .frequencies = std::vector<float>(static_cast<size_t>(c.head_dim / 2))};
    for (size_t i = 0; i < rope.frequencies.size(); ++i) rope.frequencies[i] = 1.0f / static_cast<float>(1 + 3 * i);
    program_.ropes.push_back(rope);
    program_.blocks.emplace_back(EmbedBlock{.table = rig_.weight(Format::F16, kTokens, c.dim)});
    PlainLayersBlock layers;
    for (int i = 0; i < c.n_layers; ++i) {
      layers.blocks.emplace_back(attention(i));
      layers.blocks.push_back(c.n_experts > 0 ? Block(experts(seed + static_cast<uint64_t>(i))) : feed_forward());
    }
    program_.blocks.emplace_back(layers);
    program_.blocks.emplace_back(
        HeadBlock{.norm = rig_.norm(c.dim), .output = rig_.weight(Format::F16, kVocab, c.dim), .n_vocab = kVocab});
    const int n_seqs = static_cast<int>(q_lens_.size()) + 1;  // so that recorded steps have padding
    const int n_tokens = n_seqs * *std::ranges::max_element(q_lens_);
    program_.allocate(backend, {.max_tokens = 64,
                                .max_seqs = n_seqs,
                                .max_logits = n_tokens,
                                .max_kv_len = std::max(8192, 2 * c.past),
                                .n_vocab = kVocab});
  }

  void begin(int step) { rig_.begin(seqs(step, 1), kTokens); }
  void run() { backend_.run(program_, rig_.batch()); }

  std::vector<float> logits() const {  // [sequences, kVocab]: of the last tokens
    std::vector<float> host(q_lens_.size() * kVocab);
    backend_.download(host.data(), output());
    return host;
  }
  void poison() {
    const std::vector<uint16_t> nan(static_cast<size_t>(c_.ffn), 0x7E00);
    backend_.upload(hidden(), nan.data());
    const std::vector<float> none(q_lens_.size() * kVocab, NAN);
    backend_.upload(output(), none.data());
  }
  bool hidden_is_poisoned() const {
    std::vector<uint16_t> host(static_cast<size_t>(c_.ffn));
    backend_.download(host.data(), hidden());
    return std::ranges::all_of(host, [](uint16_t bits) { return bits == 0x7E00; });
  }

  static constexpr int kSteps = 4, kVocab = 200;

 private:
  static constexpr int kTokens = 32;
  // The sequences have pasts of different lengths.
  std::vector<SeqShape> seqs(int step, int n_steps) const {
    std::vector<SeqShape> all;
    for (const int q_len : q_lens_)
      all.push_back({c_.past + 17 * static_cast<int>(all.size()) + step * q_len, n_steps * q_len});
    return all;
  }
  Tensor output() const {
    const int n_tokens = std::accumulate(q_lens_.begin(), q_lens_.end(), 0), n_seqs = static_cast<int>(q_lens_.size());
    return program_.output(n_tokens, n_seqs, n_seqs);
  }
  int64_t q_dim() const { return int64_t{c_.n_heads} * c_.head_dim; }
  int64_t kv_dim() const { return int64_t{c_.n_kv_heads} * c_.head_dim; }
  // [1, ffn]. No other block's scratch overlaps this row, because the head's scratch is smaller than the buffers before
  // the row.
  // Of the last token: the head's buffers may lie in the same memory as the rows before.
  Tensor hidden() const {
    const Block& second = program_.blocks[1].get<PlainLayersBlock>().blocks[1];
    const int n_tokens = std::accumulate(q_lens_.begin(), q_lens_.end(), 0);
    const Tensor& rows = c_.n_experts > 0 ? second.get<ExpertsBlock>().gate : second.get<FeedForwardBlock>().hidden;
    return rows.slice_rows(n_tokens - 1, 1);
  }

  AttentionBlock attention(int layer) {
    AttentionBlock b{.norm = rig_.norm(c_.dim),
                     .wq = rig_.weight(c_.format, q_dim(), c_.dim),
                     .wk = rig_.weight(c_.format, kv_dim(), c_.dim),
                     .wv = rig_.weight(c_.format, kv_dim(), c_.dim)};
    if (c_.biases) b.bq = rig_.values(1, q_dim()), b.bk = rig_.values(1, kv_dim()), b.bv = rig_.values(1, kv_dim());
    if (c_.head_norms) b.q_norm = rig_.norm(c_.head_dim), b.k_norm = rig_.norm(c_.head_dim);
    b.rope_table = 0, b.rope.layout = c_.layout;
    b.attention = {.layer = layer,
                   .n_heads = c_.n_heads,
                   .n_kv_heads = c_.n_kv_heads,
                   .head_dim = c_.head_dim,
                   .scale = 0.125f,
                   .window = c_.window};
    b.kv = kv_;
    b.wo = rig_.weight(c_.format, c_.dim, q_dim());
    if (c_.output_bias) b.bo = rig_.values(1, c_.dim);
    return b;
  }
  FeedForwardBlock feed_forward() {
    return {.norm = rig_.norm(c_.dim),
            .w_gate = rig_.weight(c_.format, c_.ffn, c_.dim),
            .w_up = rig_.weight(c_.format, c_.ffn, c_.dim),
            .w_down = rig_.weight(c_.format, c_.dim, c_.ffn),
            .act = c_.act,
            .ffn_dim = static_cast<int>(c_.ffn)};
  }
  // A random order of the experts decides the choice, unless plain_choice is set. Otherwise two kernels might round a
  // near tie differently and choose different experts. Scores and weights still come from the residual stream.
  ExpertsBlock experts(uint64_t seed) {
    const int64_t n = c_.n_experts;
    ExpertsBlock b{.norm = rig_.norm(c_.dim),
                   .w_router = rig_.weight(Format::F16, n, c_.dim),
                   .b_router = rig_.values(1, n, 0.1f)};
    b.route = {.n_used = c_.n_used, .scoring = c_.scoring, .normalize = c_.scoring == Scoring::kSoftmax, .scale = 1.5f};
    if (!c_.plain_choice) {
      std::vector<float> order(static_cast<size_t>(n));
      for (size_t i = 0; i < order.size(); ++i) order[i] = 2.0f * static_cast<float>(i);
      std::ranges::shuffle(order, std::mt19937_64(seed));
      b.route.bias = backend_.alloc(DType::kF32, 1, n);
      backend_.upload(b.route.bias, order.data());
    }
    b.w_gate = rig_.weight(c_.format, c_.ffn, c_.dim, n), b.w_up = rig_.weight(c_.format, c_.ffn, c_.dim, n);
    b.w_down = rig_.weight(c_.format, c_.dim, c_.ffn, n);
    b.n_experts = c_.n_experts, b.ffn_dim = static_cast<int>(c_.ffn);
    return b;
  }

  Backend& backend_;
  const LayersCase& c_;
  OpRig rig_;
  const std::vector<int> q_lens_;
  KvCache* kv_;
  Program program_;
};

inline bool has_clusters(const Backend& backend) {
  return backend.description().find("NVIDIA H") != std::string::npos;
}

}  // namespace ingot

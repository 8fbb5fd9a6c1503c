// OpRig: builds the inputs of an op table case. Two rigs with the same seed, on two backends, hold the same inputs.
// Drawing them takes most of the time of the tests, so ops_rig.cc does that, which is optimized.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "backend/backend.h"
#include "quant/fill.h"

namespace ingot {

// One sequence of a batch: the tokens that the cache already holds, and the tokens of this step.
struct SeqShape {
  int past;
  int q_len;
};

class OpRig {
 public:
  OpRig(Backend& backend, uint64_t seed, bool unfused = false) : backend_(backend), random_(seed), unfused_(unfused) {}

  Backend& backend() { return backend_; }
  // Whether a fused op must run its default body.
  bool unfused() const { return unfused_; }

  Tensor values(int64_t rows, int64_t cols, float deviation = 1.0f, float mean = 0.0f);
  // Inputs of a matmul with weights of any format: integers up to 127 times a power of two for each 32 elements, where
  // the largest of each 32 is 127. int8 with a scale for each 32, bf16 and f16 all hold these exactly, so rounded
  // activations cannot explain an error.
  Tensor activations(int64_t rows, int64_t cols);
  // Filled with NaN: an op must write its whole output.
  Tensor output(int64_t rows, int64_t cols);
  // scale: of all elements.
  const Weight& weight(Format format, int64_t n_out, int64_t n_in, int64_t n_experts = 1, float scale = 1) {
    host_weights_.emplace_back(n_experts * n_out * row_bytes(format, n_in));
    std::vector<uint8_t>& bytes = host_weights_.back();
    fill_random(format, random_(), bytes.data(), n_experts * n_out * n_in / info(format).block_size,
                scale / std::sqrt(static_cast<float>(n_in)));
    Weight host{.format = format, .n_out = n_out, .n_in = n_in, .codes = bytes.data(), .n_experts = n_experts};
    weights_.push_back(backend_.prepare(host, kForMatmul | kForEmbedding));
    return weights_.back();
  }
  // Experts for each token, all different. With n_own, other ranks have the experts from n_own on: -1.
  Tensor experts(int64_t n_tokens, int64_t n_used, int64_t n_experts, int64_t n_own = 0) {
    std::vector<int32_t> host, all(n_experts);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t t = 0; t < n_tokens; ++t) {
      std::shuffle(all.begin(), all.end(), random_);
      host.insert(host.end(), all.begin(), all.begin() + n_used);
    }
    if (n_own > 0)
      for (int32_t& id : host) id = id < n_own ? id : -1;
    const Tensor t = backend_.alloc(DType::kI32, n_tokens, n_used);
    backend_.upload(t, host.data());
    return t;
  }
  // Whole numbers from low to high.
  Tensor integers(int64_t rows, int64_t cols, int64_t low, int64_t high) {
    std::vector<int32_t> host(static_cast<size_t>(rows * cols));
    std::uniform_int_distribution<int64_t> draw(low, high);
    for (int32_t& value : host) value = static_cast<int32_t>(draw(random_));
    const Tensor t = backend_.alloc(DType::kI32, rows, cols);
    backend_.upload(t, host.data());
    return t;
  }
  NormArgs norm(int64_t dim, NormKind kind = NormKind::kRms, bool bias = false) {
    return {values(1, dim, 0.5f, 1.0f), bias ? values(1, dim) : Tensor{}, 1e-5f, kind};
  }

  // Makes a cache that holds NaN except for the past of the sequences, on shuffled blocks; then begins a batch of the
  // sequences.
  KvCache& cache_and_batch(const std::vector<SeqShape>& seqs, KvShape shape) {
    const int bs = shape.block_size;
    int most_blocks = 1;
    shape.n_blocks = 2;
    for (const SeqShape& s : seqs) {
      most_blocks = std::max(most_blocks, (s.past + s.q_len + bs - 1) / bs);
      shape.n_blocks += (s.past + s.q_len + bs - 1) / bs;
    }
    kv_ = backend_.make_kv(shape);
    std::vector<int32_t> order(shape.n_blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const int64_t kv_dim = int64_t{shape.n_kv_heads} * shape.head_dim;
    poison(shape, order, kv_dim);

    max_blocks_ = most_blocks;
    block_table_.assign(seqs.size() * max_blocks_, -1);
    size_t next = 0;
    for (size_t i = 0; i < seqs.size(); ++i)
      for (int b = 0; b < (seqs[i].past + seqs[i].q_len + bs - 1) / bs; ++b)
        block_table_[i * max_blocks_ + b] = order[next++];
    std::vector<SeqShape> past;
    for (const SeqShape& s : seqs) past.push_back({0, s.past});
    if (begin(past) > 0) {
      for (int layer = 0; layer < shape.n_layers; ++layer) {
        const Tensor k = values(tokens_.size(), kv_dim), v = values(tokens_.size(), kv_dim);
        backend_.kv_write(*kv_, layer, k, shape.values_are_keys ? k : v);
      }
    }
    begin(seqs);
    return *kv_;
  }
  // Begins a batch of these sequences, with random token ids under n_vocab; returns the number of tokens.
  int begin(const std::vector<SeqShape>& seqs, int n_vocab = 32) {
    tokens_.clear(), positions_.clear(), kv_len_.clear(), logit_rows_.clear(), rope_positions_.clear();
    source_start_.clear(), source_len_.clear(), seen_len_.clear();
    q_start_.assign(1, 0);
    std::vector<int32_t> table;
    for (size_t i = 0; i < seqs.size(); ++i) {
      for (int t = 0; t < seqs[i].q_len; ++t) {
        tokens_.push_back(static_cast<int32_t>(random_() % n_vocab));
        positions_.push_back(seqs[i].past + t);
      }
      if (seqs[i].q_len == 0) continue;  // not part of the batch: it only has a past in the cache
      q_start_.push_back(static_cast<int32_t>(tokens_.size()));
      kv_len_.push_back(seqs[i].past + seqs[i].q_len);
      logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
      const auto row = block_table_.begin() + static_cast<int64_t>(i) * max_blocks_;
      if (!block_table_.empty()) table.insert(table.end(), row, row + max_blocks_);
    }
    batch_table_ = std::move(table);
    if (!tokens_.empty()) backend_.begin(batch());
    return static_cast<int>(tokens_.size());
  }
  // The batch of the last begin().
  Batch batch() const {
    Batch batch{tokens_, positions_, q_start_, kv_len_, batch_table_, max_blocks_, logit_rows_};
    batch.rope_positions = rope_positions_;
    batch.seen_len = seen_len_;
    batch.source_start = source_start_, batch.source_len = source_len_;
    return batch;
  }
  // Begins a batch of these sequences, each with a source of its own, and makes a cache of the sources on shuffled
  // blocks.
  KvCache& sources_and_batch(const std::vector<SeqShape>& seqs, const std::vector<int>& lengths, KvShape shape) {
    const auto blocks_of = [&](int n) { return (n + shape.block_size - 1) / shape.block_size; };
    max_blocks_ = blocks_of(*std::ranges::max_element(lengths));
    shape.of_source = true;
    shape.n_blocks = max_blocks_ * static_cast<int>(seqs.size());
    kv_ = backend_.make_kv(shape);
    block_table_.resize(static_cast<size_t>(shape.n_blocks));
    std::iota(block_table_.begin(), block_table_.end(), 0);
    std::shuffle(block_table_.begin(), block_table_.end(), random_);
    begin(seqs);
    source_start_.assign(1, 0), source_len_.assign(lengths.begin(), lengths.end());
    for (const int n : lengths) source_start_.push_back(source_start_.back() + n);
    backend_.begin(batch());
    return *kv_;
  }
  // Begins the batch of these sequences with random positions on each axis of the rope.
  int begin_with_axes(const std::vector<SeqShape>& seqs) {
    begin(seqs);
    rope_positions_.resize(kRopeAxes * tokens_.size());
    for (int32_t& position : rope_positions_) position = static_cast<int32_t>(random_() % 1000);
    backend_.begin(batch());
    return static_cast<int>(tokens_.size());
  }
  // Begins the batch again, with an image in the middle third of each sequence, whose tokens see each other.
  void begin_with_images() {
    for (const int32_t position : positions_) seen_len_.push_back(position + 1);
    for (size_t seq = 0; seq + 1 < q_start_.size(); ++seq) {
      const int n = q_start_[seq + 1] - q_start_[seq];
      const int first = q_start_[seq] + n / 3, end = q_start_[seq] + (2 * n + 2) / 3;
      for (int t = first; t < end; ++t)
        seen_len_[static_cast<size_t>(t)] = positions_[static_cast<size_t>(end - 1)] + 1;
    }
    backend_.begin(batch());
  }
  int n_logits() const { return static_cast<int>(logit_rows_.size()); }

 private:
  // Nearly normal, with mean 0 and deviation 1.
  float normal();

  Tensor uploaded(int64_t rows, int64_t cols, const std::vector<float>& host);

  void poison(const KvShape& shape, const std::vector<int32_t>& order, int64_t kv_dim) {
    block_table_ = order;
    max_blocks_ = shape.n_blocks;
    const int n = begin({{0, shape.n_blocks * shape.block_size}});
    const Tensor nan = output(n, kv_dim);
    for (int layer = 0; layer < shape.n_layers; ++layer) backend_.kv_write(*kv_, layer, nan, nan);
  }

  Backend& backend_;
  std::mt19937_64 random_;
  const bool unfused_;
  std::deque<std::vector<uint8_t>> host_weights_;
  std::deque<Weight> weights_;
  std::unique_ptr<KvCache> kv_;
  std::vector<int32_t> tokens_, positions_, q_start_, kv_len_, block_table_, batch_table_, logit_rows_;
  std::vector<int32_t> rope_positions_, seen_len_, source_start_, source_len_;
  int max_blocks_ = 1;
};

}  // namespace ingot

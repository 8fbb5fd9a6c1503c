// The shard column of the tensor table: every large matrix of a layer is divided among ranks, each part is on one rank,
// and consecutive matrices are divided in the same way.
#include "model/tensors.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/shapes.h"
#include "model/shards.h"

namespace ingot {
namespace {

std::vector<Config> all_shapes() {
  std::vector<Config> configs;
  std::istringstream names(shape_names());
  for (std::string name; std::getline(names >> std::ws, name, ',');) configs.push_back(config_of_shape(name));
  return configs;
}

// DeepSeek's attention, whose heads read latents, with experts.
Config latent_config() {
  Config c = config_of_shape("qwen3-30b-a3b");
  c.arch = &find_gguf_arch("deepseek2");
  c.layers.assign(static_cast<size_t>(c.n_layers), LayerKind{.experts = true});
  c.n_heads = 128, c.n_kv_heads = 1;
  c.dim = 7168, c.head_dim = 576;
  c.latent = {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  c.experts = {.n = 256, .n_used = 8, .ffn_dim = 2048, .shared_dim = 2048};
  return c;
}

std::vector<Config> configs() {
  std::vector<Config> all = all_shapes();
  all.push_back(latent_config());
  return all;
}

int64_t count_of(const MatrixRow<LayerWeights>& row, const Config& c) {
  return row.count == Size::kNone ? 1 : size_of(row.count, c);
}

TEST(Shards, EveryLargeMatrixOfALayerHasOne) {
  for (const Config& c : configs())
    for (int layer = 0; layer < c.n_layers; ++layer)
      for (const MatrixRow<LayerWeights>& row : layer_matrices()) {
        if (!applies(row.when, c, layer)) continue;
        // Outputs that are latents, or one number for each head or expert: every rank needs all of them, or dividing
        // them saves nothing.
        const bool small = row.n_out == Size::kOne || row.n_out == Size::kExperts || row.n_out == Size::kQRank ||
                           row.n_out == Size::kHead;
        EXPECT_EQ(row.shard == Shard::kNone, small) << c.name << ": " << row.gguf_name;
        EXPECT_EQ(row.shard == Shard::kMatrices, row.count == Size::kHeads) << c.name << ": " << row.gguf_name;
        if (small) {
          EXPECT_LE(size_of(row.n_out, c), std::max(1536, c.dim / 4)) << c.name << ": " << row.gguf_name;
        }
      }
}

// Each rank keeps at most a tenth of a layer's matrices undivided. If a matrix has several table rows, each row is
// counted separately.
TEST(Shards, LittleIsKeptByAll) {
  for (const Config& c : configs())
    for (int layer = 0; layer < c.n_layers; ++layer) {
      int64_t whole = 0, all = 0;
      for (const MatrixRow<LayerWeights>& row : layer_matrices()) {
        if (!applies(row.when, c, layer)) continue;
        const int64_t n = size_of(row.n_out, c) * size_of(row.n_in, c) * count_of(row, c);
        all += n;
        if (row.shard == Shard::kNone) whole += n;
      }
      EXPECT_GT(all, 0);
      EXPECT_LE(10 * whole, all) << c.name << ", layer " << layer;
    }
}

// Every rank has a non-empty part of each divided size, and the parts together are the whole. Parts overlap only for
// the keys and values of a model with few KV heads.
TEST(Shards, RanksShareEverySize) {
  for (const Config& model : configs())
    for (const int n : {2, 4, 8}) {
      std::vector<Config> ranks;
      try {
        for (int r = 0; r < n; ++r) ranks.push_back(config_of_rank(model, r, n, 1));
      } catch (const UsageError&) {  // small models have too few heads
        EXPECT_LT(model.dim, 2000) << model.name << " " << n;
        continue;
      }
      const auto expect_shared = [&](const auto& row) {
        const Size size = row.divided();
        if (size == Size::kNone) return;
        std::vector<int> owners(static_cast<size_t>(size_of(size, model)));
        for (const Config& rank : ranks) {
          int64_t own = 0;
          for (const Range& range : kept(size, rank)) {
            own += range.n;
            for (int64_t i = range.first; i < range.first + range.n; ++i) ++owners.at(static_cast<size_t>(i));
          }
          EXPECT_GT(own, 0) << model.name << ": " << row.gguf_name;
          if (size != Size::kVocab) {
            EXPECT_EQ(own, size_of(size, rank)) << model.name << ": " << row.gguf_name;
          }
        }
        const int copies = size == Size::kKv ? std::max(1, n / model.n_kv_heads) : 1;
        EXPECT_THAT(owners, testing::Each(copies)) << model.name << ": " << row.gguf_name;
      };
      for (const int layer : {0, 1, 2, 3, model.n_layers - 1}) {  // of every kind
        for (const auto& row : layer_matrices())
          if (applies(row.when, model, layer)) expect_shared(row);
        for (const auto& row : layer_vectors())
          if (applies(row.when, model, layer)) expect_shared(row);
      }
      for (const auto& row : model_matrices()) expect_shared(row);
    }
}

// With whole experts, each stored row of an expert's matrix or vector is on one rank, and the router is on all ranks.
TEST(Shards, WholeExpertsAreDividedOnce) {
  int n_models = 0;
  for (const Config& model : configs())
    for (const int n : {2, 3, 8}) {
      if (model.experts.n < n) continue;
      std::vector<Config> ranks;
      try {
        for (int r = 0; r < n; ++r) ranks.push_back(config_of_rank(model, r, n, 1, true));
      } catch (const UsageError&) {  // too few heads
        continue;
      }
      ++n_models;
      const auto expect_once = [&](const auto& row, int64_t rows_of_expert) {
        int64_t next = 0;
        for (const Config& rank : ranks) {
          const auto part = part_of(row, rank);
          ASSERT_TRUE(part.has_value()) << row.gguf_name;
          EXPECT_EQ(part->columns.size(), 1u);
          EXPECT_EQ(part->columns[0].first, 0);
          ASSERT_EQ(part->rows.size(), 1u) << "neighbours, which are read without a copy";
          EXPECT_EQ(part->rows[0].first, next) << model.name << ": " << row.gguf_name;
          EXPECT_EQ(part->rows[0].n, rank.experts.n * rows_of_expert);
          next += part->rows[0].n;
        }
        EXPECT_EQ(next, model.experts.n * rows_of_expert) << model.name << ": " << row.gguf_name;
      };
      const int layer = model.n_layers - 1;
      for (const auto& row : layer_matrices()) {
        if (!applies(row.when, model, layer)) continue;
        if (row.count == Size::kExperts) expect_once(row, size_of(row.n_out, model));
        if (row.weight == &LayerWeights::router) {
          EXPECT_EQ(part_of(row, ranks.back())->rows[0].n, model.experts.n);
        }
      }
      for (const auto& row : layer_vectors())
        if (applies(row.when, model, layer) && row.count == Size::kExperts) expect_once(row, 1);
    }
  EXPECT_GT(n_models, 2);
}

// A matrix's output is divided as the next matrix reads it, and a bias as the output of its matrix.
TEST(Shards, WhatFollowsEachOtherIsDividedAlike) {
  using L = LayerWeights;
  constexpr struct {
    Weight L::*from;
    Weight L::*to;
  } kPairs[] = {{&L::wq, &L::wo}, {&L::w_gate, &L::w_down}, {&L::w_up, &L::w_down}, {&L::shared_gate, &L::shared_down},
                {&L::shared_up, &L::shared_down}, {&L::gate_exps, &L::down_exps}, {&L::up_exps, &L::down_exps}};
  constexpr struct {
    Tensor L::*bias;
    Weight L::*of;
  } kBiases[] = {{&L::bq, &L::wq}, {&L::bk, &L::wk}, {&L::bv, &L::wv}, {&L::b_gate, &L::w_gate}, {&L::b_up, &L::w_up},
                 {&L::b_gate_exps, &L::gate_exps}, {&L::b_up_exps, &L::up_exps}};
  for (const Config& c : configs())
    for (int layer = 0; layer < c.n_layers; ++layer)
      for (const auto& row : layer_matrices()) {
        if (!applies(row.when, c, layer)) continue;
        for (const auto& [from, to] : kPairs)
          for (const auto& next : layer_matrices()) {
            if (row.weight != from || next.weight != to || !applies(next.when, c, layer)) continue;
            EXPECT_TRUE(row.shard == Shard::kColumns && next.shard == Shard::kRows) << c.name << ": " << row.gguf_name;
          }
        for (const auto& [bias, of] : kBiases)
          for (const auto& vector : layer_vectors())
            if (row.weight == of && vector.vector == bias && applies(vector.when, c, layer)) {
              EXPECT_EQ(vector.shard, row.shard) << vector.gguf_name;
            }
      }
}

}  // namespace
}  // namespace ingot

// The shard column of the tensor table: every large matrix of a layer is divided among ranks, each part is on one rank,
// and consecutive matrices are divided in the same way.
#include "model/config/tensors.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backend/blocks/attention.h"
#include "backend/blocks/delta_net.h"
#include "backend/blocks/experts.h"
#include "backend/blocks/feed_forward.h"
#include "backend/blocks/latent_attention.h"
#include "base/error.h"
#include "model/config/kind.h"
#include "model/config/shards.h"
#include "model/layers/latent_attention.h"
#include "model/program/shapes.h"

namespace ingot {
namespace {

// Whether the kinds of every layer divide themselves: each rank computes the scans of state models whole.
bool is_divided(const Config& c) {
  for (int layer = 0; layer < c.n_layers; ++layer)
    for (const PartKind* kind : parts_of(c, layer))
      if (!kind->rows().matrices.empty() && kind->divide == nullptr) return false;
  return true;
}

std::vector<Config> all_shapes() {
  std::vector<Config> configs;
  std::istringstream names(shape_names());
  for (std::string name; std::getline(names >> std::ws, name, ',');)
    if (Config c = config_of_shape(name); is_divided(c)) configs.push_back(std::move(c));
  return configs;
}

// DeepSeek's attention, whose heads read latents, with experts.
Config latent_config() {
  Config c = config_of_shape("qwen3-30b-a3b");
  c.arch = &find_gguf_arch("deepseek2");
  c.n_heads = 128, c.dim = 7168;
  set_latents(c, {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128});
  c.experts = {.n = 256, .n_used = 8, .ffn_dim = 2048, .shared_dim = 2048};
  return c;
}

std::vector<Config> configs() {
  std::vector<Config> all = all_shapes();
  all.push_back(latent_config());
  return all;
}

// Calls f(row) for the matrices of all parts of a layer.
template <class F>
void for_matrices(const Config& c, int layer, F&& f) {
  for (const PartKind* kind : parts_of(c, layer))
    for (const MatrixRow& row : kind->rows().matrices)
      if (applies(row, c, layer)) f(row);
}
template <class F>
void for_vectors(const Config& c, int layer, F&& f) {
  for (const PartKind* kind : parts_of(c, layer))
    for (const VectorRow& row : kind->rows().vectors)
      if (applies(row, c, layer)) f(row);
}

// Outputs that are latents, or one number for each head or expert: every rank needs all of them, or dividing them saves
// nothing.
TEST(Shards, EveryLargeMatrixOfALayerHasOne) {
  for (const Config& c : configs())
    for (int layer = 0; layer < c.n_layers; ++layer)
      for_matrices(c, layer, [&](const MatrixRow& row) {
        const bool of_heads = row.count && row.count.used == nullptr;
        EXPECT_EQ(row.shard == Shard::kMatrices, of_heads) << c.name << ": " << row.gguf_name;
        if (row.shard == Shard::kNone) {
          const int64_t size = std::min(size_of(row.n_out, c), size_of(row.n_in, c));
          EXPECT_LE(size, std::max(1536, c.dim / 4)) << c.name << ": " << row.gguf_name;
        } else {
          EXPECT_NE(row.divided().of_rank, nullptr) << c.name << ": " << row.gguf_name;
        }
      });
}

// Each rank keeps at most a tenth of a layer's matrices undivided. If a matrix has several table rows, each row is
// counted separately.
TEST(Shards, LittleIsKeptByAll) {
  for (const Config& c : configs())
    for (int layer = 0; layer < c.n_layers; ++layer) {
      int64_t whole = 0, all = 0;
      for_matrices(c, layer, [&](const MatrixRow& row) {
        const int64_t n = size_of(row.n_out, c) * size_of(row.n_in, c) * count_of(row, c);
        all += n;
        if (row.shard == Shard::kNone) whole += n;
      });
      EXPECT_GT(all, 0);
      EXPECT_LE(10 * whole, all) << c.name << ", layer " << layer;
    }
}

bool is_of_keys(const MatrixRow& row) {
  return row.member == at<&AttentionBlock::wk> || row.member == at<&AttentionBlock::wv>;
}
bool is_of_keys(const VectorRow& row) {
  return row.member == at<&AttentionBlock::bk> || row.member == at<&AttentionBlock::bv>;
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
      const auto expect_shared = [&](const auto& row, bool is_vocabulary) {
        const Dim dim = row.divided();
        if (!dim) return;
        std::vector<int> owners(static_cast<size_t>(size_of(dim, model)));
        for (const Config& rank : ranks) {
          int64_t own = 0;
          for (const Range& range : kept(dim, rank)) {
            own += range.n;
            for (int64_t i = range.first; i < range.first + range.n; ++i) ++owners.at(static_cast<size_t>(i));
          }
          EXPECT_GT(own, 0) << model.name << ": " << row.gguf_name;
          if (!is_vocabulary) {
            EXPECT_EQ(own, size_of(dim, rank)) << model.name << ": " << row.gguf_name;
          }
        }
        const int copies = is_of_keys(row) ? std::max(1, n / model.n_kv_heads) : 1;
        EXPECT_THAT(owners, testing::Each(copies)) << model.name << ": " << row.gguf_name;
      };
      for (const int layer : {0, 1, 2, 3, model.n_layers - 1}) {  // of every kind
        for_matrices(model, layer, [&](const MatrixRow& row) { expect_shared(row, false); });
        for_vectors(model, layer, [&](const VectorRow& row) { expect_shared(row, false); });
      }
      for (const MatrixRow& row : model_rows().matrices) expect_shared(row, true);
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
      int n_rows = 0;
      for_matrices(model, layer, [&](const MatrixRow& row) {
        if (row.count.used != nullptr) ++n_rows, expect_once(row, size_of(row.n_out, model));
        if (row.member == at<&ExpertsBlock::w_router>) {
          EXPECT_EQ(part_of(row, ranks.back())->rows[0].n, model.experts.n);
        }
      });
      for_vectors(model, layer, [&](const VectorRow& row) {
        if (row.count.used != nullptr) expect_once(row, 1);
      });
      EXPECT_GE(n_rows, 3);
    }
  EXPECT_GT(n_models, 2);
}

// A matrix's output is divided as the next matrix reads it, and a bias as the output of its matrix.
TEST(Shards, WhatFollowsEachOtherIsDividedAlike) {
  using A = AttentionBlock;
  using D = DeltaBlock;
  using F = FeedForwardBlock;
  using E = ExpertsBlock;
  constexpr struct {
    Weight& (*from)(void*);
    Weight& (*to)(void*);
  } kPairs[] = {{at<&A::wq>, at<&A::wo>},
                {at<&LatentAttentionBlock::wq>, at<&LatentAttentionBlock::wo>},
                {at<&D::wv>, at<&D::wo>},
                {at<&D::gate>, at<&D::wo>},
                {at<&F::w_gate>, at<&F::w_down>},
                {at<&F::w_up>, at<&F::w_down>},
                {at<&E::shared_gate>, at<&E::shared_down>},
                {at<&E::shared_up>, at<&E::shared_down>},
                {at<&E::w_gate>, at<&E::w_down>},
                {at<&E::w_up>, at<&E::w_down>}};
  constexpr struct {
    Tensor& (*bias)(void*);
    Weight& (*of)(void*);
  } kBiases[] = {{at<&A::bq>, at<&A::wq>},         {at<&A::bk>, at<&A::wk>},     {at<&A::bv>, at<&A::wv>},
                 {at<&F::b_gate>, at<&F::w_gate>}, {at<&F::b_up>, at<&F::w_up>}, {at<&E::b_gate>, at<&E::w_gate>},
                 {at<&E::b_up>, at<&E::w_up>}};
  int n_pairs = 0, n_biases = 0;
  for (const Config& c : configs())
    for (int layer = 0; layer < c.n_layers; ++layer)
      for_matrices(c, layer, [&](const MatrixRow& row) {
        for (const auto& [from, to] : kPairs)
          for_matrices(c, layer, [&, from = from, to = to](const MatrixRow& next) {
            if (row.member != from || next.member != to) return;
            ++n_pairs;
            EXPECT_TRUE(row.shard == Shard::kColumns && next.shard == Shard::kRows) << c.name << ": " << row.gguf_name;
            const bool same_heads =
                c.layer(layer).has(kAttentionPart);  // in latents, queries and values have two sizes
            EXPECT_TRUE(!same_heads || row.n_out.of_rank == next.n_in.of_rank) << row.gguf_name;
          });
        for (const auto& [bias, of] : kBiases)
          for_vectors(c, layer, [&, bias = bias, of = of](const VectorRow& vector) {
            if (row.member != of || vector.member != bias) return;
            ++n_biases;
            EXPECT_EQ(vector.shard, row.shard) << vector.gguf_name;
            EXPECT_EQ(vector.n.of_rank, row.n_out.of_rank) << vector.gguf_name;
          });
      });
  EXPECT_GT(n_pairs, 0);
  EXPECT_GT(n_biases, 0);
}

}  // namespace
}  // namespace ingot

// Kernels of models with experts: the choice of a token's experts, products of rows with the matrices of their experts,
// and the weighted sum of the results. The host does not need to know the chosen experts, so a recorded step may
// contain all these kernels.
#pragma once
#include <driver_types.h>

#include <cstdint>

#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul/packed_weight.h"
#include "backend/ops.h"

namespace ingot::cuda {

// experts/route.cu
inline constexpr int kMaxExperts = 1024;
// ids and weights [n_tokens, n_used] (out), logits [n_tokens, n_experts] in f32.
void route_rows(const Tensor& ids, const Tensor& weights, const Tensor& logits, const RouteArgs& args, Device& device);

// router.cu: the router's product for a few tokens and their choice of experts as one kernel, for devices with
// clusters. x is f16, aligned to 16 bytes, or the result of a norm that is still to be computed.
struct Router {
  Tensor ids, weights, x;              // [n_tokens, n_used] twice (out), [n_tokens, n_in]
  const DeferredNorm* norm = nullptr;  // x is the norm's y
  const PackedWeight* w = nullptr;     // [n_experts, n_in]
  const float* bias = nullptr;
};
bool can_route_at_once(const Device& device, const PackedWeight& w, int64_t n_tokens);
void route_at_once(const Router& router, const RouteArgs& args, Device& device);

// router_rows.cu: the same for up to 64 tokens, and the rows sorted by expert, as order_by_expert() does. The router's
// norm is null.
struct ExpertOrder;
bool can_route_and_sort(const Device& device, const PackedWeight& w, int64_t n_tokens);
void route_and_sort(const Router& router, const RouteArgs& args, const ExpertOrder& order, Device& device);

// The rows of a step sorted by expert, and cut into tiles; each tile has one expert. Rows with id -1 are left out.
struct RowTile {
  int32_t expert, first, n;  // its rows are order[first] to order[first + n - 1]
};
struct ExpertOrder {
  int32_t* order = nullptr;    // [n_rows]
  RowTile* tiles = nullptr;    // [most_tiles]
  int32_t* n_tiles = nullptr;  // [1]
  int tile_rows = 0;
  int n_first = 0;  // tiles[e] is the first tile of expert e < n_first, even if it is empty; the other tiles follow
  int64_t most_tiles = 0;
};
// How the rows of a step are cut into tiles, and which kernel multiplies them.
inline constexpr int kGroupRows = 128, kStreamRows = 8;  // of a tile of groups.cu, of stream.cu
struct ExpertTiling {
  int rows = 0;          // of a tile
  bool streams = false;  // stream.cu
};
// For rows that are divided among n_experts. If the experts have few rows each, or the device has little shared memory,
// tiles are short. groups, streams: groups.cu, whose tiles are the longest, or stream.cu can multiply all weights;
// stream.cu is the fastest with at most one row an expert on average (docs/notes).
ExpertTiling expert_tiling(int64_t n_rows, int64_t n_experts, bool groups, bool streams, const DeviceLimits& device);
// The addresses of these arrays in memory of expert_order_bytes() bytes. n_own of the experts have matrices here.
ExpertOrder expert_order_in(void* memory, int64_t n_rows, int64_t n_own, const ExpertTiling& tiling);
size_t expert_order_bytes(int64_t n_rows, int64_t n_experts);
void order_by_expert(const ExpertOrder& order, const int32_t* ids, int64_t n_rows, int64_t n_experts, Device& device);

// y[i] = x[i * x.rows / n_rows] w[ids[i]]^T + bias[ids[i]]; with a gate, act(product with w[0]) * (product with w[1]).
// Rows with id -1 have no expert here. They are not computed, and sums leave them out.
struct ExpertMatmul {
  Tensor y, x;  // [n_rows / n_terms, n_out], [x.rows, n_in]
  const PackedWeight* w[2] = {};
  const float* bias[2] = {};     // [n_experts, n_out] or null
  const int32_t* ids = nullptr;  // [n_rows]
  int64_t n_rows = 0;
  int64_t n_experts = 0;           // among which the rows are divided: more than w has if other ranks have the others
  ExpertTiling tiling;             // of the order of the rows (ExpertOrder)
  bool x_arranged = false;         // x is in the order of the codes (arrange_rows)
  bool y_arranged = false;         // y shall be so; only with tiles of kGroupRows, and multiples of kArrangedCols
  bool partial = true;             // false: no id is -1
  const float* weights = nullptr;  // [n_rows]: y[t] += the weighted sum of n_terms neighbours; only for expert_rows()
  int n_terms = 1;
  int gate = -1;                              // an Activation; -1: one product
  SpecialisedKernels* specialised = nullptr;  // as in Matvec
  // The previous kernel is an expert_rows() with the same ids, or stream.cu with the same order, so they may be read
  // before it ends.
  bool knows_experts = false;
};

// Whether the fast kernels support this weight; the plain kernel supports all weights.
bool can_expert_matmul(const PackedWeight& w);
// experts/rows.cu, experts/dense.cu: for few rows; each row reads its own weights. x is f16, aligned to 16 bytes.
// plain_expert_rows: x has any alignment and w's type; slow.
bool can_expert_rows(const ExpertMatmul& m);
void expert_rows(const ExpertMatmul& m, Device& device);
void plain_expert_rows(const ExpertMatmul& m, Device& device);
// experts/tiles.cu: tiles of rows, for many rows. x is f16, aligned to 16 bytes, and arranged if tiles have kGroupRows
// rows.
void expert_tiles(const ExpertMatmul& m, const ExpertOrder& order, Device& device);
// experts/groups.cu: tiles of kGroupRows rows, with quantized weights, on Hopper.
bool can_group_experts(const PackedWeight& w, const DeviceLimits& device);
// Writes x [n, n_in] to `to` [n, arranged_cols(n_in)] in the order of the codes (groups.cu), with zeros after n_in
// columns. x is f16, aligned to 16 bytes. `to` may be x, if its rows are that long.
inline constexpr int kArrangedCols = 16;  // columns that are arranged together
INGOT_HD constexpr int64_t arranged_cols(int64_t n_in) {
  return (n_in + kArrangedCols - 1) / kArrangedCols * kArrangedCols;
}
Tensor arrange_rows(void* to, const Tensor& x, Device& device);
// experts/stream.cu: tiles of kStreamRows rows, with quantized weights, on Hopper.
bool can_stream_experts(const PackedWeight& w, const DeviceLimits& device);

// experts/route.cu: residual[t] += the sum over k of weights[t, k] y[t * n_used + k]. residual is [n_tokens, dim] in
// f32, y [n_tokens * n_used, dim], weights [n_tokens, n_used].
void combine_rows(const Tensor& residual, const Tensor& y, const Tensor& weights, Device& device);

}  // namespace ingot::cuda

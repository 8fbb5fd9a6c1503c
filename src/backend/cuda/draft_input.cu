// The input of a draft head for multi-token prediction: embeds and norms the tokens, norms the hidden states, and
// writes both side by side. A launch takes longer than this work on a few rows, so one kernel does all of it.
#include "backend/cuda/draft_input.h"

#include "backend/cuda/launch.cuh"
#include "backend/cuda/matmul/unpack.cuh"
#include "backend/cuda/rms.cuh"

namespace ingot::cuda {
namespace {

struct PairArgs {
  half* pair;  // [n, 2 * dim]
  int64_t pair_stride;
  const float* hidden;  // [n, dim]
  int64_t hidden_stride;
  const int32_t* tokens;                               // [n]
  float scale;                                         // of embeddings
  const float *token_norm, *hidden_norm, *final_norm;  // [dim]; final_norm may be null
  float token_eps, hidden_eps, final_eps;
  int n_packs;  // dim / 4
  bool hidden_first;
};

// Elements 4 * i to 4 * i + 3 of a row of the embedding table.
template <class S>
__device__ float4 embedding_pack(const PackedWeight& table, int64_t row, int i, float scale) {
  float v[8];
  if (table.layout == Layout::kDense) {
    const S* from = static_cast<const S*>(table.data) + row * table.n_in + 4 * i;
    for (int j = 0; j < 4; ++j) v[j] = to_float(from[j]) * scale;
    return {v[0], v[1], v[2], v[3]};
  }
  decode8<S>(table, row, i / 2, v);
  const bool upper = i % 2 != 0;
  const float all = table.factor * scale;
  return {(upper ? v[4] : v[0]) * all, (upper ? v[5] : v[1]) * all, (upper ? v[6] : v[2]) * all,
          (upper ? v[7] : v[3]) * all};
}

// One block for each row and each half of the pair: blockIdx.y 0 is the token's, 1 the hidden state's.
template <class S, int kPacks>
__global__ void __launch_bounds__(kPackThreads) pair_kernel(PairArgs a, const __grid_constant__ PackedWeight table) {
  __shared__ float sums[2][kPackThreads / 32];
  let_next_start();
  const bool is_token = blockIdx.y == 0;
  const int64_t row = blockIdx.x;
  float4 scales[kPacks], final_scales[kPacks], v[kPacks];
  load_packs(scales, is_token ? a.token_norm : a.hidden_norm, a.n_packs);
  const bool has_final = !is_token && a.final_norm != nullptr;
  if (has_final) load_packs(final_scales, a.final_norm, a.n_packs);
  wait_for_previous();
  if (is_token) {
    const int64_t token = a.tokens[row];
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      const int i = threadIdx.x + j * blockDim.x;
      v[j] = i < a.n_packs ? embedding_pack<S>(table, token, i, a.scale) : float4{};
    }
  } else {
    load_packs(v, a.hidden + row * a.hidden_stride, a.n_packs);
  }
  if (has_final) rms_packs(v, final_scales, a.n_packs, a.final_eps, sums[1]);
  rms_packs(v, scales, a.n_packs, is_token ? a.token_eps : a.hidden_eps, sums[0]);
  half* to = a.pair + row * a.pair_stride + (is_token == a.hidden_first ? 4 * a.n_packs : 0);
#pragma unroll
  for (int j = 0; j < kPacks; ++j)
    if (const int i = threadIdx.x + j * blockDim.x; i < a.n_packs) store4(to + 4 * i, v[j]);
}

}  // namespace

bool can_draft_pair(const DraftInputBlock& b, const Tensor& pair, const Tensor& hidden) {
  const Tensor half_pair = pair.slice_cols(0, b.x.cols);
  const auto fits = [&](const NormArgs& norm) { return can_rms(half_pair, hidden, norm); };
  return !b.reads_pair && !b.keeps_normed && pair.dtype == DType::kF16 && hidden.cols == b.x.cols &&
         b.x.cols % 8 == 0 && fits(b.token_norm) && fits(b.hidden_norm) &&
         (!b.final_norm.weight || fits(b.final_norm)) && pair.rows > 0;
}

void draft_pair(const DraftInputBlock& b, const Tensor& pair, const Tensor& hidden, const int32_t* tokens,
                Device& device) {
  const PairArgs args{.pair = static_cast<half*>(pair.data),
                      .pair_stride = pair.stride,
                      .hidden = hidden.f32(),
                      .hidden_stride = hidden.stride,
                      .tokens = tokens,
                      .scale = b.scale,
                      .token_norm = b.token_norm.weight.f32(),
                      .hidden_norm = b.hidden_norm.weight.f32(),
                      .final_norm = b.final_norm.weight ? b.final_norm.weight.f32() : nullptr,
                      .token_eps = b.token_norm.eps,
                      .hidden_eps = b.hidden_norm.eps,
                      .final_eps = b.final_norm.eps,
                      .n_packs = static_cast<int>(b.x.cols / 4),
                      .hidden_first = b.hidden_first};
  const auto& table = *static_cast<const PackedWeight*>(b.table.packed);
  const dim3 grid(static_cast<unsigned>(pair.rows), 2);
  with_packs(args.n_packs, [&](auto packs, int threads) {
    constexpr int kPacks = decltype(packs)::value;
    table.f32 ? launch(device, pair_kernel<float, kPacks>, grid, threads, 0, args, table)
              : launch(device, pair_kernel<half, kPacks>, grid, threads, 0, args, table);
  });
}

}  // namespace ingot::cuda

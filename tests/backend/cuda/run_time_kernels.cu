// One kernel of each kind that NVRTC compiles at run time, with the sizes of well-known models. scripts/check_cuda.sh
// compiles this file, so that an error in their sources is found without a GPU. specialised_test.cc compiles the same
// sources with NVRTC.
#include "backend/cuda/experts/codes.cuh"
#include "backend/cuda/grid/layers.cuh"
#include "backend/cuda/matmul/dot_codes.cuh"
#include "backend/cuda/matmul/dot_rows.cuh"
#include "backend/cuda/matmul/matvec.cuh"
#include "backend/cuda/matmul/tile_matmul.cuh"
#include "backend/cuda/matmul/warpgroup_matmul.cuh"

namespace ingot::cuda {

constexpr grid::WeightKind kFourBits{Layout::kCodes4, true, false, 0}, kFloats{Layout::kFloat8, false, false, 0};

// The layers of qwen3-30b-a3b (with experts) or of llama-3.1-8b.
template <int kRows, bool kExperts, bool kFloat8 = false>
struct Model {
  static constexpr grid::Shape shape() {
    grid::Shape s{.dim = 4096,
                  .ffn = 14336,
                  .n_heads = 32,
                  .n_kv_heads = 8,
                  .head_dim = 128,
                  .rot_dim = 128,
                  .half_split = !kExperts,
                  .n_layers = 32,
                  .kv_block = 16,
                  .n_blocks = 132,
                  .shared_bytes = 220 << 10,
                  .panels_at_once = kFloat8 ? 1 : 2,
                  .max_rows = kRows};
    if (kExperts) {
      s.dim = 2048, s.ffn = 768, s.n_kv_heads = 4, s.n_experts = 128, s.n_used = 8;
      s.q_norm = s.k_norm = s.normalize = true;
    }
    for (grid::WeightKind& kind : s.kinds) kind = kFloat8 ? kFloats : kFourBits;
    return s;
  }
  static constexpr grid::Shape kShape = shape();
};

template <class Own, class Element>
__global__ void __launch_bounds__(grid::kThreads + grid::kCopyThreads, 1)
    layers(const __grid_constant__ grid::Params p) {
  grid::run<Own, Element>(p);
}

template __global__ void layers<Model<1, false>, grid::CacheHalf>(const __grid_constant__ grid::Params);
template __global__ void layers<Model<8, false>, grid::CacheBfloat>(const __grid_constant__ grid::Params);
template __global__ void layers<Model<8, false, true>, grid::CacheFloat8>(const __grid_constant__ grid::Params);
template __global__ void layers<Model<1, true>, grid::CacheHalf>(const __grid_constant__ grid::Params);
template __global__ void layers<Model<8, true>, grid::CacheHalf>(const __grid_constant__ grid::Params);

constexpr ProductShape kOne{.n_in = 4096, .n_steps = 32, .n_jobs = 1, .n_tiles = 256, .n_out = {4096}, .zero = 8, .split = 8, .n_warps = 8, .has_norm = true, .y_f32 = true};
constexpr ProductShape kGated{.n_in = 576, .n_steps = 5, .n_jobs = 2, .n_tiles = 96, .n_out = {1536, 1536}, .zero = 8, .act = 0, .split = 4, .n_warps = 8, .y_f32 = true};
constexpr ProductShape kRows{.n_in = 4096, .n_steps = 32, .n_jobs = 1, .n_tiles = 256, .n_out = {4096}, .zero = 8, .split = 8, .n_warps = 8, .n_tokens = 4, .staged = true};
constexpr ProductShape kTiled{.n_in = 4096, .n_steps = 32, .n_jobs = 1, .n_tiles = 256, .n_out = {4096}, .zero = 8, .split = 8, .n_warps = 8, .weight_tiles = 2};
constexpr ProductShape kExperts{.n_in = 2048, .n_steps = 16, .n_jobs = 2, .n_tiles = 48, .n_out = {768}, .zero = 8, .act = 0, .n_warps = 16, .n_terms = 1, .n_sums = 8, .n_inputs = 1};
using Kind = matvec_step::Kind<Layout::kCodes4, true, false>;

__global__ void dot_codes(const __grid_constant__ matvec_tiles::Params p) {
  dot_codes_kernel::run<dot_codes_kernel::Kind<false, true, false, 1>, kOne>(p);
}
__global__ void dot_rows(const __grid_constant__ dot_rows_kernel::Params p) {
  dot_rows_kernel::run<1, true, kGated>(p);
}
__global__ void matvec(const __grid_constant__ matvec_tiles::Params p) { matvec_kernel::run<Kind, 1, 1, kRows>(p); }
__global__ void tiles(const __grid_constant__ matvec_tiles::Params p) {
  tile_kernel::run<Kind, 4, 2, false, kTiled>(p);
}
__global__ void warpgroups(const __grid_constant__ warpgroup_kernel::Params p) {
  warpgroup_kernel::run<Kind, 64, kOne>(p);
}
__global__ void expert_codes(const __grid_constant__ expert_codes_kernel::Params p) {
  expert_codes_kernel::run<Kind, 1, kExperts>(p);
}

}  // namespace ingot::cuda

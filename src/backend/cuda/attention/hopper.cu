// Attention of prompts on Hopper: a block takes 128 packed rows, 64 to each of two warpgroups, and walks over the keys
// 128 at a time, from the last to the first. A warp of its own fetches tiles of keys and values by TMA, 16 tokens of a
// page at a time, two tiles deep. The products are wgmma: scores from shared memory, then weights in registers times
// values in shared memory; each warpgroup has the scores of the next tile and the output of this one in flight while it
// works on the softmax (FlashAttention-3, arXiv:2407.08608, without its explicit turns of the warpgroups). For f16 keys
// and values in pages of whole 16 tokens, head dimensions 64 and 128, no cap; attention/prefill.cu takes the rest.
#include <cuda.h>

#include "backend/cuda/attention/attention.cuh"
#include "backend/cuda/matmul/wgmma.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace attention;

namespace {

[[maybe_unused]] constexpr int kBlockRows = 128, kGroupRows = 64;  // of a block, of a warpgroup
constexpr int kTileKeys = 128, kStages = 2;
[[maybe_unused]] constexpr int kPanel = 128 * 128;  // bytes of 128 rows of 64 halves: rows of 128 bytes, swizzled

template <int kDim>
struct Shared {
  static constexpr int kTileBytes = kTileKeys * kDim * 2;
  static constexpr int kKeysAt = kBlockRows * kDim * 2, kValues = kKeysAt + kStages * kTileBytes,
                       kBarriers = kValues + kStages * kTileBytes, kBytes = kBarriers + 64 + 1024 /* to align it */;
};

// Which tiles of keys a block walks over: [first, last], backwards.
struct Walk {
  int token0, q_len, kv_len, n_rows, row0, first, last;
  const int32_t* table;

  __device__ explicit Walk(const Params& p) {
    const int seq = blockIdx.z;
    token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, kv_len = p.batch.kv_len[seq];
    n_rows = q_len * p.group;
    row0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kBlockRows;  // the longest first
    if (empty()) return;
    first = span_of(p, kv_len, q_len, row0).begin / kTileKeys;
    last = (span_of(p, kv_len, q_len, min(row0 + kBlockRows, n_rows) - 1).end - 1) / kTileKeys;
    table = p.batch.block_table + int64_t{seq} * *p.batch.max_blocks;
  }
  __device__ bool empty() const { return n_rows <= kRows || row0 >= n_rows; }
};

// The warp that fetches.
template <int kDim>
__device__ void fetch(const CUtensorMap& map, const Params& p, const Walk& walk, uint32_t shared, uint32_t barriers) {
  using S = Shared<kDim>;
  constexpr int kPanels = kDim / 64, kCopies = kTileKeys / 16 * kPanels;
  const int lane = threadIdx.x % 32, group = lane % 8, panel = lane / 8 % kPanels;
  int stage = 0;
  uint32_t phase = 1;
  for (int tile = walk.last; tile >= walk.first; --tile) {
    const int key = tile * kTileKeys + 16 * group, known = key < walk.kv_len ? key : 0;
    const int64_t page = (int64_t{p.layer} * p.kv.n_blocks + walk.table[known / p.kv.block_size]) * 2;
    for (int part = 0; part < 2; ++part) {  // keys, values
      const uint32_t full = barriers + 8 * (part * kStages + stage), free = full + 8 * 2 * kStages;
      await(free, phase);
      if (lane == 0) expect_bytes(full, S::kTileBytes);
      __syncwarp();
      const int64_t row = ((page + part) * p.kv.n_kv_heads + blockIdx.x) * p.kv.block_size + known % p.kv.block_size;
      const uint32_t to =
          shared + (part == 0 ? S::kKeysAt : S::kValues) + stage * S::kTileBytes + panel * kPanel + group * 2048;
      if (lane < kCopies) fetch_tile(to, map, 64 * panel, static_cast<int>(row), full);
    }
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
}

// This warpgroup's 64 rows of queries into shared memory; zeros past the last.
template <int kDim>
__device__ void load_queries(const Params& p, const Walk& walk, char* shared, int row0) {
  const int thread = threadIdx.x % 128;
  for (int i = thread; i < kGroupRows * kDim / 8; i += 128) {
    const int r = i / (kDim / 8), piece = i % (kDim / 8), row = row0 + r, in_block = row - walk.row0;
    const half* from = p.q + (walk.token0 + row / p.group) * p.q_stride +
                       (static_cast<int>(blockIdx.x) * p.group + row % p.group) * kDim + 8 * piece;
    const uint4 v = row < walk.n_rows ? *reinterpret_cast<const uint4*>(from) : uint4{};
    *reinterpret_cast<uint4*>(shared + piece / 8 * kPanel + in_block * 128 + 16 * ((piece ^ in_block) & 7)) = v;
  }
}

// What lies past the last key may be anything, and zero times anything need not be zero.
template <int kDim>
__device__ void clear_rows(char* values, int first_row) {
  for (int i = threadIdx.x % 128; i < (kTileKeys - first_row) * kDim / 8; i += 128) {
    const int row = first_row + i / (kDim / 8), piece = i % (kDim / 8);
    *reinterpret_cast<uint4*>(values + piece / 8 * kPanel + row * 128 + 16 * (piece & 7)) = uint4{};
  }
  fence_shared();
}

using Scores = float[64];  // of a lane: of each 8 keys, row g keys 2t and 2t + 1, then row g + 8

template <int kDim>
struct Rows {
  Span span[2];
  Span common;  // keys that all rows of the warpgroup see
  float most[2] = {kNone, kNone}, sum[2] = {0, 0};
  float rescale[2];      // of what was summed before the last softmax_update()
  float out[kDim / 2];   // as Scores
  uint32_t weights[32];  // the last tile's as halves: fragments of 16 keys

  // Scores to weights, as floats; most, sum and rescale.
  __device__ __forceinline__ void softmax_update(Scores& s, const Params& p, int key0, int t) {
    if (key0 < common.begin || key0 + kTileKeys > common.end) {
#pragma unroll
      for (int i = 0; i < 64; ++i) {
        const int key = key0 + i / 4 * 8 + 2 * t + i % 2;
        const Span& seen = span[i / 2 % 2];
        if (key < seen.begin || key >= seen.end) s[i] = kNone;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = most[h];
#pragma unroll
      for (int i = 0; i < 32; ++i) top = fmaxf(top, s[i / 2 * 4 + 2 * h + i % 2]);
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
      const float base = top == kNone ? 0.0f : top * p.scale;
      rescale[h] = fast_exp2(most[h] * p.scale - base);
      most[h] = top;
      float total = 0;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        float& v = s[i / 2 * 4 + 2 * h + i % 2];
        v = fast_exp2(fmaf(v, p.scale, -base));
        total += v;
      }
      sum[h] = sum[h] * rescale[h] + total;
    }
  }
  __device__ __forceinline__ void take_weights(const Scores& s) {
#pragma unroll
    for (int i = 0; i < 32; ++i) weights[i] = bits_of(__floats2half2_rn(s[2 * i], s[2 * i + 1]));
  }
  __device__ __forceinline__ void rescale_out() {
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }
};

template <int kDim>
__device__ __forceinline__ void start_scores(Scores& s, uint32_t queries, uint32_t keys) {
  constexpr int kRowGroup = 1024;  // bytes of 8 rows
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    const uint32_t at = i / 4 * kPanel + i % 4 * 32;
    wgmma_128(s, matrix(queries + at, 16, kRowGroup), matrix(keys + at, 16, kRowGroup), i > 0);
  }
  commit_products();
}

template <int kDim>
__device__ __forceinline__ void start_output(Rows<kDim>& rows, uint32_t values) {
#pragma unroll
  for (int i = 0; i < kTileKeys / 16; ++i)
    wgmma_weights<kDim>(rows.out, &rows.weights[4 * i], matrix(values + i * 2048, kPanel, 1024));
  commit_products();
}

template <int kDim>
__device__ void write_rows(const Rows<kDim>& rows, const Params& p, const Walk& walk, int row0, int g, int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = rows.sum[h];
    total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
    total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
    const int row = row0 + g + 8 * h;
    if (row >= walk.n_rows) continue;
    const int head = static_cast<int>(blockIdx.x) * p.group + row % p.group;
    const float inverse = 1.0f / with_sink(p, total, rows.most[h] * p.scale, head);
    const int64_t at = (walk.token0 + row / p.group) * p.y_stride + head * kDim + 2 * t;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const float first = rows.out[4 * i + 2 * h] * inverse, second = rows.out[4 * i + 2 * h + 1] * inverse;
      if (p.y_f32) {
        *reinterpret_cast<float2*>(static_cast<float*>(p.y) + at + 8 * i) = make_float2(first, second);
      } else {
        *reinterpret_cast<half2*>(static_cast<half*>(p.y) + at + 8 * i) =
            __halves2half2(from_float<half>(first), from_float<half>(second));
      }
    }
  }
}

// A warpgroup's rows, over all tiles.
template <int kDim>
__device__ __forceinline__ void attend_rows(const Params& p, const Walk& walk, char* shared, uint32_t barriers,
                                            int warpgroup) {
  using S = Shared<kDim>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
  const int group_row = walk.row0 + kGroupRows * warpgroup, row0 = group_row + 16 * warp;
  const auto span_at = [&](int row) { return span_of(p, walk.kv_len, walk.q_len, min(row, walk.n_rows - 1)); };
  Rows<kDim> rows;
  rows.span[0] = span_at(row0 + g), rows.span[1] = span_at(row0 + g + 8);
  rows.common = {span_at(group_row + kGroupRows - 1).begin, span_at(group_row).end};
#pragma unroll
  for (float& v : rows.out) v = 0;
  load_queries<kDim>(p, walk, shared, group_row);
  fence_shared();
  warpgroup_barrier(warpgroup);
  const uint32_t base = shared_address(shared), queries = base + warpgroup * kGroupRows * 128;
  const auto barrier = [&](int kind, int stage) {
    return barriers + 8 * (kind * kStages + stage);
  };  // kind: keys, values; + 2: free
  const auto release = [&](int part, int stage) {
    if (threadIdx.x % 128 == 0) arrive(barrier(2 + part, stage));
  };

  Scores scores;
  int stage = 0;
  uint32_t phase = 0;
  await(barrier(0, 0), 0);
  fence_products(scores);
  start_scores<kDim>(scores, queries, base + S::kKeysAt);
  await_products<0>(scores);
  release(0, 0);
  rows.softmax_update(scores, p, walk.last * kTileKeys, t);
  rows.take_weights(scores);
  for (int tile = walk.last; tile >= walk.first; --tile) {
    const int next_stage = stage + 1 == kStages ? 0 : stage + 1;
    const uint32_t next_phase = next_stage == 0 ? phase ^ 1 : phase;
    const bool more = tile > walk.first;
    if (more) {
      await(barrier(0, next_stage), next_phase);
      fence_products(scores);
      start_scores<kDim>(scores, queries, base + S::kKeysAt + next_stage * S::kTileBytes);
    }
    await(barrier(1, stage), phase);
    if ((tile + 1) * kTileKeys > walk.kv_len) {
      clear_rows<kDim>(shared + S::kValues + stage * S::kTileBytes, walk.kv_len - tile * kTileKeys);
      warpgroup_barrier(warpgroup);
    }
    fence_products(rows.out);
    start_output(rows, base + S::kValues + stage * S::kTileBytes);
    if (more) {
      await_products<1>(scores);
      release(0, next_stage);
      rows.softmax_update(scores, p, (tile - 1) * kTileKeys, t);
    }
    await_products<0>(rows.out);
    release(1, stage);
    if (more) {
      rows.rescale_out();
      rows.take_weights(scores);
    }
    stage = next_stage, phase = next_phase;
  }
  write_rows(rows, p, walk, row0, g, t);
}

template <int kDim>
__global__ void __launch_bounds__(384, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ Params p) {
#if INGOT_WGMMA
  extern __shared__ char unaligned[];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t barriers = shared_address(shared) + Shared<kDim>::kBarriers;
  start_dependent();
  const Walk walk(p);
  if (walk.empty()) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4 * kStages; ++i) init_barrier(barriers + 8 * i, i < 2 * kStages ? 1 : 2);
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    shrink_registers<24>();
    if (threadIdx.x < 32) fetch<kDim>(map, p, walk, shared_address(shared), barriers);
  } else {
    grow_registers<240>();
    attend_rows<kDim>(p, walk, shared, barriers, static_cast<int>(threadIdx.x) / 128 - 1);
  }
#endif
}

// The cache as rows of one token and KV head, fetched 16 rows and 64 columns at a time.
CUtensorMap map_of(const DeviceKv& kv, int64_t n_rows) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
          "cudaGetDriverEntryPoint");
    CHECK(function != nullptr);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(kv.head_dim), static_cast<cuuint64_t>(n_rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(kv.head_dim) * 2};
  const cuuint32_t box[] = {64, 16}, steps[] = {1, 1};
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, kv.data, sizes, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK_EQ(static_cast<int>(status), 0);
  return map;
}

template <int kDim>
void run(const Params& p, const AttentionPlan& plan, Device& device) {
  using S = Shared<kDim>;
  const dim3 grid(static_cast<unsigned>(p.kv.n_kv_heads), blocks_for(int64_t{plan.max_q_len} * p.group, kBlockRows),
                  static_cast<unsigned>(plan.n_seqs));
  launch(device, hopper_kernel<kDim>, grid, 384, S::kBytes, map_of(p.kv, p.kv.n_rows()), p);
}

}  // namespace

bool can_attend_hopper(const Device& device, const Params& p, const AttentionPlan& plan) {
  const bool known = p.kv.dtype == DType::kF16 && p.kv.n_parts == 2 && (p.kv.head_dim == 64 || p.kv.head_dim == 128);
  return device.is_hopper() && known && !plan.batch_invariant && p.softcap == 0 && p.kv.n_rows() <= INT32_MAX &&
         plan.max_q_len * p.group >= 2 * kBlockRows;
}

void attend_hopper(const Params& p, const AttentionPlan& plan, Device& device) {
  p.kv.head_dim == 64 ? run<64>(p, plan, device) : run<128>(p, plan, device);
}

}  // namespace ingot::cuda

// Attention with heads of up to 576 columns, whose sums do not fit one warp's registers: decode with heads of 256,
// latents, and all sizes without a kernel of their own. A block processes 16 or 32 rows and, if a sequence is split, a
// part of its keys, 32 per step. Queries and several steps of keys and values are in shared memory. First each warp
// computes the scores of 16 rows and some keys. Weights pass through shared memory, because each warp then adds up some
// columns of the values over all keys and rows. Keys and values become f16 during the copy. For pages of a multiple of
// 16 tokens, and heads of a multiple of 8 columns.
#include "backend/cuda/attention/attention.cuh"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kMaxStages = 3;

// A block's shared memory, in bytes: queries, weights, maxima, then stages of keys and values. Piece c, of 16 bytes, of
// row r is at place c ^ r % 8, to avoid bank conflicts between the rows of a matrix.
template <int kWidth, int kTiles, bool kIsLatent>
struct Wide {
  static constexpr int kDim = kWidth, kRowTiles = kTiles, kBlockRows = 16 * kTiles;
  static constexpr bool kLatent = kIsLatent;  // values are the keys
  static constexpr int kBlockWarps = kTiles == 1 ? 4 : 8, kThreads = 32 * kBlockWarps;
  static constexpr int kGroups = kBlockWarps / kTiles;           // warps that share rows, each with its own keys
  static constexpr int kGroupTiles = kKeys / 8 / kGroups;        // tiles of 8 keys per warp
  static constexpr int kColumnTiles = kWidth / 8 / kBlockWarps;  // tiles of 8 columns per warp
  static constexpr int kPieces = kWidth / 8, kRowBytes = 2 * kWidth;
  static constexpr int kKeyBytes = kKeys * kRowBytes, kStageBytes = kIsLatent ? kKeyBytes : 2 * kKeyBytes;
  static constexpr int kWeights = kBlockRows * kRowBytes, kMaxima = kWeights + kBlockRows * kKeys * 2;
  static constexpr int kStages = kMaxima + kBlockRows * kGroups * static_cast<int>(sizeof(float));
  static constexpr int kAtOnce = 2 * (kStages + 2 * kStageBytes) <= 226 << 10 ? 2 : 1;  // blocks per multiprocessor
  static constexpr size_t bytes(int n_stages) { return static_cast<size_t>(kStages + n_stages * kStageBytes); }
};

// The work of a block: rows [row0, row0 + n) of a sequence's n_rows, and steps [begin, end) of its keys.
struct Task {
  int seq, head, row_block, split, token0, q_len, kv_len, n_rows, row0, n, n_active = 0, begin, end;
  const int32_t* table;

  __device__ explicit Task(const Params& p) {
    seq = blockIdx.z, head = blockIdx.y;
    row_block = p.blocks.n_row_blocks - 1 - static_cast<int>(blockIdx.x) % p.blocks.n_row_blocks;  // the longest first
    split = static_cast<int>(blockIdx.x) / p.blocks.n_row_blocks;
    token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, kv_len = p.batch.kv_len[seq];
    table = p.batch.block_table + int64_t{seq} * *p.batch.max_blocks;
    n_rows = q_len * p.group, row0 = row_block * p.blocks.rows, n = min(p.blocks.rows, n_rows - row0);
    if (!takes(p, n_rows) || n <= 0) return;
    const Split<kKeys> splits(p, span_of(p, kv_len, q_len, row0, row0 + n - 1));
    const Span steps = splits.steps(split);
    n_active = splits.n_active, begin = steps.begin, end = steps.end;
  }
  __device__ bool empty() const { return split >= n_active; }
  __device__ Span span(const Params& p, int row) const { return span_of(p, kv_len, q_len, row0 + min(row, n - 1)); }
};

template <class W>
__device__ void copy_queries(uint32_t to, const Params& p, const Task& task) {
  for (int i = threadIdx.x; i < W::kBlockRows * W::kPieces; i += W::kThreads) {
    const int row = i / W::kPieces, piece = i % W::kPieces, packed = task.row0 + row;
    const bool in = row < task.n && 8 * piece < p.kv.head_dim;
    const half* from = p.q + (task.token0 + packed / p.group) * p.q_stride +
                       (task.head * p.group + packed % p.group) * p.kv.head_dim + 8 * piece;
    copy8(to + row * W::kRowBytes + 16 * (piece ^ row % 8), in ? from : p.q, in);
  }
}

// The cache rows of a step's 32 keys, 16 per page. The lookup is one step ahead of the copy.
struct Pages {
  int64_t first, second;

  __device__ Pages(const Params& p, const Task& task, int step) {
    const int last = (task.kv_len - 1) & ~15;  // so that both pages exist
    first = row_of(p, task.table, min(step * kKeys, last), 0, task.head);
    second = row_of(p, task.table, min(step * kKeys + 16, last), 0, task.head);
  }
};

// Copies the keys (which = 0) or values (1) of a step, from `offset` rows after the rows of its keys. Rows past the
// last are set to zero, because they may be NaN, and 0 * NaN is NaN.
template <class W, class K, class V, int which>
__device__ void copy_rows(uint32_t to, const Params& p, const Task& task, const Pages& places, int64_t offset,
                          int key0) {
  constexpr int kEach = kKeys * W::kPieces / W::kThreads;
  static_assert(kKeys * W::kPieces % W::kThreads == 0);
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * W::kThreads, row = i / W::kPieces, piece = i % W::kPieces;
    const bool in = key0 + row < task.kv_len && 8 * piece < p.kv.head_dim;
    const int64_t page = (row < 16 ? places.first : places.second) + offset;
    copy_cached<K, V, which>(to + row * W::kRowBytes + 16 * (piece ^ row % 8), p, page + row % 16, p.kv.head_dim,
                             8 * piece, in);
  }
}

// kMixed: keys of q8_0 and values of q4_0.
template <class W, bool kMixed>
__device__ __forceinline__ void copy_step(uint32_t stage, const Params& p, const Task& task, const Pages& places,
                                          int step) {
  const auto copy = [&](auto* k, auto* v) {
    using K = std::remove_pointer_t<decltype(k)>;
    using V = std::remove_pointer_t<decltype(v)>;
    copy_rows<W, K, V, 0>(stage, p, task, places, 0, step * kKeys);
    const int64_t values = int64_t{p.kv.n_parts - 1} * p.kv.n_kv_heads * p.kv.block_size;
    if (!W::kLatent) copy_rows<W, K, V, 1>(stage + W::kKeyBytes, p, task, places, values, step * kKeys);
  };
  const auto copy_both = [&](auto* both) { copy(both, both); };
  if constexpr (kMixed) {
    copy(static_cast<CachedByte*>(nullptr), static_cast<CachedNibbles*>(nullptr));
  } else if (p.kv.dtype == DType::kF16) {
    copy_both(static_cast<half*>(nullptr));
  } else if (p.kv.dtype == DType::kBF16) {
    copy_both(static_cast<__nv_bfloat16*>(nullptr));
  } else if (p.kv.dtype == DType::kE4M3) {
    copy_both(static_cast<__nv_fp8_e4m3*>(nullptr));
  } else if (p.kv.dtype == DType::kQ8_0) {
    copy_both(static_cast<CachedByte*>(nullptr));
  } else {
    copy_both(static_cast<CachedNibbles*>(nullptr));
  }
}

// Waits for the oldest of the groups of copies.
__device__ __forceinline__ void wait_for_copies(int n_stages) {
  static_assert(kMaxStages == 3);
  if (n_stages == 3) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
}

// The state of a warp. total: rows g and g + 8 of the rows whose scores the warp computes, over the warp's keys. most
// and out: the maxima of all rows of the block, and their sums in the warp's columns.
template <class W>
struct State {
  float total[2] = {0, 0};
  float row_max[W::kRowTiles][2];
  float out[W::kRowTiles][W::kColumnTiles][4];

  __device__ State() {
#pragma unroll
    for (int r = 0; r < W::kRowTiles; ++r) {
      row_max[r][0] = row_max[r][1] = kNone;
#pragma unroll
      for (int c = 0; c < W::kColumnTiles; ++c) out[r][c][0] = out[r][c][1] = out[r][c][2] = out[r][c][3] = 0;
    }
  }
};

// scores[u] = 16 queries times 8 keys from `keys` on, in several partial sums, so that products do not wait for each
// other.
template <class W>
__device__ __forceinline__ void score(float (&scores)[W::kGroupTiles][4], uint32_t queries, uint32_t keys, int lane) {
  constexpr int kSums = W::kRowTiles == 1 ? 4 : 2;  // with fewer free registers, other warps hide the latency
  float sums[W::kGroupTiles][kSums][4] = {};
  const uint32_t q_row = queries + lane % 16 * W::kRowBytes, k_row = keys + lane % 8 * W::kRowBytes;
#pragma unroll
  for (int i = 0; i < W::kDim / 64; ++i) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {  // 32 columns each
      uint32_t q[2][4];
      load_matrices(q[0], q_row + 128 * i + 16 * ((4 * part + lane / 16) ^ lane % 8));
      load_matrices(q[1], q_row + 128 * i + 16 * ((4 * part + 2 + lane / 16) ^ lane % 8));
#pragma unroll
      for (int u = 0; u < W::kGroupTiles; ++u) {
        uint32_t k[4];
        load_matrices(k, k_row + 8 * u * W::kRowBytes + 128 * i + 16 * ((4 * part + lane / 8) ^ lane % 8));
        mma(sums[u][2 * part % kSums], q[0][0], q[0][1], q[0][2], q[0][3], k[0], k[1]);
        mma(sums[u][(2 * part + 1) % kSums], q[1][0], q[1][1], q[1][2], q[1][3], k[2], k[3]);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < W::kGroupTiles; ++u)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      scores[u][j] = sums[u][0][j] + sums[u][1][j];
      if constexpr (kSums == 4) scores[u][j] += sums[u][2][j] + sums[u][3][j];
    }
}

// Stores the largest score of each of a warp's rows for the other warps: maxima [row, group].
template <class W>
__device__ __forceinline__ void tell_maxima(float* maxima, const float (&scores)[W::kGroupTiles][4], int row, int group,
                                            int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = kNone;
#pragma unroll
    for (int u = 0; u < W::kGroupTiles; ++u) largest = fmaxf(largest, fmaxf(scores[u][2 * h], scores[u][2 * h + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
    if (t == 0) maxima[(row + 8 * h) * W::kGroups + group] = largest;
  }
}

// Rescales the sums to the rows' new maxima.
template <class W>
__device__ __forceinline__ void shrink_sums(State<W>& s, const float* maxima, int n_tiles, int own_tile, int g) {
#pragma unroll
  for (int r = 0; r < W::kRowTiles; ++r) {
    if (r >= n_tiles) break;
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = s.row_max[r][h];
#pragma unroll
      for (int i = 0; i < W::kGroups; ++i) largest = fmaxf(largest, maxima[(16 * r + g + 8 * h) * W::kGroups + i]);
      shrink[h] = fast_exp2(s.row_max[r][h] - (largest == kNone ? 0.0f : largest));
      s.row_max[r][h] = largest;
      if (r == own_tile) s.total[h] *= shrink[h];
    }
    if (!__any_sync(0xFFFFFFFFu, shrink[0] != 1 || shrink[1] != 1)) continue;
#pragma unroll
    for (int c = 0; c < W::kColumnTiles; ++c)
#pragma unroll
      for (int j = 0; j < 4; ++j) s.out[r][c][j] *= shrink[j / 2];
  }
}

// Turns scores into weights, as halves in shared memory: [row, 32 keys]. Piece c of row r is at place c ^ r / 2 % 4.
template <class W>
__device__ __forceinline__ void put_weights(uint32_t weights, State<W>& s, const float (&scores)[W::kGroupTiles][4],
                                            const float (&row_max)[2], int row, int group, int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float base = row_max[h] == kNone ? 0.0f : row_max[h];
    const uint32_t at = weights + (row + 8 * h) * 2 * kKeys + 4 * t;
#pragma unroll
    for (int u = 0; u < W::kGroupTiles; ++u) {
      const float first = fast_exp2(scores[u][2 * h] - base), second = fast_exp2(scores[u][2 * h + 1] - base);
      s.total[h] += first + second;
      const int piece = (group * W::kGroupTiles + u) ^ (row + 8 * h) / 2 % 4;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + 16 * piece), "r"(bits_of(__floats2half2_rn(first, second)))
                   : "memory");
    }
  }
}

// out += weights times the warp's columns of the values.
template <class W>
__device__ __forceinline__ void add_values(State<W>& s, uint32_t weights, uint32_t values, int n_tiles, int warp,
                                           int lane) {
  const int in_16 = lane % 16;
#pragma unroll
  for (int k = 0; k < 2; ++k) {  // 16 keys each
    uint32_t w[W::kRowTiles][4];
#pragma unroll
    for (int r = 0; r < W::kRowTiles; ++r)
      load_matrices(w[r], weights + (16 * r + in_16) * 2 * kKeys + 16 * ((2 * k + lane / 16) ^ in_16 / 2 % 4));
    const uint32_t row = values + (16 * k + in_16) * W::kRowBytes;
#pragma unroll
    for (int c = 0; c < W::kColumnTiles; c += 2) {
      const bool pair = c + 1 < W::kColumnTiles;
      const int piece = warp * W::kColumnTiles + c + (pair ? lane / 16 : 0);
      uint32_t v[4];
      load_transposed(v, row + 16 * (piece ^ lane % 8));
#pragma unroll
      for (int r = 0; r < W::kRowTiles; ++r) {
        if (r >= n_tiles) break;
        mma(s.out[r][c], w[r][0], w[r][1], w[r][2], w[r][3], v[0], v[1]);
        if (pair) mma(s.out[r][c + 1], w[r][0], w[r][1], w[r][2], w[r][3], v[2], v[3]);
      }
    }
  }
}

// Writes the warp's columns of a row to the result, or to the part of this split.
template <class W>
__device__ void write_row(const State<W>& s, const Params& p, const Task& task, int r, int h, float total, int warp,
                          int g, int t) {
  const int row = 16 * r + g + 8 * h, packed = task.row0 + row, head = task.head * p.group + packed % p.group;
  const bool whole = task.n_active == 1;
  const int64_t part = first_part(p, task.seq, task.head, task.row_block, row) + task.split;
  const float factor = whole ? 1.0f / with_sink(p, total, s.row_max[r][h], head) : 1.0f;
  const int64_t y = (task.token0 + packed / p.group) * p.y_stride + head * p.kv.head_dim;
#pragma unroll
  for (int c = 0; c < W::kColumnTiles; ++c) {
    const int column = 8 * (warp * W::kColumnTiles + c) + 2 * t;
    if (column >= p.kv.head_dim) continue;
    const float first = s.out[r][c][2 * h] * factor, second = s.out[r][c][2 * h + 1] * factor;
    if (whole) {
      store(p, y + column, first), store(p, y + column + 1, second);
    } else {
      *reinterpret_cast<float2*>(p.part_sums + part * p.kv.head_dim + column) = make_float2(first, second);
    }
  }
  if (!whole && warp == 0 && t == 0) p.part_stats[part] = make_float2(s.row_max[r][h], total);
}

// totals: [row, group] in shared memory.
template <class W>
__device__ void finish(State<W>& s, const Params& p, const Task& task, float* totals, int warp, int g, int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    s.total[h] += __shfl_xor_sync(0xFFFFFFFFu, s.total[h], 1);
    s.total[h] += __shfl_xor_sync(0xFFFFFFFFu, s.total[h], 2);
    const int row = 16 * (warp % W::kRowTiles) + g + 8 * h;
    if (t == 0) totals[row * W::kGroups + warp / W::kRowTiles] = s.total[h];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < W::kRowTiles; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = 16 * r + g + 8 * h;
      if (row >= task.n) continue;
      float total = 0;
      for (int i = 0; i < W::kGroups; ++i) total += totals[row * W::kGroups + i];
      write_row(s, p, task, r, h, total, warp, g, t);
    }
}

template <class W, bool kMixed>
__global__ void __launch_bounds__(W::kThreads, W::kAtOnce) wide_kernel(const __grid_constant__ Params p, int n_stages) {
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  const Task task(p);  // the batch was uploaded before the step began
  if (task.empty()) return wait_for_previous();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int tile = warp % W::kRowTiles, group = warp / W::kRowTiles, n_tiles = (task.n + 15) / 16, row = 16 * tile + g;
  const Span spans[2] = {task.span(p, row), task.span(p, row + 8)}, lowest = task.span(p, 0),
             all = {task.span(p, task.n - 1).begin, lowest.end};
  const uint32_t base = shared_address(shared), weights = base + W::kWeights, stages = base + W::kStages;
  auto* maxima = reinterpret_cast<float*>(shared + W::kMaxima);  // [row, group]
  Pages places(p, task, task.begin);
  const int n_ahead = n_stages - 1;  // steps whose copies start before the first step
  const bool early = are_old(task.begin + n_ahead, task.kv_len, task.q_len);
  if (!early) wait_for_previous();
  for (int i = 0; i < n_ahead; ++i) {
    if (task.begin + i < task.end) copy_step<W, kMixed>(stages + i * W::kStageBytes, p, task, places, task.begin + i);
    places = Pages(p, task, task.begin + i + 1);
  }
  if (early) wait_for_previous();
  copy_queries<W>(base, p, task);
  commit_copies();
  for (int i = 1; i < n_ahead; ++i) commit_copies();  // empty groups, because wait_for_copies() counts groups
  State<W> state;
  int next = n_stages - 1, now = 0;  // stages
  for (int step = task.begin; step < task.end; ++step) {
    if (n_stages > 1) wait_for_copies(n_stages);  // the keys of the step have arrived
    __syncthreads();  // no warp reads the stage that the next copies write
    const int to_copy = step + n_stages - 1;
    if (to_copy < task.end) copy_step<W, kMixed>(stages + next * W::kStageBytes, p, task, places, to_copy);
    commit_copies();
    places = Pages(p, task, to_copy + 1);
    if (n_stages == 1) {  // these copies are the keys of the step
      wait_for_copies(n_stages);
      __syncthreads();
    }
    const uint32_t keys = stages + now * W::kStageBytes, first = group * W::kGroupTiles * 8;
    float scores[W::kGroupTiles][4];
    if (tile < n_tiles) {
      score<W>(scores, base + 16 * tile * W::kRowBytes, keys + first * W::kRowBytes, lane);
      mask(scores, p, step * kKeys + static_cast<int>(first), spans, all, t);
      tell_maxima<W>(maxima, scores, row, group, t);
    }
    __syncthreads();
    shrink_sums(state, maxima, n_tiles, tile, g);
    if (tile < n_tiles) {
      float row_max[2];
#pragma unroll
      for (int r = 0; r < W::kRowTiles; ++r)
        if (r == tile) row_max[0] = state.row_max[r][0], row_max[1] = state.row_max[r][1];
      put_weights(weights, state, scores, row_max, row, group, t);
    }
    __syncthreads();
    add_values(state, weights, W::kLatent ? keys : keys + W::kKeyBytes, n_tiles, warp, lane);
    next = now, now = now + 1 == n_stages ? 0 : now + 1;
  }
  finish(state, p, task, maxima, warp, g, t);
}

// Calls f with the Wide type for these heads.
template <class F>
void with_kind(int head_dim, bool latent, int rows, F&& f) {
  const auto with_rows = [&]<int kDim, bool kLatent>(std::integral_constant<int, kDim>, std::bool_constant<kLatent>) {
    rows == 16 ? f(Wide<kDim, 1, kLatent>{}) : f(Wide<kDim, 2, kLatent>{});
  };
  if (latent && head_dim > 512) return with_rows(std::integral_constant<int, 576>{}, std::true_type{});
  if (head_dim <= 128) return with_rows(std::integral_constant<int, 128>{}, std::false_type{});
  if (head_dim <= 256) return with_rows(std::integral_constant<int, 256>{}, std::false_type{});
  with_rows(std::integral_constant<int, 512>{}, std::false_type{});
}

}  // namespace

// Returns the first shape that fits. Two blocks per multiprocessor hide each other's latency. Heads of fewer than 64
// columns would be mostly padding. In published models these have 32 columns, which decode.cu supports.
WideShape wide_shape(int head_dim, bool latent, int64_t n_rows, const DeviceLimits& device) {
  constexpr size_t kSystem = 1024;  // bytes of shared memory that CUDA reserves in each block
  constexpr WideShape kShapes[] = {{32, 3, 2}, {32, 2, 2}, {32, 3, 1}, {32, 2, 1},
                                   {16, 3, 2}, {16, 2, 2}, {16, 3, 1}, {16, 2, 1}, {16, 1, 1}};
  if (head_dim % 8 != 0 || head_dim < 64 || head_dim > (latent ? 576 : 512)) return {};
  for (const WideShape& shape : kShapes) {
    if (shape.rows == 32 && n_rows <= 16) continue;
    size_t bytes = 0;
    with_kind(head_dim, latent, shape.rows, [&](auto w) { bytes = decltype(w)::bytes(shape.n_stages); });
    const auto n_blocks = static_cast<size_t>(shape.n_blocks);
    if (n_blocks * (bytes + kSystem) <= device.most_shared + kSystem) return shape;
  }
  return {};
}

void attend_wide(const Params& p, const AttentionPlan& plan, Device& device) {
  const dim3 grid(static_cast<unsigned>(p.blocks.n_splits * p.blocks.n_row_blocks),
                  static_cast<unsigned>(p.kv.n_kv_heads), static_cast<unsigned>(plan.n_seqs));
  with_kind(p.kv.head_dim, p.kv.values_are_keys, p.blocks.rows, [&](auto w) {
    using W = decltype(w);
    const auto kernel = p.kv.has_two_types() ? wide_kernel<W, !W::kLatent> : wide_kernel<W, false>;
    launch(device, kernel, grid, W::kThreads, W::bytes(plan.wide.n_stages), p, plan.wide.n_stages);
  });
}

}  // namespace ingot::cuda

// Attention of sequences that bring few rows (decode): all warps of a block, and several blocks, take the same rows and
// different keys, 32 at a time; the parts are merged by their maxima and sums (merge.cu). Fragments come straight from
// 16-byte loads: of v, lane g of eight owns 8 columns of four tokens, paired by byte permutes. For keys and values of
// two bytes or one, which become f16 on their way, in pages of whole 16 tokens.
#include "backend/cuda/attention/attention.cuh"

namespace ingot::cuda {

using namespace attention;

namespace {

// Where the 32 keys of a step and their values are, 16 a page.
template <class K = half>
struct Pages {
  const K *keys[2], *values[2];

  __device__ Pages(const Params& p, const int32_t* table, int head, int key0, int kv_len) {
    const int second = key0 + 16 < kv_len ? key0 + 16 : key0;  // a page that exists
    keys[0] = page_of<K>(p, table, key0, 0, head), keys[1] = page_of<K>(p, table, second, 0, head);
    values[0] = page_of<K>(p, table, key0, 1, head), values[1] = page_of<K>(p, table, second, 1, head);
  }
};

template <int kDim, class K>
__global__ void __launch_bounds__(kWarps * 32) short_kernel(const __grid_constant__ Params p) {
  extern __shared__ float shared[];  // [kWarps, 16, kDim] sums, then [kWarps, 16, 2] maxima and totals
  let_next_start();
  // The batch was there before the step began, so it may be read before the kernel in front has ended.
  const int split = blockIdx.x, head = blockIdx.y, seq = blockIdx.z;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, kv_len = p.batch.kv_len[seq];
  const int32_t* table = p.batch.block_table + int64_t{seq} * *p.batch.max_blocks;
  const int n_rows = q_len * p.group;
  if (n_rows > kRows) return wait_for_previous();
  const Span spans[2] = {span_of(p, kv_len, q_len, min(g, n_rows - 1)),
                         span_of(p, kv_len, q_len, min(g + 8, n_rows - 1))};
  const Span lowest = span_of(p, kv_len, q_len, 0), highest = span_of(p, kv_len, q_len, n_rows - 1),
             all = {highest.begin, lowest.end};
  const auto [first, n_steps, n_active, per_split] = Split(p, kv_len, q_len, 0, n_rows - 1);
  if (split >= n_active) return wait_for_previous();
  const int begin = first + split * per_split, end = min(begin + per_split, first + n_steps);
  Pages<K> pages(p, table, head, min(begin + warp, first + n_steps - 1) * kKeys, kv_len);
  wait_for_previous();
  Tile<kDim> tile;
  tile.load_q(p, token0, head * p.group, 0, n_rows, g, t);
  for (int step = begin + warp; step < end; step += kWarps) {
    const int key0 = step * kKeys;
    typename Tile<kDim>::Values values[2];
    tile.load_values(values[0], pages.values[0], kv_len - key0, g, t);
    tile.load_values(values[1], pages.values[1], kv_len - key0 - 16, g, t);
    float scores[4][4];
    tile.score(scores, pages.keys, g, t);
    if (step + kWarps < end) pages = Pages<K>(p, table, head, key0 + kWarps * kKeys, kv_len);
    mask(scores, p, key0, spans, all, t);
    tile.softmax_update(scores);
    tile.add_values(scores[0], scores[1], values[0]);
    tile.add_values(scores[2], scores[3], values[1]);
  }
  tile.finish_totals();

  float* stats = shared + kWarps * kRows * kDim;
  tile.each_piece(t, [&](int h, int column, const float* piece) {
    float* to = shared + (warp * kRows + g + 8 * h) * kDim + column;
#pragma unroll
    for (int j = 0; j < 2 * Tile<kDim>::kPerLane; ++j) to[j] = piece[j];
  });
  if (t == 0) {
    for (int h = 0; h < 2; ++h) {
      stats[(warp * kRows + g + 8 * h) * 2] = tile.most[h];
      stats[(warp * kRows + g + 8 * h) * 2 + 1] = tile.total[h];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n_rows * kDim; i += blockDim.x) {
    const int row = i / kDim, column = i % kDim;
    float most = kNone, sum = 0, total = 0;
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, stats[(w * kRows + row) * 2]);
    const float base = most == kNone ? 0.0f : most;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = exp2f(stats[(w * kRows + row) * 2] - base);
      sum += weight * shared[(w * kRows + row) * kDim + column];
      total += weight * stats[(w * kRows + row) * 2 + 1];
    }
    if (n_active == 1) {
      total = with_sink(p, total, base, head * p.group + row % p.group);
      store(p, (token0 + row / p.group) * p.y_stride + (head * p.group + row % p.group) * kDim + column, sum / total);
      continue;
    }
    const int64_t part = first_part(p, seq, head, 0, row) + split;
    p.part_sums[part * kDim + column] = sum;
    if (column == 0) p.part_stats[part] = make_float2(most, total);
  }
}

template <int kDim>
void run(const Params& p, const AttentionPlan& plan, Device& device) {
  const auto n_seqs = static_cast<unsigned>(plan.n_seqs), n_heads = static_cast<unsigned>(p.kv.n_kv_heads);
  constexpr int kShared = kWarps * kRows * (kDim + 2) * static_cast<int>(sizeof(float));
  static_assert(kShared <= 48 * 1024);
  with_small_type(p.kv.dtype, [&](auto* k) {
    using K = std::remove_pointer_t<decltype(k)>;
    launch(device, short_kernel<kDim, K>, dim3(static_cast<unsigned>(plan.n_splits), n_heads, n_seqs), kWarps * 32,
           kShared, p);
  });
}

}  // namespace

void attend_short(const Params& p, const AttentionPlan& plan, Device& device) {
  switch (p.kv.head_dim) {
    case 32: return run<32>(p, plan, device);
    case 64: return run<64>(p, plan, device);
    case 96: return run<96>(p, plan, device);
    case 128: return run<128>(p, plan, device);
  }
}

}  // namespace ingot::cuda

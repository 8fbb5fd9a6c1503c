// Attention of sequences with few rows (decode). All warps of a block, and several blocks, process the same rows and
// different keys, 32 at a time. The parts are merged by their maxima and sums (merge.cu). Each warp prefetches its keys
// and values to its own ring in shared memory, so warps wait for each other only at the end. Keys and values become f16
// in registers. Pages must have a multiple of 16 tokens.
#include <algorithm>

#include "backend/cuda/attention/attention.cuh"

namespace ingot::cuda {

using namespace attention;

namespace {

// A slot of a warp's ring: 32 rows of keys or of values, in pieces of 16 bytes, then scales. Lanes read one piece of
// several rows at once. If rows begin in the same bank, the pieces of a row are swizzled to avoid bank conflicts.
template <int kDim, class K>
struct Slot {
  static constexpr int kRowBytes = kDim * kBits<K> / 8, kPieces = kRowBytes / 16, kSlots = 3;
  static constexpr int kGroups = kIsScaled<K> ? scale_groups(kDim) : 0;  // scales of a row
  static constexpr int kScales = kKeys * kRowBytes, kBytes = kScales + kKeys * kGroups * 2;
  static constexpr bool kSwaps = kRowBytes % 128 == 0;
  // Columns of keys that a lane owns (Tile::load_q).
  static constexpr int kOwn = kBits<K> == 8 && kDim % 64 == 0 ? 16 : 8;

  // Offset of a piece of a row. The lanes of a load read keys g and g + 1, or values 2t for all t.
  __device__ static constexpr int place(bool values, int row, int piece) {
    const int swap = kRowBytes == 64 && kBits<K> == 4 ? row / 2 % 4
                     : !kSwaps                        ? 0
                     : values                         ? (row / 2 % 4) * 2
                                                      : row % 2 * 4;
    return row * kRowBytes + 16 * (piece ^ swap);
  }
  // Loads 8 or 4 elements of a row as halves.
  template <int n>
  __device__ static __forceinline__ auto load(const char* slot, bool values, int row, int column) {
    const int byte = column * kBits<K> / 8;
    const auto* from = reinterpret_cast<const K*>(slot + place(values, row, byte / 16) + byte % 16);
    if constexpr (n == 8) return load8(from);
    else return load4(from);
  }
  __device__ static __forceinline__ half scale(const char* slot, int row, int column) {
    return reinterpret_cast<const half*>(slot + kScales)[row * kGroups + column / kScaleGroup];
  }
};

// The blocks of the cache that hold 32 keys, 16 each.
struct Pages {
  int first, second;

  __device__ Pages(const Params& p, const int32_t* table, int key0, int kv_len) {
    const int last = kv_len - 1;  // in a page that exists
    first = table[min(key0, last) / p.kv.block_size];
    second = table[min(key0 + 16, last) / p.kv.block_size];
  }
};

// Starts the copy of 32 keys (which = 0) or values (1) to a slot. Rows past kv_len are set to zero, because they may be
// NaN, and 0 * NaN is NaN.
template <int kDim, class K>
__device__ __forceinline__ void copy_rows(uint32_t slot, const Params& p, const Pages& pages, int which, int head,
                                          int key0, int kv_len, int lane) {
  using S = Slot<kDim, K>;
  const int64_t first_row = row_in(p, pages.first, key0, which, head),
                second_row = row_in(p, pages.second, key0 + 16, which, head);
  const char *first = reinterpret_cast<const char*>(cached_at<K>(p.kv, first_row, kDim)),
             *second = reinterpret_cast<const char*>(cached_at<K>(p.kv, second_row, kDim));
  constexpr int kEach = kKeys * S::kPieces / 32;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int i = lane + 32 * j, row = i / S::kPieces, piece = i % S::kPieces;
    const bool in = key0 + row < kv_len;
    const char* from = (row < 16 ? first : second) + row % 16 * S::kRowBytes + 16 * piece;
    copy8(slot + S::place(which == 1, row, piece), reinterpret_cast<const half*>(in ? from : first), in);  // 16 bytes
  }
  if constexpr (kIsScaled<K>) {  // the scales of 16 rows are contiguous
    constexpr int kPieces = 2 * S::kGroups;
    const half* from = cached_scales(p.kv, lane < kPieces ? first_row : second_row, kDim) + lane % kPieces * 8;
    if (lane < 2 * kPieces) copy8(slot + S::kScales + 16 * lane, from, true);
  }
  commit_copies();
}

// Waits for all copies except the newest two.
__device__ __forceinline__ void await_slot() {
  asm volatile("cp.async.wait_group 2;" ::: "memory");
  __syncwarp();
}

// Loads a lane's columns of a key as halves: the operands of two products for each 32 columns.
template <int kDim, class K>
__device__ __forceinline__ void load_key(uint4 (&k)[kDim / 32], const char* slot, int row, int t) {
  using S = Slot<kDim, K>;
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
    const int column = S::kOwn == 8 ? 32 * i + 8 * t : 64 * (i / 2) + 16 * t + 8 * (i % 2);
    k[i] = S::template load<8>(slot, false, row, column);
    if constexpr (kIsScaled<K>) k[i] = times(k[i], S::scale(slot, row, column));
  }
}

// scores[u] = queries times keys 8u to 8u + 7 of the slot.
template <int kDim, class K>
__device__ __forceinline__ void score(float (&scores)[4][4], const Tile<kDim>& tile, const char* slot, int g, int t) {
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    uint4 k[kDim / 32];
    load_key<kDim, K>(k, slot, 8 * u + g, t);
    scores[u][0] = scores[u][1] = scores[u][2] = scores[u][3] = 0;
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const auto& q = tile.q[i];
      mma(scores[u], q[0][0], q[0][1], q[0][2], q[0][3], k[i].x, k[i].y);
      mma(scores[u], q[1][0], q[1][1], q[1][2], q[1][3], k[i].z, k[i].w);
    }
  }
}

// Adds weights times the slot's values to the sums. The first n_valid keys of the slot exist.
template <int kDim, class K>
__device__ __forceinline__ void add_values(Tile<kDim>& tile, const float (&scores)[4][4], const char* slot, int n_valid,
                                           int g, int t) {
  using S = Slot<kDim, K>;
  constexpr int kPerLane = Tile<kDim>::kPerLane;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const float(&w0)[4] = scores[2 * part], (&w1)[4] = scores[2 * part + 1];
    const uint32_t a0 = bits_of(__floats2half2_rn(w0[0], w0[1])), a1 = bits_of(__floats2half2_rn(w0[2], w0[3]));
    const uint32_t a2 = bits_of(__floats2half2_rn(w1[0], w1[1])), a3 = bits_of(__floats2half2_rn(w1[2], w1[3]));
#pragma unroll
    for (int c = 0; c < Tile<kDim>::kChunks; ++c) {
      uint32_t v[4][kPerLane / 2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * part + 2 * t + (i & 1) + (i & 2) * 4;
        const int column = c * Tile<kDim>::kChunk + g * kPerLane;
        auto x = S::template load<kPerLane>(slot, true, row, column);
        // The scale of a missing key may be NaN.
        if constexpr (kIsScaled<K>) x = times(x, row < n_valid ? S::scale(slot, row, column) : half{});
        v[i][0] = x.x, v[i][1] = x.y;
        if constexpr (kPerLane == 8) v[i][2] = x.z, v[i][3] = x.w;
      }
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const uint32_t pick = j % 2 ? 0x7632 : 0x5410;
        mma(tile.out[c][j], a0, a1, a2, a3, __byte_perm(v[0][j / 2], v[1][j / 2], pick),
            __byte_perm(v[2][j / 2], v[3][j / 2], pick));
      }
    }
  }
}

template <int kDim, class K>
__global__ void __launch_bounds__(kWarps * 32, kBits<K> == 16 ? 2 : 3) short_kernel(const __grid_constant__ Params p) {
  // The rings of the warps; at the end [kWarps, 16, kDim] sums, then [kWarps, 16, 2] maxima and totals.
  extern __shared__ __align__(128) char rings[];
  using S = Slot<kDim, K>;
  let_next_start();
  // The batch was uploaded before the step began, so the kernel may read it before the previous kernel ends.
  const int split = blockIdx.x, head = blockIdx.y, seq = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
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

  const char* ring = rings + warp * S::kSlots * S::kBytes;
  // A slot number counts copies: keys and values of a step, then those of the next.
  const auto slot_of = [&](int number) { return ring + number % S::kSlots * S::kBytes; };
  const auto copy = [&](int number, int step, const Pages& pages, int which) {
    if (step >= end) return commit_copies();  // an empty group, because await_slot() counts groups
    copy_rows<kDim, K>(shared_address(slot_of(number)), p, pages, which, head, step * kKeys, kv_len, lane);
  };
  const auto pages_of = [&](int step) { return Pages(p, table, step * kKeys, kv_len); };
  const int first_step = begin + warp;
  Pages now = pages_of(first_step), next = pages_of(first_step + kWarps), after = pages_of(first_step + 2 * kWarps);
  wait_for_previous();
  copy(0, first_step, now, 0);
  copy(1, first_step, now, 1);
  copy(2, first_step + kWarps, next, 0);
  Tile<kDim> tile;
  tile.template load_q<S::kOwn>(p, token0, head * p.group, 0, n_rows, g, t);
  int number = 0;
  for (int step = first_step; step < end; step += kWarps, number += 2) {
    const Pages later = pages_of(step + 3 * kWarps);
    float scores[4][4];
    await_slot();
    score<kDim, K>(scores, tile, slot_of(number), g, t);
    __syncwarp();  // the keys are no longer used
    copy(number + 3, step + kWarps, next, 1);
    mask(scores, p, step * kKeys, spans, all, t);
    tile.softmax_update(scores);
    await_slot();
    add_values<kDim, K>(tile, scores, slot_of(number + 1), kv_len - step * kKeys, g, t);
    __syncwarp();
    copy(number + 4, step + 2 * kWarps, after, 0);
    next = after, after = later;
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  tile.finish_totals();

  float *shared = reinterpret_cast<float*>(rings), *stats = shared + kWarps * kRows * kDim;
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
  constexpr size_t kSums = kWarps * kRows * (kDim + 2) * sizeof(float);
  with_cached_half(p.kv.dtype, [&](auto* k) {
    using K = std::remove_pointer_t<decltype(k)>;
    using S = Slot<kDim, K>;
    launch(device, short_kernel<kDim, K>, dim3(static_cast<unsigned>(plan.n_splits), n_heads, n_seqs), kWarps * 32,
           std::max(kSums, size_t{kWarps} * S::kSlots * S::kBytes), p);
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

// Attention of sequences with few rows (decode). All warps of a block, and several blocks, process the same rows and
// different keys, 32 at a time (decode_tile.cuh). The parts are merged by their maxima and sums (merge.cu). Each warp
// prefetches its keys and values to its own ring of three slots in shared memory, so warps wait for each other only at
// the end. Keys and values become f16 in registers. Pages must have a multiple of 16 tokens.
#include <algorithm>
#include <utility>

#include "backend/cuda/attention/decode_tile.cuh"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kSlots = 3;

// The keys and values of one head in one layer of the cache.
struct HeadRows {
  const DeviceKv& kv;
  int64_t first[2], block_rows;  // the row of the first key and of the first value of block 0; rows of a block
  uint32_t block_factor;         // 2^32 / block size, rounded up

  __device__ HeadRows(const Params& p, int head)
      : kv(p.kv),
        first{cached_row(p.kv, p.layer, 0, 0, 0, head), cached_row(p.kv, p.layer, 0, 0, 1, head)},
        block_rows(int64_t{p.kv.n_parts} * p.kv.n_kv_heads * p.kv.block_size),
        block_factor(p.block_factor) {}

  __device__ __forceinline__ int block_of(int key) const { return static_cast<int>(__umulhi(key, block_factor)); }
  __device__ __forceinline__ int64_t row(int block, int key, int which) const {
    return first[which] + block * block_rows + (key - block_of(key) * kv.block_size);
  }
};

// The blocks of the cache that hold 32 keys, 16 each.
struct Pages {
  int first, second;

  __device__ Pages(const HeadRows& rows, const int32_t* table, int key0, int kv_len) {
    const int last = kv_len - 1;  // in a page that exists
    first = table[rows.block_of(min(key0, last))];
    second = table[rows.block_of(min(key0 + 16, last))];
  }
};

// Copies the 16 bytes at from + kFrom to to + kTo; zeros unless `in`. The offsets are part of the instruction.
template <int kTo, int kFrom>
__device__ __forceinline__ void copy_piece(uint32_t to, const char* from) {
  asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %3], 16;" ::"r"(to), "l"(from), "n"(kTo), "n"(kFrom)
               : "memory");
}
template <int kTo, int kFrom>
__device__ __forceinline__ void copy_piece(uint32_t to, const char* from, bool in) {
  asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %3], 16, %4;" ::"r"(to), "l"(from), "n"(kTo), "n"(kFrom),
               "r"(in ? 16 : 0)
               : "memory");
}

// Starts the copies of the pieces of 32 rows. first, second: the lane's first piece of the first and of the last 16
// rows. The pieces of 16 rows are contiguous.
template <int kDim, class K>
__device__ __forceinline__ void copy_pieces(uint32_t slot, const char* first, const char* second, int n_valid,
                                            int lane) {
  using S = Slot<kDim, K>;
  constexpr int kPieces = S::kPieces;
  constexpr bool kSimple = (kPieces & (kPieces - 1)) == 0;  // a lane's places differ by constants
  const uint32_t place = slot + S::place(lane / kPieces, lane % kPieces);
  const auto copy_one = [&]<int j>(auto fits) {
    const int i = 32 * j + lane, row = i / kPieces;
    const uint32_t to = kSimple ? place ^ (16 * S::swap_of(32 * j / kPieces)) : slot + S::place(row, i % kPieces);
    constexpr int kTo = kSimple ? 512 * j : 0;
    // With an odd number of pieces, the middle copy has pieces of both.
    const bool upper = 2 * j >= kPieces || (2 * j + 2 > kPieces && row >= 16);
    const char* from = upper ? second - 256 * kPieces : first;
    if constexpr (decltype(fits)::value)
      copy_piece<kTo, 512 * j>(to, from);
    else
      copy_piece<kTo, 512 * j>(to, from, row < n_valid);
  };
  const auto copy_all = [&]<int... j>(auto fits, std::integer_sequence<int, j...>) {
    (copy_one.template operator()<j>(fits), ...);
  };
  constexpr std::make_integer_sequence<int, kPieces> kAll;
  n_valid >= kKeys ? copy_all(std::true_type{}, kAll) : copy_all(std::false_type{}, kAll);
}

// Starts the copy of 32 keys (which = 0) or values (1) to a slot. Rows from n_valid on are set to zero, because they
// may be NaN, and 0 * NaN is NaN.
template <int kDim, class K, class V, int which>
__device__ __forceinline__ void copy_rows(uint32_t slot, const HeadRows& rows, const Pages& pages, int key0,
                                          int n_valid, int lane) {
  using E = std::conditional_t<which == 0, K, V>;
  using S = Slot<kDim, E>;
  const int64_t first_row = rows.row(pages.first, key0, which), second_row = rows.row(pages.second, key0 + 16, which);
  const auto piece_of = [&](int64_t row) {
    return static_cast<const char*>(rows_of<K, V>(rows.kv, which).data) + row * S::kRowBytes + 16 * lane;
  };
  copy_pieces<kDim, E>(slot, piece_of(first_row), piece_of(second_row), n_valid, lane);
  if constexpr (kIsScaled<E>) {  // the scales of 16 rows are contiguous
    constexpr int kPieces = 2 * S::kGroups;
    const half* from = cached_scales(rows_of<K, V>(rows.kv, which), lane < kPieces ? first_row : second_row, kDim) +
                       lane % kPieces * 8;
    if (lane < 2 * kPieces) copy8(slot + S::kScales + 16 * lane, from, true);
  }
  commit_copies();
}

// Waits for all copies except the newest two.
__device__ __forceinline__ void await_slot() {
  asm volatile("cp.async.wait_group 2;" ::: "memory");
  __syncwarp();
}

// Bytes of a slot of the rings. Keys and values use all slots in turn.
template <int kDim, class K, class V>
constexpr int kSlotBytes = std::max(Slot<kDim, K>::kBytes, Slot<kDim, V>::kBytes);

// As many blocks as have room in a multiprocessor's shared memory, and enough registers.
template <int kDim, class K, class V, int kTiles>
constexpr int kBlocks = std::min(kTiles == 1 ? 5 : 3, 220 * 1024 / (kWarps * kSlots * kSlotBytes<kDim, K, V> + 1024));

template <int kDim, class K, class V, int kTiles>
__global__ void __launch_bounds__(kWarps * 32, kBlocks<kDim, K, V, kTiles>)
    short_kernel(const __grid_constant__ Params p) {
  // The rings of the warps; at the end [kWarps, kMaxRows, kStride] sums, then [kWarps, kMaxRows, 2] maxima and totals.
  extern __shared__ __align__(128) char rings[];
  using Tile = DecodeTile<kDim, K, V, kTiles>;
  constexpr int kMaxRows = 8 * kTiles, kStride = kDim + 4, kBytes = kSlotBytes<kDim, K, V>;
  let_next_start();
  // The batch was uploaded before the step began, so the kernel may read it before the previous kernel ends.
  const int split = blockIdx.x, head = blockIdx.y, seq = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, kv_len = p.batch.kv_len[seq];
  const int32_t* table = p.batch.block_table + int64_t{seq} * *p.batch.max_blocks;
  const int n_rows = q_len * p.group;
  if (n_rows > kMaxRows) return wait_for_previous();
  const Span lowest = span_of(p, kv_len, q_len, 0), highest = span_of(p, kv_len, q_len, n_rows - 1),
             all = {highest.begin, lowest.end};
  const Split<kKeys> splits(p, {lowest.begin, highest.end});
  const int n_active = splits.n_active;
  if (split >= n_active) return wait_for_previous();
  const auto [begin, end] = splits.steps(split);

  const HeadRows rows(p, head);
  const uint32_t ring = shared_address(rings);
  constexpr std::integral_constant<int, 0> kOfKeys;
  constexpr std::integral_constant<int, 1> kOfValues;
  const auto copy = [&](int slot, int step, const Pages& pages, auto which) {
    if (step >= end) return commit_copies();  // an empty group, because await_slot() counts groups
    copy_rows<kDim, K, V, which>(ring + slot, rows, pages, step * kKeys, kv_len - step * kKeys, lane);
  };
  const auto pages_of = [&](int step) { return Pages(rows, table, step * kKeys, kv_len); };
  const int first_step = begin + warp;
  Pages now = pages_of(first_step), next = pages_of(first_step + kWarps), after = pages_of(first_step + 2 * kWarps);
  // Offsets of the slots of the step's keys, of its values, and of the next step's keys.
  int keys = warp * kSlots * kBytes, values = keys + kBytes, next_keys = values + kBytes;
  const bool early = are_old(first_step + kWarps + 1, kv_len, q_len);
  if (!early) wait_for_previous();
  copy(keys, first_step, now, kOfKeys);
  copy(values, first_step, now, kOfValues);
  copy(next_keys, first_step + kWarps, next, kOfKeys);
  if (early) wait_for_previous();
  Tile tile(p, token0, head * p.group, n_rows, g, t);
  for (int step = first_step; step < end; step += kWarps) {
    const Pages later = pages_of(step + 3 * kWarps);
    float scores[kTiles][2][4];
    await_slot();
    tile.score(scores, rings + keys, ring + keys + Tile::Keys::template first_place<false>(lane), g);
    __syncwarp();  // the keys are no longer used
    copy(keys, step + kWarps, next, kOfValues);
    tile.mask(scores, p, step * kKeys, kv_len, q_len, n_rows, all, g, t);
    tile.softmax_update(scores);
    await_slot();
    tile.add_values(scores, rings + values, ring + values + Tile::Values::template first_place<true>(lane),
                    kv_len - step * kKeys, t);
    __syncwarp();
    copy(values, step + 2 * kWarps, after, kOfKeys);
    next = after, after = later;
    const int used = keys;
    keys = next_keys, next_keys = values, values = used;
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();

  float *shared = reinterpret_cast<float*>(rings), *stats = shared + kWarps * kMaxRows * kStride;
  tile.each_sum(g, t,
                [&](int row, int column, float sum) { shared[(warp * kMaxRows + row) * kStride + column] = sum; });
  tile.each_total(g, t, [&](int row, float row_max, float total) {
    stats[(warp * kMaxRows + row) * 2] = row_max, stats[(warp * kMaxRows + row) * 2 + 1] = total;
  });
  __syncthreads();
  for (int i = threadIdx.x; i < n_rows * kDim; i += blockDim.x) {
    const int row = i / kDim, column = i % kDim;
    float row_max = kNone, sum = 0, total = 0;
    for (int w = 0; w < kWarps; ++w) row_max = fmaxf(row_max, stats[(w * kMaxRows + row) * 2]);
    const float base = row_max == kNone ? 0.0f : row_max;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = exp2f(stats[(w * kMaxRows + row) * 2] - base);
      sum += weight * shared[(w * kMaxRows + row) * kStride + column];
      total += weight * stats[(w * kMaxRows + row) * 2 + 1];
    }
    if (n_active == 1) {
      total = with_sink(p, total, base, head * p.group + row % p.group);
      store(p, (token0 + row / p.group) * p.y_stride + (head * p.group + row % p.group) * kDim + column, sum / total);
      continue;
    }
    const int64_t part = first_part(p, seq, head, 0, row) + split;
    p.part_sums[part * kDim + column] = sum;
    if (column == 0) p.part_stats[part] = make_float2(row_max, total);
  }
}

template <int kDim, int kTiles>
void run(const Params& p, const AttentionPlan& plan, Device& device) {
  const auto n_seqs = static_cast<unsigned>(plan.n_seqs), n_heads = static_cast<unsigned>(p.kv.n_kv_heads);
  constexpr size_t kSums = kWarps * 8 * kTiles * (kDim + 6) * sizeof(float);
  with_cached_half(p.kv, [&](auto* k, auto* v) {
    using K = std::remove_pointer_t<decltype(k)>;
    using V = std::remove_pointer_t<decltype(v)>;
    launch(device, short_kernel<kDim, K, V, kTiles>, dim3(static_cast<unsigned>(p.blocks.n_splits), n_heads, n_seqs),
           kWarps * 32, std::max(kSums, size_t{kWarps} * kSlots * kSlotBytes<kDim, K, V>), p);
  });
}

template <int kDim>
void run(const Params& p, const AttentionPlan& plan, Device& device) {
  p.blocks.rows == 8 ? run<kDim, 1>(p, plan, device) : run<kDim, 2>(p, plan, device);
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

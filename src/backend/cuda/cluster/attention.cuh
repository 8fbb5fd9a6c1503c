// Attention of one token within a cluster. A block handles a group of query heads and a part of the earlier keys. Its
// warps process 16 keys at a time. The token's own key arrives together with the heads, because it is being written to
// the cache at the same time. A warp requests its first keys and values before the heads arrive. It waits for the keys
// of the sequence's other tokens in the step, which other clusters write.
#pragma once
#include "backend/cuda/attention/attention.cuh"
#include "backend/cuda/cluster/products.cuh"

namespace ingot::cuda::cluster {

constexpr int kStepKeys = 16;  // all in one block of the cache

// A block's part, as seen by a thread; the same in all layers. kSeveral: the step has several tokens.
template <bool kSeveral>
struct Part {
  int row, table;                         // the token's index in the step, and its sequence's place in the block table
  int first_row, first_written;           // the sequence's first token in the step, and that token's position
  int position, kv_head, split, n_heads;  // query heads of the block
  int begin, end;                         // steps of keys before the token
  int first, block;                       // the warp's first step, and its block of the KV cache
  int own_block;                          // the token's own block of the KV cache
  int stats, sums;                        // where the first part has the values that this thread gathers
  int piece, to, to_step;                 // 4 columns of the block's part to merge, and the blocks to send to

  __device__ Part(const Block& b, int row_of_cluster) : row(row_of_cluster) {
    const Params& p = b.p;
    const DeviceBatch& batch = p.step.batch;
    const int seq = kSeveral ? batch.token_seq[row] : 0;
    table = kSeveral ? seq * batch.max_blocks[0] : 0;
    position = batch.positions[row];
    first_row = kSeveral && p.turns != nullptr ? batch.q_start[seq] : row, first_written = position - (row - first_row);
    kv_head = b.rank / p.n_splits, split = b.rank % p.n_splits;
    n_heads = kv_head < p.step.shape.n_kv_heads ? p.group : 0;
    const int n_steps = (position + kStepKeys - 1) / kStepKeys, each = (n_steps + p.n_splits - 1) / p.n_splits;
    begin = n_heads > 0 ? min(split * each, n_steps) : 0, end = n_heads > 0 ? min(begin + each, n_steps) : 0;
    first = begin + (2 * kWarps - 2 - b.warp) % kWarps;  // the first warps finish heads, the last warp fetches
    block = first < end ? block_of(b, first * kStepKeys) : 0;
    own_block = block_of(b, position);
    const int n_pieces = max(n_heads, 1) * (kHead / 4);
    piece = static_cast<int>(threadIdx.x) % n_pieces, to = static_cast<int>(threadIdx.x) / n_pieces,
    to_step = kThreads / n_pieces;
    const int column = 4 * static_cast<int>(threadIdx.x), head = column / kHead, in_group = head % p.group,
              first = head / p.group * p.n_splits * part_floats(p.group);
    stats = first + p.group * kHead + 2 * in_group, sums = first + in_group * kHead + column % kHead;
  }
  __device__ __forceinline__ int block_of(const Block& b, int token) const {
    return b.p.step.batch.block_table[table + (token >> b.p.block_shift)];
  }
  // Whether the step has keys of the sequence's earlier tokens in this launch.
  __device__ __forceinline__ bool needs_others(int step) const {
    return kSeveral && first_row < row && (step + 1) * kStepKeys > first_written;
  }
};

template <class K, bool kSeveral, int kBlocks>
struct Attention {
  using Tile = attention::Tile<kHead>;  // used to load values
  struct Step {
    uint4 keys[2][kHead / 32];
    typename Tile::Values values;
  };
  struct Rows {  // rows of queries, with their running softmax: lane g, t has row g
    uint32_t q[kHead / 32][2][2];
    float out[Tile::kPerLane][2], row_max, total;
  };

  const Block& b;
  const Part<kSeveral>& part;

  // The address of a token's key (which = 0) or value.
  __device__ __forceinline__ K* row(int64_t layer, int64_t block, int token, int which, int head) const {
    const DeviceKv& kv = b.p.step.kv;
    const int64_t page = ((layer * kv.n_blocks + block) * 2 + which) * kv.n_kv_heads + head;
    return static_cast<K*>(kv.data) + ((page << b.p.block_shift) + (token & ((1 << b.p.block_shift) - 1))) * kHead;
  }

  __device__ __forceinline__ void load(Step& s, int64_t layer, int step, int block) const {
    const int g = b.lane / 4, t = b.lane % 4, key0 = step * kStepKeys;
    const K* page = row(layer, block, key0, 0, part.kv_head);
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
      for (int i = 0; i < kHead / 32; ++i) s.keys[u][i] = load8(page + (8 * u + g) * kHead + 8 * t + 32 * i);
    Tile().load_values(s.values, page + (int64_t{b.p.step.kv.n_kv_heads} * kHead << b.p.block_shift),
                       part.position - key0, g, t);
  }

  __device__ __forceinline__ void take_queries(Rows& rows) const {
    const int g = b.lane / 4;
    const half* queries = b.at<half>(b.p.heads) + (part.kv_head * b.p.group + g) * kHead + b.lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < kHead / 32; ++i) {
      const uint4 v = g < part.n_heads ? *reinterpret_cast<const uint4*>(queries + 32 * i) : uint4{};
      rows.q[i][0][0] = v.x, rows.q[i][0][1] = v.y, rows.q[i][1][0] = v.z, rows.q[i][1][1] = v.w;
    }
#pragma unroll
    for (int j = 0; j < Tile::kPerLane; ++j) rows.out[j][0] = rows.out[j][1] = 0;
    rows.row_max = attention::kNone, rows.total = 0;
  }

  __device__ __forceinline__ void use(Rows& rows, const Step& s, int step) const {
    float scores[2][2], largest = rows.row_max;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      scores[u][0] = scores[u][1] = 0;
#pragma unroll
      for (int i = 0; i < kHead / 32; ++i) {
        mma_upper(scores[u], rows.q[i][0][0], rows.q[i][0][1], s.keys[u][i].x, s.keys[u][i].y);
        mma_upper(scores[u], rows.q[i][1][0], rows.q[i][1][1], s.keys[u][i].z, s.keys[u][i].w);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = step * kStepKeys + 8 * u + b.lane % 4 * 2 + j;
        scores[u][j] = key < part.position ? scores[u][j] * b.p.step.shape.score_scale : attention::kNone;
        largest = fmaxf(largest, scores[u][j]);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
    const float shrink = fast_exp2(rows.row_max - largest);  // a step has a key, so largest is finite
    rows.row_max = largest;
    rows.total *= shrink;
    uint32_t weights[2];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const float first = fast_exp2(scores[u][0] - largest), second = fast_exp2(scores[u][1] - largest);
      rows.total += first + second;
      weights[u] = bits_of(__floats2half2_rn(first, second));
    }
    const auto& v = s.values.v[0];
#pragma unroll
    for (int j = 0; j < Tile::kPerLane; ++j) {
      const uint32_t pick = j % 2 ? 0x7632 : 0x5410;
      rows.out[j][0] *= shrink, rows.out[j][1] *= shrink;
      mma_upper(rows.out[j], weights[0], weights[1], __byte_perm(v[0][j / 2], v[1][j / 2], pick),
                __byte_perm(v[2][j / 2], v[3][j / 2], pick));
    }
  }

  // Entries of the block's warps: [entry, group, kHead] sums, and [entry, group] maxima and totals. The last entry is
  // the token's own key.
  __device__ __forceinline__ float* entry(int e) const { return b.at<float>(b.p.entries) + e * b.p.group * kHead; }
  __device__ __forceinline__ float2* stats(int e) const {
    return reinterpret_cast<float2*>(b.at<float>(b.p.entries) + (kWarps + 1) * kHead * b.p.group) + e * b.p.group;
  }
  __device__ __forceinline__ int n_entries() const { return min(part.end - part.begin, kWarps); }

  // Adds the token's own key as an entry with the single weight 1.
  __device__ __forceinline__ void add_own() const {
    const half* heads = b.at<half>(b.p.heads);
    const int n_heads = b.p.step.shape.n_heads, n_kv_heads = b.p.step.shape.n_kv_heads;
#pragma unroll 1
    for (int r = b.warp; r < part.n_heads; r += kWarps) {
      const auto pair = [&](int head) {
        return __half22float2(reinterpret_cast<const half2*>(heads + head * kHead)[b.lane]);
      };
      const float2 q = pair(part.kv_head * b.p.group + r), k = pair(n_heads + part.kv_head),
                   v = pair(n_heads + n_kv_heads + part.kv_head);
      const float score = warp_sum(q.x * k.x + q.y * k.y) * b.p.step.shape.score_scale;
      reinterpret_cast<float2*>(entry(n_entries()) + r * kHead)[b.lane] = v;
      if (b.lane == 0) stats(n_entries())[r] = {score, 1.0f};
    }
  }

  // Waits until other clusters have written the keys and values of a step's tokens in a layer.
  __device__ __forceinline__ void await_others(int layer, int step) const {
    const auto n_heads = static_cast<uint32_t>(2 * b.p.step.shape.n_kv_heads);
    const int token = step * kStepKeys + b.lane % kStepKeys, other = part.first_row + token - part.first_written;
    if (token >= part.first_written && token < part.position) {
      const uint32_t* written = &b.p.turns->n_written[other * b.p.step.n_layers + layer];
      uint32_t n = 0;
      while (n < n_heads) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(written) : "memory");
    }
    __syncwarp();
  }
  // Called by a warp that has written a head of keys or values to the cache.
  __device__ __forceinline__ void tell_others(int layer) const {
    if (!kSeveral || b.p.turns == nullptr || b.lane != 0) return;
    __threadfence();
    atomicAdd(&b.p.turns->n_written[part.row * b.p.step.n_layers + layer], 1u);
  }

  // Attends, and sends the block's part to all blocks. ready() waits for the heads. Prefetches the next layer's keys
  // and values.
  template <class Ready>
  __device__ __forceinline__ void run(int step_layer, Ready&& ready) const {
    const int64_t layer = b.layer(step_layer).kv_layer,
                  next_layer = b.layer(min(step_layer + 1, b.p.step.n_layers - 1)).kv_layer;
    const int first = part.first;
    Rows rows;
    bool waits = true;
    int block = part.block;
#pragma unroll 1
    for (int step = first; waits || step < part.end; step += kWarps) {
      Step s;
      if (step < part.end && part.needs_others(step)) await_others(step_layer, step);
      if (step < part.end) load(s, layer, step, block);
      if (waits) {
        ready();
        if (part.n_heads == 0) return;
        if (part.split == 0) add_own();
        take_queries(rows);
        waits = false;
      }
      if (step < part.end) use(rows, s, step);
      if (step + kWarps < part.end) block = part.block_of(b, (step + kWarps) * kStepKeys);
    }
    if (first < part.end) put(rows);
    __syncthreads();
    merge();
    if (first < part.end) prefetch(next_layer, first);
  }

  // Prefetches the lines of a step to the L2 cache; each lane prefetches a key or a value.
  __device__ __forceinline__ void prefetch(int64_t layer, int step) const {
    const int key = step * kStepKeys + b.lane % kStepKeys;
    if (key < part.position)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(row(layer, part.block, key, b.lane / kStepKeys, part.kv_head)));
  }

  __device__ __forceinline__ void put(Rows& rows) const {
    const int g = b.lane / 4, t = b.lane % 4;
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 1);
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 2);
    if (g >= part.n_heads) return;
    float4* to = reinterpret_cast<float4*>(entry(part.first - part.begin) + g * kHead + 2 * t * Tile::kPerLane);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        to[2 * h + j] = {rows.out[4 * j][h], rows.out[4 * j + 1][h], rows.out[4 * j + 2][h], rows.out[4 * j + 3][h]};
    if (t == 0) stats(part.first - part.begin)[g] = {rows.row_max, rows.total};
  }

  // 4 columns, merged over n parts that are far_sums and far_stats floats apart.
  struct Merged {
    float4 sum;
    float row_max, total;
  };
  static __device__ __forceinline__ Merged merged(const float* sums, const float* stats, int n, int far_sums,
                                                  int far_stats) {
    Merged m{{}, attention::kNone, 0};
#pragma unroll 1
    for (int e0 = 0; e0 < n; e0 += 4) {
      float2 stat[4];
      float4 v[4];
      float row_max = m.row_max;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool in = e0 + i < n;
        stat[i] = in ? *reinterpret_cast<const float2*>(stats + (e0 + i) * far_stats) : float2{attention::kNone, 0};
        v[i] = in ? *reinterpret_cast<const float4*>(sums + (e0 + i) * far_sums) : float4{};
        row_max = fmaxf(row_max, stat[i].x);
      }
      const float base = row_max == attention::kNone ? 0.0f : row_max, shrink = fast_exp2(m.row_max - base);
      m.row_max = row_max, m.total *= shrink;
      m.sum.x *= shrink, m.sum.y *= shrink, m.sum.z *= shrink, m.sum.w *= shrink;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float weight = fast_exp2(stat[i].x - base);
        m.total += weight * stat[i].y;
        m.sum.x += weight * v[i].x, m.sum.y += weight * v[i].y, m.sum.z += weight * v[i].z, m.sum.w += weight * v[i].w;
      }
    }
    return m;
  }

  // Each thread merges 4 columns. Several threads merge the same columns, and send the result to different blocks.
  __device__ __forceinline__ void merge() const {
    const int n = n_entries() + (part.split == 0),
              to_part = b.p.parts + 4 * part_floats(b.p.group) * (part.kv_head * b.p.n_splits + part.split);
    const int i = part.piece, r = i / (kHead / 4);
    if (part.to >= part.to_step) return;
    const Merged m = merged(entry(0) + 4 * i, &stats(0)[r].x, n, b.p.group * kHead, 2 * b.p.group);
    const uint4 bits = {__float_as_uint(m.sum.x), __float_as_uint(m.sum.y), __float_as_uint(m.sum.z),
                        __float_as_uint(m.sum.w)};
    const uint2 stat = {__float_as_uint(m.row_max), __float_as_uint(m.total)};
#pragma unroll 2
    for (int to = part.to; to < kBlocks; to += part.to_step) {
      const uint32_t bar = place_in(b.barrier(kParts), to), there = place_in(b.base + to_part, to);
      send(there + 16 * i, bits, bar);
      if (i % (kHead / 4) == 0) send(there + 4 * b.p.group * kHead + 8 * r, stat, bar);
    }
  }

  // Computes the attended row from all parts.
  __device__ __forceinline__ void gather() const {
    const int i = static_cast<int>(threadIdx.x), size = part_floats(b.p.group);
    if (4 * i >= b.p.step.shape.n_heads * kHead) return;
    const float* parts = b.at<float>(b.p.parts);
    const Merged m = merged(parts + part.sums, parts + part.stats, b.p.n_splits, size, size);
    const float inverse = __fdividef(1.0f, m.total);
    b.at<float4>(b.p.attended)[i] = {m.sum.x * inverse, m.sum.y * inverse, m.sum.z * inverse, m.sum.w * inverse};
  }
};

}  // namespace ingot::cuda::cluster

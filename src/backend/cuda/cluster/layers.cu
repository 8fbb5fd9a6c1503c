// The decoder layers of a token on one cluster (cluster/layers.h). A layer is four products, with attention between
// the first two. After each of these phases, every block sends its outputs to all blocks. Every block has rows in three
// products of a layer. So a block overwrites data only after every other block has read it and sent its results. The
// same holds for the warps of one block and their sums. The sums still alternate between two places, so that a block
// barrier is between the last reads and the next writes: racecheck sees barriers, but not st.async.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "backend/cuda/cluster/attention.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace cluster;

namespace {

constexpr size_t kReserved = 1024;  // other shared memory of a block

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Bytes of a transfer.
__device__ uint32_t bytes_of(const Params& p, int sent) {
  const LayersShape& s = p.step.shape;
  if (sent == kInput || sent == kMiddle) return s.dim * 4;
  if (sent == kHidden) return s.ffn * 4;
  if (sent == kHeads) return (s.n_heads + 2 * s.n_kv_heads) * kHead * 2;
  return s.n_heads * p.n_splits * (kHead + 2) * 4;
}

template <int kBlocks>
__device__ void prepare(const Block& b) {
  const Params& p = b.p;
  const LayersShape& shape = p.step.shape;
  const int thread = static_cast<int>(threadIdx.x);
  const auto* table = reinterpret_cast<const uint64_t*>(p.step.layers);
  for (int i = thread; i < p.step.n_layers * static_cast<int>(sizeof(StepLayer) / 8); i += kThreads)
    b.at<uint64_t>(p.layers)[i] = table[i];
  if (thread <= kPhases) {
    Extent extent = extent_of(shape, thread, b.rank, kBlocks);
    for (int phase = 0; phase < thread; ++phase) {
      const Extent before = extent_of(shape, phase, b.rank, kBlocks);
      extent.first_row += before.n_rows;
      extent.first_unit += before.n_rows * before.k_tiles;
    }
    b.at<Extent>(p.extents)[thread] = extent;
  }
  if (thread < kSents) init_barrier(b.barrier(thread), 1);
  if (thread < kPhases) init_barrier(b.phase_barrier(thread), max(extent_of(shape, thread, b.rank, kBlocks).n_rows, 1));
  for (int i = thread; i < (p.squares[0] - p.input) / 4; i += kThreads)
    b.at<uint32_t>(p.input)[i] = 0;  // rows are padded with zeros to whole steps
  fence_barriers();
  __syncthreads();
  if (thread < kWarps * kPhases) b.at<Share>(p.shares)[thread] = share_of(b.extent(thread % kPhases), thread / kPhases);
  for (int phase = 0; phase < kPhases; ++phase) {
    const Extent& e = b.extent(phase);
    for (int i = thread; i < e.n_rows; i += kThreads) {
      const int tile = tile_of(shape, phase, b.rank, kBlocks, i);
      b.at<Row>(p.rows)[e.first_row + i] = {tile & 7, (tile >> 3) * e.k_tiles, e.k_tiles, e.first_unit + i * e.k_tiles};
    }
  }
  if (thread < kSents) expect_bytes(b.barrier(thread), bytes_of(p, thread));
  sync();
}

__device__ __forceinline__ void receive(const Block& b, int sent, int layer) {
  await(b.barrier(sent), layer & 1);
  if (threadIdx.x == 0) expect_bytes(b.barrier(sent), bytes_of(b.p, sent));  // the next layer's transfer
}

// A lane's one or two sums of a job. A job is two tiles of outputs, or a head. A warp finishes one job at a time.
struct Sums {
  float first = 0, second = 0;
};
__device__ __forceinline__ Sums sums_of(const Block& b, int phase, int first, int second) {
  const int k_tiles = b.extent(phase).k_tiles;
  const float *sums = b.at<float>(b.p.sums[phase % 2]), *squares_of = b.at<float>(b.p.squares[phase % 2]);
  Sums s;
  float squares = 0;
#pragma unroll 1
  for (int k0 = 0; k0 < k_tiles; k0 += 4)
#pragma unroll
    for (int k = k0; k < k0 + 4; ++k)
      if (k < k_tiles)
        s.first += sums[k * kTileRows + first], s.second += sums[k * kTileRows + second], squares += squares_of[k];
  if (phase == kOut || phase == kDown) return s;
  const float inverse = rsqrtf(squares / static_cast<float>(b.p.step.shape.dim) + b.p.step.shape.eps);
  return {s.first * inverse, s.second * inverse};
}

// Finishes pair `lane` of a head: bias, norm, rope. Keys and values also go to the cache.
template <class K, bool kSeveral, int kBlocks>
__device__ __forceinline__ void finish_head(const Block& b, int layer, const Attention<K, kSeveral, kBlocks>& attention,
                                            int head, int at0, int at1, Sums v) {
  const LayersShape& s = b.p.step.shape;
  const int half_rot = s.rot_dim / 2, other = head - s.n_heads,
            kind = other < 0              ? 0
                   : other < s.n_kv_heads ? 1
                                          : 2,
            of_kind = kind == 0   ? head
                      : kind == 1 ? other
                                  : other - s.n_kv_heads;
  const LayerProduct& w = b.layer(layer).products[kWeightQ + kind];
  v.first *= w.factor, v.second *= w.factor;
  if (w.bias != nullptr) v.first += w.bias[of_kind * kHead + at0], v.second += w.bias[of_kind * kHead + at1];
  const float* norm = kind == 0 ? b.layer(layer).q_norm : kind == 1 ? b.layer(layer).k_norm : nullptr;
  if (norm != nullptr) {
    const float inverse = rsqrtf(warp_sum(v.first * v.first + v.second * v.second) / kHead + s.head_eps);
    v.first *= inverse * norm[at0], v.second *= inverse * norm[at1];
  }
  if (kind < 2 && b.lane < half_rot) {
    const float *angles = b.at<float>(b.p.angles), u = v.first;
    v.first = u * angles[b.lane] - v.second * angles[half_rot + b.lane];
    v.second = v.second * angles[b.lane] + u * angles[half_rot + b.lane];
  }
  if (kind > 0) {
    K* to =
        attention.row(b.layer(layer).kv_layer, attention.part.own_block, attention.part.position, kind - 1, of_kind);
    const K first = from_float<K>(v.first), second = from_float<K>(v.second);
    to[at0] = first, to[at1] = second;
    v.first = to_float(first), v.second = to_float(second);
  }
  half* stage = reinterpret_cast<half*>(b.shared + b.p.stage + 128 * b.warp);
  stage[at0] = from_float<half>(v.first), stage[at1] = from_float<half>(v.second);
}

// After a product, each warp finishes a job and sends the result to all blocks in pieces of 16 bytes.
template <class K, bool kSeveral, int kBlocks>
__device__ __forceinline__ void finish(const Block& b, int layer, int phase,
                                       const Attention<K, kSeveral, kBlocks>& attention) {
  const LayersShape& s = b.p.step.shape;
  const Extent e = b.extent(phase);
  const int lane = b.lane, i = lane % kTileRows;
  const uint32_t stage = static_cast<uint32_t>(b.p.stage + 128 * b.warp);
  const LayerProduct* w = b.layer(layer).products;
#pragma unroll 1
  for (int job = b.warp; job * (phase == kQkv || phase == kGateUp ? 4 : 2) < e.n_rows; job += kWarps) {
    const int own = 2 * job + lane / kTileRows;  // tile of outputs
    int first = own, second = own, at0 = i, at1 = i;
    if (phase == kGateUp) first = 2 * own, second = 2 * own + 1;
    if (phase == kQkv) {
      const bool split = s.half_split && 2 * lane < s.rot_dim;
      at0 = split ? lane : 2 * lane, at1 = split ? lane + s.rot_dim / 2 : at0 + 1;
      first = kHeadTiles * job + at0 / kTileRows, second = kHeadTiles * job + at1 / kTileRows;
    }
    int to, chunks = 8, far = kBlocks * kTileRows * 4, sent;
    if (max(first, second) >= e.n_rows) first = second = 0;  // the last job has only one tile
    const int tile_floats = e.k_tiles * kTileRows, output = (b.rank + kBlocks * own) * kTileRows + i;
    const Sums sums = sums_of(b, phase, first * tile_floats + at0 % kTileRows, second * tile_floats + at1 % kTileRows);
    if (phase == kQkv) {
      const int head = b.rank + kBlocks * job;
      finish_head(b, layer, attention, head, at0, at1, sums);
      to = b.p.heads + head * kHead * 2, far = 64, sent = kHeads;
    } else {
      const bool out = phase == kOut;
      float v;
      if (phase == kGateUp) {
        v = to_float(
            from_float<half>(act_mul(sums.first * w[kWeightGate].factor, sums.second * w[kWeightUp].factor, s.act)));
        to = b.p.hidden, sent = kHidden;
      } else {
        v = sums.first * w[out ? kWeightOut : kWeightDown].factor +
            (output < s.dim ? b.at<float>(out ? b.p.input : b.p.middle)[output] : 0.0f);
        to = out ? b.p.middle : b.p.input, sent = out ? kMiddle : kInput;
      }
      b.at<float>(stage)[lane] = v;
      to += (b.rank + kBlocks * 2 * job) * kTileRows * 4;
      if (2 * (2 * job + 1) >= e.n_rows * (phase == kGateUp ? 1 : 2)) chunks = 4;
    }
    __syncwarp();
    const int chunk = lane % 8;
    if (chunk < chunks) {
      const uint4 v = b.at<uint4>(stage)[chunk];
      const uint32_t there = b.base + to + chunk / 4 * far + chunk % 4 * 16, bar = b.barrier(sent);
#pragma unroll
      for (int block = lane / 8; block < kBlocks; block += 4) send(place_in(there, block), v, place_in(bar, block));
    }
    __syncwarp();
    if (phase == kQkv && b.rank + kBlocks * job >= s.n_heads) attention.tell_others(layer);
  }
}

// The phases of all layers of a token, run by the warps that compute.
template <class K, bool kSeveral, int kBlocks>
__device__ __forceinline__ void compute(const Block& block, int row_of_cluster) {
  const Params& p = block.p;
  const Part<kSeveral> part(block, row_of_cluster);
  Ring ring;
#pragma unroll 1
  for (int layer = 0; layer < p.step.n_layers; ++layer) {
#pragma unroll 1
    for (int phase = 0; phase < kPhases; ++phase) {
      if (phase == kOut) {
        const Block b = block.anew();
        Attention<K, kSeveral, kBlocks>{b, part}.run(layer, [&] { receive(b, kHeads, layer); });
      }
      {
        const Block b = block.anew();
        const int row = phase == kQkv ? p.input : phase == kOut ? p.attended : phase == kGateUp ? p.middle : p.hidden;
        const float* norm = phase == kQkv      ? b.layer(layer).attention_norm
                            : phase == kGateUp ? b.layer(layer).ffn_norm
                                               : nullptr;
        multiply_share(b, ring, layer, phase, b.at<float>(row), norm, [&] {
          const Sent sent = phase == kQkv ? kInput : phase == kOut ? kParts : phase == kGateUp ? kMiddle : kHidden;
          if (phase > kQkv || layer > 0) receive(b, sent, layer - (phase == kQkv));
          if (phase != kOut) return;
          Attention<K, kSeveral, kBlocks>{b, part}.gather();
          __syncthreads();
        });
      }
      __syncthreads();
      const Block b = block.anew();
      finish(b, layer, phase, Attention<K, kSeveral, kBlocks>{b, part});
      if (block.warp == kWarps - 1) fetch_ahead(b, phase);  // by the last warp, which has the least work
    }
    ring.next_layer(block);
  }
  receive(block, kInput, p.step.n_layers - 1);
}

// The index of the cluster's token. Clusters that wait for others take tokens in the order in which they start, so no
// cluster waits for one that might not have room to start.
template <int kBlocks>
__device__ __forceinline__ int take_row(const Block& b) {
  if (b.p.turns == nullptr) return static_cast<int>(blockIdx.x) / kBlocks;
  if (b.rank == 0 && threadIdx.x == 0) *b.at<uint32_t>(b.p.row) = atomicAdd(&b.p.turns->n_started, 1u);
  sync();
  uint32_t row;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(row) : "r"(place_in(b.base + b.p.row, 0)) : "memory");
  return static_cast<int>(row);
}

// Called by one block of each cluster when the cluster waits for no other. The last one resets the numbers.
__device__ __forceinline__ void leave(const Block& b) {
  ClusterTurns& turns = *b.p.turns;
  const int thread = static_cast<int>(threadIdx.x), n_tokens = b.p.step.n_tokens;
  uint32_t& n_done = *b.at<uint32_t>(b.p.row);
  if (thread == 0) {
    __threadfence();
    n_done = atomicAdd(&turns.n_done, 1u) + 1;
  }
  __syncthreads();
  if (n_done < static_cast<uint32_t>(n_tokens)) return;
  if (thread == 0) turns.n_started = turns.n_done = 0;
  for (int i = thread; i < n_tokens * b.p.step.n_layers; i += kThreads) turns.n_written[i] = 0;
}
#endif

template <class K, bool kSeveral, int kBlocks>
__global__ void __launch_bounds__(kThreads, 1) layers_kernel(const __grid_constant__ Params p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  const int thread = static_cast<int>(threadIdx.x);
  const Block b{p, shared, shared_address(shared), rank_of_block(), thread / 32, thread % 32};
  prepare<kBlocks>(b);
  if (b.warp == kWarps - 1) {
    if (b.lane == 0) *b.at<Fetcher>(p.fetcher) = {.room = min(p.n_slots, b.extent(kPhases).first_unit)};
    __syncwarp();
    for (int i = 0; i < 4; ++i) fetch_ahead(b, -1);
  }
  wait_for_previous();
  const int dim = p.step.shape.dim, row = kSeveral ? take_row<kBlocks>(b) : 0;
  float* x = p.step.x + row * p.step.x_stride;
  const float* angles = p.step.angles + row * p.step.angle_stride;
  for (int i = thread; i < dim; i += kThreads) b.at<float>(p.input)[i] = x[i];
  for (int i = thread; i < p.step.shape.rot_dim; i += kThreads) b.at<float>(p.angles)[i] = angles[i];
  __syncthreads();
  compute<K, kSeveral, kBlocks>(b, row);
  if (b.rank == 0)
    for (int i = thread; i < dim; i += kThreads) x[i] = b.at<float>(p.input)[i];
  if (kSeveral && b.rank == 0 && p.turns != nullptr) leave(b);
  sync();  // no block ends while another block may read its memory
#endif
}

// Sets the places in shared memory, with as many slots as fit.
Params params_of(const Device& device, const LayersStep& step, int n_blocks) {
  Params p{};
  p.step = step;
  p.n_blocks = n_blocks;
  const LayersShape& s = step.shape;
  p.group = s.n_heads / s.n_kv_heads;
  p.n_splits = std::max(n_blocks / s.n_kv_heads, 1);
  p.block_shift = std::countr_zero(static_cast<unsigned>(step.kv.block_size));
  int max_tiles = 0, rows = 0;
  for (int phase = 0; phase < kPhases; ++phase) {  // the first block has the most rows
    const Extent e = extent_of(s, phase, 0, p.n_blocks);
    max_tiles = std::max(max_tiles, e.n_rows * e.k_tiles);
    rows += e.n_rows;
  }
  p.code_stride = code_bytes(step.layers[0].products[0].layout == Layout::kCodes8);
  p.scale_stride = scale_bytes(step.layers[0].products[0].has_min);
  int at = 0;
  const auto take = [&](int bytes) { return std::exchange(at, at + up_to(bytes, 128)); };
  p.layers = take(step.n_layers * static_cast<int>(sizeof(StepLayer)));
  p.shares = take(kWarps * kPhases * static_cast<int>(sizeof(Share)));
  p.extents = take((kPhases + 1) * static_cast<int>(sizeof(Extent)));
  p.rows = take(rows * static_cast<int>(sizeof(Row)));
  p.fetcher = take(static_cast<int>(sizeof(Fetcher)));
  p.row = take(4);
  p.barriers = take(8 * (int{kSents} + kPhases));
  p.angles = take(4 * s.rot_dim);
  p.input = take(4 * up_to(s.dim, kTileCols));
  p.middle = take(4 * up_to(s.dim, kTileCols));
  p.hidden = take(4 * up_to(s.ffn, kTileCols));
  p.attended = take(4 * up_to(s.n_heads * kHead, kTileCols));
  for (int& squares : p.squares)
    squares = take(4 * (up_to(std::max({s.dim, s.ffn, s.n_heads * kHead}), kTileCols) / kTileCols));
  p.heads = take(2 * kHead * (s.n_heads + 2 * s.n_kv_heads));
  p.parts = take(4 * part_floats(p.group) * s.n_kv_heads * p.n_splits);
  p.sums[0] = take(4 * max_tiles * kTileRows);
  p.sums[1] = p.entries =
      take(4 * std::max(max_tiles * kTileRows,
                        (kWarps + 1) * p.group * (kHead + 2)));  // before attention, qkv uses sums[0]
  p.stage = take(128 * kWarps);
  const int slot = p.code_stride + p.scale_stride, room = static_cast<int>(device.most_shared() - kReserved) - at;
  p.n_slots = std::clamp(room / slot, 0, kMaxSlots);
  p.scales = take(p.n_slots * p.scale_stride);
  p.codes = take(p.n_slots * p.code_stride);
  p.end = at;
  return p;
}

// Whether all weights have the layout of the first, and the weights of one phase the same zero.
bool weights_fit(const StepLayer& layer, const LayerProduct& first) {
  const LayerProduct* w = layer.products;
  const auto alike = [&](int a, int b) { return w[a].zero == w[b].zero; };
  return alike(kWeightQ, kWeightK) && alike(kWeightQ, kWeightV) && alike(kWeightGate, kWeightUp) &&
         std::all_of(w, w + kLayerWeights, [&](const LayerProduct& one) {
           return (one.layout == Layout::kCodes4 || one.layout == Layout::kCodes8) && !one.group16 &&
                  one.layout == first.layout && one.has_min == first.has_min;
         });
}

// The ring must hold all units of a phase, and all units must have the same size. Every block must have rows in each of
// the last three products.
bool fits(const Params& p) {
  const LayersShape& s = p.step.shape;
  if (s.head_dim != kHead || s.n_heads > kMaxHeads || s.n_kv_heads > p.n_blocks || p.group > attention::kRows / 2 ||
      s.dim % kTileRows != 0 || s.ffn % kTileRows != 0 || n_tiles(s.dim) < p.n_blocks || n_tiles(s.ffn) < p.n_blocks ||
      s.act > 3)
    return false;
  for (int phase = 0; phase < kPhases; ++phase) {
    const Extent e = extent_of(s, phase, 0, p.n_blocks);
    if (e.n_rows * e.k_tiles > p.n_slots) return false;
  }
  return std::all_of(p.step.layers, p.step.layers + p.step.n_layers, [&](const StepLayer& layer) {
    return layer.window == 0 && weights_fit(layer, p.step.layers[0].products[0]);
  });
}

template <class K>
auto* kernel_of(int n_blocks, bool several) {
  if (n_blocks == 8) return layers_kernel<K, true, 8>;
  if (n_blocks == 4) return layers_kernel<K, true, 4>;
  return several ? layers_kernel<K, true, kMaxBlocks> : layers_kernel<K, false, kMaxBlocks>;
}

// How many clusters of this many blocks the device runs at once.
int n_at_once(DType kv, int n_blocks, Device& device) {
  int n = 0;
  with_small_float(kv, [&](auto* k) {
    const auto* kernel = reinterpret_cast<const void*>(kernel_of<std::remove_pointer_t<decltype(k)>>(n_blocks, true));
    const auto max_cluster = static_cast<unsigned>(n_blocks);
    n = device.clusters_at_once(kernel, kThreads, device.most_shared() - kReserved, max_cluster)[max_cluster];
  });
  return n;
}

struct Division {
  int n_blocks;  // in a cluster
  int n_rounds;  // of clusters that run at once
};

// The fastest division of the device into clusters. Empty: no cluster can run the layers. Clusters of fewer blocks take
// longer, but more of them run at once.
std::optional<Division> division_of(const LayersStep& step, Device& device) {
  constexpr struct {
    int n_blocks;
    double time;  // of a token, relative to 16 blocks; measured with the demo model and smollm-135m
  } kSizes[] = {{kMaxBlocks, 1}, {8, 1.2}, {4, 1.4}};
  std::optional<Division> best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [n_blocks, time] : kSizes) {
    const int at_once = n_at_once(step.kv.dtype, n_blocks, device);
    if (at_once == 0 || !fits(params_of(device, step, n_blocks))) continue;
    const int n_rounds = (step.n_tokens + at_once - 1) / at_once;
    if (n_rounds * time >= least) continue;
    best = {n_blocks, n_rounds}, least = n_rounds * time;
  }
  return best;
}

}  // namespace

bool runs_on_clusters(const LayersStep& step, bool is_recorded, Device& device) {
  constexpr int kFewRows = 16;  // fast in single kernels
  const DeviceKv& kv = step.kv;
  if (dtype_bytes(kv.dtype) > 2 || has_scales(kv.dtype) || kv.n_parts != 2 || kv.head_dim != kHead) return false;
  if (kv.block_size % 16 != 0 || !std::has_single_bit(static_cast<unsigned>(kv.block_size))) return false;
  if (step.n_tokens > kMaxClusterTokens || step.n_layers == 0 || step.shape.n_experts > 0) return false;
  const std::optional<Division> division = division_of(step, device);
  if (!division) return false;
  // A layer that fits into fewer blocks is smaller, so that its single kernels mostly wait for launches.
  const int most_rounds = step.n_tokens <= kFewRows ? is_recorded ? 1 : 2
                          : is_recorded             ? kMaxBlocks / division->n_blocks
                                                    : 7;
  return division->n_rounds <= most_rounds;
}

void run_cluster(const LayersStep& step, int longest, ClusterTurns* turns, Device& device) {
  const int n_blocks = division_of(step, device).value().n_blocks;
  Params p = params_of(device, step, n_blocks);
  p.turns = longest > 1 ? turns : nullptr;
  with_small_float(step.kv.dtype, [&](auto* k) {
    launch_clusters(device, kernel_of<std::remove_pointer_t<decltype(k)>>(n_blocks, step.n_tokens > 1),
                    dim3(static_cast<unsigned>(n_blocks * step.n_tokens)), dim3(static_cast<unsigned>(n_blocks)),
                    kThreads, static_cast<size_t>(p.end), p);
  });
}

}  // namespace ingot::cuda

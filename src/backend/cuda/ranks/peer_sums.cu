#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/ranks/peer_numbers.cuh"
#include "backend/cuda/ranks/peer_sums.h"
#include "backend/cuda/rms.cuh"
#include "base/check.h"

namespace ingot::cuda {
namespace {

constexpr int kAtOnce = 4;  // loads in flight

// y [n / cols, cols], contiguous; x [n / cols, cols] with rows of x_stride numbers. n < 2^31.
struct Sum {
  float* x;
  const float* y;
  int64_t x_stride;
  int cols, n;
};

// y = x / rms(x) * weight for the rows of x [n / cols, cols]; weight [cols].
struct SumNorm {
  half* y;
  int64_t y_stride;
  const float* weight;
  float eps;
};

__device__ __forceinline__ float* place_in_x(const Sum& s, int i) { return s.x + i / s.cols * s.x_stride + i % s.cols; }
__device__ __forceinline__ void add_to_x(const Sum& s, int i, const Numbers& n) {
  float* to = place_in_x(s, i);
  Numbers sum = load_numbers(to);
  add(sum, n);
  store_numbers(to, sum);
}

// A failed rank ends every wait; the sums are wrong then.
__device__ __forceinline__ bool gives_up(int tries, const int* stop) {
  return tries % 4096 == 0 && *reinterpret_cast<const volatile int*>(stop) != 0;
}

// Adds codes[r], those of rank r, in rank order. Of more than two ranks, the sum is encoded again, because
// slices_kernel sends it.
template <int kMaxRanks>
__device__ __forceinline__ uint4 sum_of_ranks(const uint4 (&codes)[kMaxRanks], int n_ranks, Numbers& sum) {
  sum = decode(codes[0]);
#pragma unroll
  for (int r = 1; r < kMaxRanks; ++r)
    if (r < n_ranks) add(sum, decode(codes[r]));
  if (n_ranks == 2) return {};
  const uint4 code = encode(sum);
  sum = decode(code);
  return code;
}

// All kernels: a rank writes to a place again two turns later. By then the reader has read it: the reader's block sent
// its numbers of the turn between, which the rank has received, after it read those of the first turn.

__device__ __forceinline__ void send_line(PeerLine* to, uint32_t a, uint32_t b, uint32_t turn) {
  const uint64_t first = uint64_t{turn} << 32 | a, second = uint64_t{turn} << 32 | b;
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second) : "memory");
}
__device__ __forceinline__ PeerLine load_line(const PeerLine* from) {
  PeerLine line;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(line.first), "=l"(line.second)
               : "l"(from)
               : "memory");
  return line;
}

// Loads lines until all have arrived. Each try loads all of them at once: one after another, each line would cost the
// time of a load.
template <int n, class From>
__device__ __forceinline__ void await_lines(PeerLine (&lines)[n], uint32_t turn, const int* stop, From&& from) {
  for (int tries = 1;; ++tries) {
    bool arrived = true;
#pragma unroll
    for (int i = 0; i < n; ++i)
      if (const PeerLine* line = from(i); line != nullptr) lines[i] = load_line(line);
#pragma unroll
    for (int i = 0; i < n; ++i)
      if (from(i) != nullptr) arrived &= lines[i].first >> 32 == turn && lines[i].second >> 32 == turn;
    if (arrived || gives_up(tries, stop)) return;
  }
}

template <int kMaxRanks>
__global__ void __launch_bounds__(kLineThreads) lines_kernel(Peers peers, Sum s) {
  start_dependent();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int i = block * kLineSlice + thread * kPeerGroup;
  const uint32_t turn = peers.line_turns[block] + 1;
  const int64_t place = (int64_t{block} * kPeerTurns + turn % kPeerTurns) * peers.n_ranks;
  const auto lines = [&](int reader, int sender) {  // two lines
    return peers.of[reader].lines + ((place + sender) * kLineThreads + thread) * 2;
  };
  if (i < s.n) {
    const uint4 own = encode(load_numbers(s.y + i));
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      if (r >= peers.n_ranks || r == peers.rank) continue;
      PeerLine* to = lines(r, peers.rank);
      send_line(to, own.x, own.y, turn);
      send_line(to + 1, own.z, own.w, turn);
    }
    float* to = place_in_x(s, i);
    Numbers x = load_numbers(to);  // arrives while the lines do
    PeerLine got[2 * kMaxRanks];
    await_lines(got, turn, peers.stop, [&](int j) -> const PeerLine* {
      return j / 2 < peers.n_ranks && j / 2 != peers.rank ? lines(peers.rank, j / 2) + j % 2 : nullptr;
    });
    uint4 codes[kMaxRanks];
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      codes[r] = own;
      if (r >= peers.n_ranks || r == peers.rank) continue;
      const PeerLine &low = got[2 * r], &high = got[2 * r + 1];
      codes[r] = make_uint4(static_cast<uint32_t>(low.first), static_cast<uint32_t>(low.second),
                            static_cast<uint32_t>(high.first), static_cast<uint32_t>(high.second));
    }
    Numbers sum;
    sum_of_ranks(codes, peers.n_ranks, sum);
    add(x, sum);
    store_numbers(to, x);
  }
  __syncthreads();  // all threads have read the turn
  if (thread == 0) peers.line_turns[block] = turn;
}

// Tells all other ranks that this block's numbers have been written, and waits for theirs.
// first: the first place in `arrived` of this block, turn and step.
__device__ __forceinline__ void meet(const Peers& peers, int64_t first, uint32_t turn) {
  __syncthreads();  // the whole block has written; the release below covers all its numbers
  if (const int r = static_cast<int>(threadIdx.x); r < peers.n_ranks && r != peers.rank) {
    uint32_t* to = peers.of[r].arrived + first + peers.rank;
    const uint32_t* from = peers.of[peers.rank].arrived + first + r;
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(turn) : "memory");
    for (int i = 1;; ++i) {
      uint32_t seen;
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(from) : "memory");
      if (seen == turn || gives_up(i, peers.stop)) break;
    }
  }
  __syncthreads();
}

// The sum of v over all threads of a block.
__device__ __forceinline__ float block_sum(float v) {
  __shared__ float of_warps[kSliceThreads / 32];
  v = warp_sum(v);
  __syncthreads();  // the threads have read the sums of the last call
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (const float of_warp : of_warps) sum += of_warp;
  return sum;
}

// Norms numbers first to end of x: whole rows, which this block has written.
__device__ __forceinline__ void norm_rows(const Sum& s, const SumNorm& norm, int first, int end) {
  __syncthreads();
  for (; first < end; first += s.cols) {
    const int row = first / s.cols;
    const float* x = s.x + row * s.x_stride;
    half* y = norm.y + row * norm.y_stride;
    const auto each = [&](auto&& f) {
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x) * kPeerGroup; i < s.cols; i += kSliceThreads * kPeerGroup)
        f(i, load_numbers(x + i));
    };
    float squares = 0;
    each([&](int, const Numbers& n) {
#pragma unroll
      for (const float v : n.v) squares += v * v;
    });
    const float inverse = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(s.cols) + norm.eps);
    each([&](int i, const Numbers& n) {
      const Numbers weight = load_numbers(norm.weight + i);
      const auto& v = n.v;
      const auto& w = weight.v;
      const auto four = [&](int j) {
        return halves_of(make_float4(v[j] * inverse * w[j], v[j + 1] * inverse * w[j + 1],
                                     v[j + 2] * inverse * w[j + 2], v[j + 3] * inverse * w[j + 3]));
      };
      const uint2 low = four(0), high = four(4);
      *reinterpret_cast<uint4*>(y + i) = make_uint4(low.x, low.y, high.x, high.y);
    });
  }
}

// kMaxRanks: ranks, at most. With two, each adds whole slices; with more, each adds its part of a slice.
// kNorm: slices are whole rows, which are normed too.
template <int kMaxRanks, bool kNorm>
__global__ void __launch_bounds__(kSliceThreads, 2) slices_kernel(Peers peers, Sum s, int slice, SumNorm norm) {
  start_dependent();
  constexpr bool kParts = kMaxRanks > 2;
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int n = peers.n_ranks, rank = peers.rank, part = kParts ? slice / n : slice;
  uint32_t turn = peers.turns[block];
  for (int64_t begin = int64_t{block} * slice; begin < s.n; begin += int64_t{gridDim.x} * slice) {
    ++turn;
    const int first = static_cast<int>(begin), size = min(slice, s.n - first);
    const int64_t place = int64_t{block} * kPeerTurns + turn % kPeerTurns;
    // The place of number `at` of a part. Step 0: numbers to add; step 1: sums.
    const auto mail = [&](int reader, int sender, int step, int at) {
      return peers.of[reader].codes + (place * 2 * kMaxSlice + step * kMaxSlice + sender * part + at) / kPeerGroup;
    };
    const auto offset = [&](int r, int at) { return kParts ? r * part + at : at; };  // in the slice
    // Calls load(j, r, at) and then use(j, r, at) for each group of each other rank's part, kAtOnce at a time.
    const auto for_others = [&](auto&& load, auto&& use) {
      const int all = (n - 1) * part;
      for (int t = thread * kPeerGroup; t < all; t += kAtOnce * kSliceThreads * kPeerGroup) {
        const auto each = [&](auto&& f) {
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            const int own = t + j * kSliceThreads * kPeerGroup, k = kParts ? own / part : 0, at = own - k * part;
            const int r = kParts ? (rank + 1 + k) % n : 1 - rank;
            if (own < all && offset(r, at) < size) f(j, r, at);
          }
        };
        each(load);
        each(use);
      }
    };
    Numbers numbers[kAtOnce];
    for_others([&](int j, int r, int at) { numbers[j] = load_numbers(s.y + first + offset(r, at)); },
               [&](int j, int r, int at) { *mail(r, rank, 0, at) = encode(numbers[j]); });
    meet(peers, place * 2 * n, turn);
    for (int at = thread * kPeerGroup; at < part; at += kSliceThreads * kPeerGroup) {
      const int i = offset(rank, at);
      if (i >= size) break;
      uint4 codes[kMaxRanks];
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r)
        if (r < n && r != rank) codes[r] = __ldcg(mail(rank, r, 0, at));
      const uint4 own = encode(load_numbers(s.y + first + i));
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r)
        if (r == rank) codes[r] = own;
      Numbers sum;
      const uint4 code = sum_of_ranks(codes, n, sum);
      for (int k = 1; kParts && k < n; ++k) *mail((rank + k) % n, rank, 1, at) = code;
      add_to_x(s, first + i, sum);
    }
    if (kParts) {
      meet(peers, (place * 2 + 1) * n, turn);
      uint4 codes[kAtOnce];
      for_others([&](int j, int r, int at) { codes[j] = __ldcg(mail(rank, r, 1, at)); },
                 [&](int j, int r, int at) { add_to_x(s, first + offset(r, at), decode(codes[j])); });
    }
    if (kNorm) norm_rows(s, norm, first, first + size);
  }
  __syncthreads();  // all threads have read the turn
  if (thread == 0) peers.turns[block] = turn;
}

// from_first: words [n] of rank 0 replace those of the other ranks. Otherwise all [n_ranks, n] gets the words of each
// rank. All ranks send in both cases: without an answer, rank 0 could write to a place that is still read.
struct Gather {
  uint32_t* all;
  const uint32_t* own;
  int n;
  bool from_first;
};

__global__ void __launch_bounds__(kGatherThreads) gather_kernel(Peers peers, Gather g) {
  start_dependent();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const uint32_t turn = peers.gather_turns[block] + 1;
  const int64_t place = (int64_t{block} * kPeerTurns + turn % kPeerTurns) * peers.n_ranks;
  const auto line = [&](int j) { return thread + j * kGatherThreads; };
  const auto mail = [&](int reader, int sender, int j) {
    return peers.of[reader].gathered + (place + sender) * kGatherThreads * kGatherLines + line(j);
  };
  const auto store = [&](int r, int j, uint32_t first, uint32_t second) {
    if (g.from_first && r != 0) return;
    const int i = block * kGatherSlice + 2 * line(j);
    uint32_t* to = g.all + (g.from_first ? 0 : int64_t{r} * g.n) + i;
    if (i < g.n) to[0] = first;
    if (i + 1 < g.n) to[1] = second;
  };
#pragma unroll
  for (int j = 0; j < kGatherLines; ++j) {
    const int i = block * kGatherSlice + 2 * line(j);
    const uint32_t first = i < g.n ? __ldcg(g.own + i) : 0, second = i + 1 < g.n ? __ldcg(g.own + i + 1) : 0;
    for (int r = 0; r < peers.n_ranks; ++r)
      if (r != peers.rank) send_line(mail(r, peers.rank, j), first, second, turn);
    store(peers.rank, j, first, second);
  }
  for (int r = 0; r < peers.n_ranks; ++r) {
    if (r == peers.rank) continue;
    PeerLine got[kGatherLines];
    await_lines(got, turn, peers.stop, [&](int j) { return mail(peers.rank, r, j); });
#pragma unroll
    for (int j = 0; j < kGatherLines; ++j)
      store(r, j, static_cast<uint32_t>(got[j].first), static_cast<uint32_t>(got[j].second));
  }
  __syncthreads();  // all threads have read the turn
  if (thread == 0) peers.gather_turns[block] = turn;
}

// Numbers of a slice: equal slices for all blocks, in as few rounds as possible.
int slice_for(int n, int n_ranks) {
  const int unit = kPeerGroup * n_ranks, n_rounds = (n - 1) / (kSliceBlocks * kMaxSlice) + 1;
  const int own = (n - 1) / (kSliceBlocks * n_rounds) + 1;
  return std::min((own + unit - 1) / unit * unit, kMaxSlice / unit * unit);
}

// The same for slices of whole rows.
int rows_of_slice(int n_rows, int cols) { return std::min((n_rows - 1) / kSliceBlocks + 1, kMaxSlice / cols); }

bool sends_lines(int64_t n, int n_ranks) { return n * (n_ranks - 1) <= kLineBlocks * kLineSlice; }

template <int kMaxRanks>
void start(const Peers& peers, const Sum& sum, const SumNorm& norm, Device& device) {
  const auto start_slices = [&](auto* kernel, int slice) {
    launch(device, kernel, std::min<unsigned>(kSliceBlocks, blocks_for(sum.n, slice)), kSliceThreads, 0, peers, sum,
           slice, norm);
  };
  if (norm.weight != nullptr)
    return start_slices(slices_kernel<kMaxRanks, true>, rows_of_slice(sum.n / sum.cols, sum.cols) * sum.cols);
  if (sends_lines(sum.n, peers.n_ranks))
    return launch(device, lines_kernel<kMaxRanks>, blocks_for(sum.n, kLineSlice), kLineThreads, 0, peers, sum);
  start_slices(slices_kernel<kMaxRanks, false>, slice_for(sum.n, peers.n_ranks));
}

}  // namespace

// Measured on H200s with rows of 4,096. Two ranks gain nothing. With fewer than 16 rows, too few blocks have a row.
// From 192 to 1,024 rows, some blocks have one row more than others.
bool norms_sums(const Tensor& x, const NormArgs& norm, int n_ranks) {
  return n_ranks > 2 && norm.weight && norm.kind == NormKind::kRms && !norm.bias && on_16_bytes(norm.weight.data) &&
         x.cols <= kMaxSlice && x.cols % (kPeerGroup * n_ranks) == 0 && !sends_lines(x.rows * x.cols, n_ranks) &&
         x.rows >= 16 && (x.rows <= 192 || x.rows >= 1024);
}

void add_peer_sums(const Peers& peers, const Tensor& x, const Tensor& y, const Tensor& normed, const NormArgs& args,
                   Device& device) {
  const Sum sum{x.f32(), y.f32(), x.stride, static_cast<int>(y.cols), static_cast<int>(y.rows * y.cols)};
  SumNorm norm{};
  if (args.weight) {
    CHECK(norms_sums(x, args, peers.n_ranks) && normed.dtype == DType::kF16 && normed.stride % kPeerGroup == 0);
    norm = {static_cast<half*>(normed.data), normed.stride, args.weight.f32(), args.eps};
  }
  if (peers.n_ranks == 2) return start<2>(peers, sum, norm, device);
  peers.n_ranks <= 4 ? start<4>(peers, sum, norm, device) : start<kMaxPeers>(peers, sum, norm, device);
}

void gather_peer_words(const Peers& peers, uint32_t* all, const uint32_t* own, int n, Device& device) {
  launch(device, gather_kernel, blocks_for(n, kGatherSlice), kGatherThreads, 0, peers, Gather{all, own, n, false});
}

void share_peer_words(const Peers& peers, uint32_t* words, int n, Device& device) {
  launch(device, gather_kernel, blocks_for(n, kGatherSlice), kGatherThreads, 0, peers, Gather{words, words, n, true});
}

}  // namespace ingot::cuda

// Products with few rows of activations, up to 16: tensor-core tiles with the weights as the 16-row operand, whose fragments come
// straight from 16-byte loads. Every weight is read once; a warp has two tiles in flight.
//
// A sum over columns may take them in any order, so no fragment needs shuffling: of each 128 columns lane t of four owns columns
// 32t to 32t + 31 of quantized tiles, or 8t to 8t + 7 of each 32 of dense ones, and hands them to the tensor core four at a time,
// with the activations of just those columns. Warps of a block divide the columns and add up in shared memory.
#include <algorithm>

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 8;

struct Job {
  PackedWeight w;
  const float* bias;
  void* y;
  int64_t y_stride;
  int first_tile;
};

struct Params {
  Job jobs[3];
  int n_jobs, n_tiles;    // of rows, in all jobs; gated: in one of the two
  const half* x;
  int64_t x_stride;
  int n, n_in, k_tiles;
  int split;              // warps that share a tile
  bool y_f32, accumulate;
  int act;
};

// One lane's share of a tile: rows g and g + 8.
template <Layout kLayout>
struct Share;

template <>
struct Share<Layout::kDense> {
  uint4 low[4], high[4];  // 8 columns of each 32
  __device__ void load(const PackedWeight& w, int tile, int k_tile, int g, int t) {
    const half* rows = static_cast<const half*>(w.data);
    const int64_t row0 = min(int64_t{tile} * kTileRows + g, w.n_out - 1), row1 = min(row0 + 8, w.n_out - 1);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int64_t k = int64_t{k_tile} * kTileCols + 32 * c + 8 * t;
      const bool in = k < w.n_in;
      low[c] = in ? load_stream(rows + row0 * w.n_in + k) : uint4{};
      high[c] = in ? load_stream(rows + row1 * w.n_in + k) : uint4{};
    }
  }
};

struct Scales {
  uint4 low, high;  // up to 2 x (scale, minimum), as the bytes lie
  __device__ void load(const PackedWeight& w, int64_t tile, int g, int t) {
    const int bytes = (w.group16 ? 2 : 1) * (w.has_min ? 4 : 2);
    const char* unit = static_cast<const char*>(w.scales) + (tile * kTileUnits + g * 4 + t) * bytes;
    low = read(unit, bytes);
    high = read(unit + 32 * bytes, bytes);
  }
  static __device__ uint4 read(const char* p, int bytes) {
    if (bytes == 2) return {*reinterpret_cast<const uint16_t*>(p), 0, 0, 0};
    if (bytes == 4) return {*reinterpret_cast<const uint32_t*>(p), 0, 0, 0};
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    return {v.x, v.y, 0, 0};
  }
};

template <>
struct Share<Layout::kCodes4> {
  uint4 low, high;
  Scales scales;
  __device__ void load(const PackedWeight& w, int row_tile, int k_tile, int g, int t) {
    const int64_t tile = row_tile * w.k_tiles + k_tile;
    const char* unit = static_cast<const char*>(w.data) + (tile * kTileUnits + g * 4 + t) * 16;
    low = load_stream(unit);
    high = load_stream(unit + 32 * 16);
    scales.load(w, tile, g, t);
  }
};
template <>
struct Share<Layout::kCodebook4> : Share<Layout::kCodes4> {};

template <>
struct Share<Layout::kCodes8> {
  uint4 low[2], high[2];
  Scales scales;
  __device__ void load(const PackedWeight& w, int row_tile, int k_tile, int g, int t) {
    const int64_t tile = row_tile * w.k_tiles + k_tile;
    const char* unit = static_cast<const char*>(w.data) + (tile * 2 * kTileUnits + g * 4 + t) * 16;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      low[h] = load_stream(unit + h * kTileUnits * 16);
      high[h] = load_stream(unit + (h * kTileUnits + 32) * 16);
    }
    scales.load(w, tile, g, t);
  }
};

// Scale and minimum, doubled, of one half (16 columns) of a unit.
struct Affine {
  half2 scale, min;
};

__device__ __forceinline__ Affine affine_of(const uint4& fields, const PackedWeight& w, int h) {
  const uint32_t word = w.has_min ? (w.group16 && h ? fields.y : fields.x) : (w.group16 && h ? fields.x >> 16 : fields.x);
  const uint32_t scale = __byte_perm(word, 0, 0x1010), min = w.has_min ? __byte_perm(word, 0, 0x3232) : 0u;
  return {*reinterpret_cast<const half2*>(&scale), *reinterpret_cast<const half2*>(&min)};
}

__device__ __forceinline__ half2 half2_of(uint32_t bits) { return *reinterpret_cast<half2*>(&bits); }

// 8 codes to 4 pairs of weights. 0x6400 is 1024 in f16, whose last bits then hold a code.
template <Layout kLayout>
__device__ __forceinline__ void decode8(uint32_t (&pairs)[4], uint32_t word0, uint32_t word1, half2 offset, const Affine& a, const uint32_t* table) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    half2 level;
    if constexpr (kLayout == Layout::kCodebook4) {
      level = half2_of(table[word0 >> (8 * j) & 255]);
    } else if constexpr (kLayout == Layout::kCodes4) {
      level = __hsub2(half2_of((word0 >> (4 * j) & 0x000F000Fu) | 0x64006400u), offset);
    } else {
      level = __hsub2(half2_of(__byte_perm(j < 2 ? word0 : word1, 0x64646464u, j % 2 ? 0x4342 : 0x4140)), offset);
    }
    pairs[j] = bits_of(__hfma2(level, a.scale, a.min));
  }
}

template <int kTokenTiles>
__device__ __forceinline__ void multiply8(float (&acc)[kTokenTiles][4], const uint32_t (&low)[4], const uint32_t (&high)[4],
                                          const uint4 (&x)[kTokenTiles]) {
#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
    mma(acc[i], low[0], high[0], low[1], high[1], x[i].x, x[i].y);
    mma(acc[i], low[2], high[2], low[3], high[3], x[i].z, x[i].w);
  }
}

template <int kTokenTiles>
__device__ __forceinline__ void load_x(uint4 (&x)[kTokenTiles], const Params& p, int k, int g) {
#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
    const int token = 8 * i + g;
    x[i] = token < p.n && k < p.n_in ? *reinterpret_cast<const uint4*>(p.x + token * p.x_stride + k) : uint4{};
  }
}

template <int kTokenTiles>
__device__ __forceinline__ void multiply(float (&acc)[kTokenTiles][4], const Share<Layout::kDense>& s, const PackedWeight&, const Params& p,
                                         int k_tile, int g, int t, const uint32_t*) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    uint4 x[kTokenTiles];
    load_x(x, p, k_tile * kTileCols + 32 * c + 8 * t, g);
    multiply8(acc, {s.low[c].x, s.low[c].y, s.low[c].z, s.low[c].w}, {s.high[c].x, s.high[c].y, s.high[c].z, s.high[c].w}, x);
  }
}

template <int kTokenTiles, Layout kLayout>
__device__ __forceinline__ void multiply(float (&acc)[kTokenTiles][4], const Share<kLayout>& s, const PackedWeight& w, const Params& p,
                                         int k_tile, int g, int t, const uint32_t* table) {
  const half2 offset = __half2half2(__int2half_rn(1024 + w.zero));
#pragma unroll
  for (int c = 0; c < 4; ++c) {  // 8 columns
    uint4 x[kTokenTiles];
    load_x(x, p, k_tile * kTileCols + 32 * t + 8 * c, g);
    uint32_t words[4];
    if constexpr (kLayout == Layout::kCodes8) {
      const uint4 &l = s.low[c / 2], &h = s.high[c / 2];
      words[0] = c % 2 ? l.z : l.x, words[1] = c % 2 ? l.w : l.y, words[2] = c % 2 ? h.z : h.x, words[3] = c % 2 ? h.w : h.y;
    } else {
      words[0] = c == 0 ? s.low.x : c == 1 ? s.low.y : c == 2 ? s.low.z : s.low.w;
      words[2] = c == 0 ? s.high.x : c == 1 ? s.high.y : c == 2 ? s.high.z : s.high.w;
      words[1] = words[3] = 0;
    }
    uint32_t low[4], high[4];
    decode8<kLayout>(low, words[0], words[1], offset, affine_of(s.scales.low, w, c / 2), table);
    decode8<kLayout>(high, words[2], words[3], offset, affine_of(s.scales.high, w, c / 2), table);
    multiply8(acc, low, high, x);
  }
}

// All pairs of codebook entries, so that one look-up gives two weights.
__device__ void fill_table(uint32_t* table, const PackedWeight& w) {
  const int i = threadIdx.x;
  const half low = __int2half_rn(quant::codebook_entry(w.codebook_low, w.codebook_high, i & 15));
  const half high = __int2half_rn(quant::codebook_entry(w.codebook_low, w.codebook_high, i >> 4));
  table[i] = bits_of(__halves2half2(low, high));
}

// Adds up the warps of a tile and writes its [16 rows, 8 * kTokenTiles tokens].
template <int kTokenTiles, int kGates>
__device__ void write_tile(const Params& p, const float* sums, int local, int tile) {
  const Job* job = p.jobs;
  if constexpr (kGates == 1) {
    for (int i = 1; i < p.n_jobs; ++i)
      if (tile >= p.jobs[i].first_tile) job = &p.jobs[i];
  }
  constexpr int kOutputs = kTileRows * 8 * kTokenTiles;
  for (int o = threadIdx.x % (p.split * 32); o < kOutputs; o += p.split * 32) {
    const int token = o / kTileRows;
    const int64_t row = int64_t{tile - job->first_tile} * kTileRows + o % kTileRows;
    if (token >= p.n || row >= job->w.n_out) continue;
    float total[kGates];
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
      total[j] = 0;
      for (int part = 0; part < p.split; ++part) total[j] += sums[((local * p.split + part) * kGates + j) * kOutputs + o];
      total[j] = total[j] * job[j].w.factor + (job[j].bias ? job[j].bias[row] : 0.0f);
    }
    const float value = kGates == 2 ? activate(total[0], p.act) * total[kGates - 1] : total[0];
    const int64_t at = token * job->y_stride + row;
    if (p.y_f32) {
      float* y = static_cast<float*>(job->y) + at;
      *y = p.accumulate ? *y + value : value;
    } else {
      half* y = static_cast<half*>(job->y) + at;
      *y = from_float<half>(p.accumulate ? __half2float(*y) + value : value);
    }
  }
}

template <Layout kLayout, int kTokenTiles, int kGates>
__global__ void __launch_bounds__(kWarps * 32) matvec_kernel(const __grid_constant__ Params p) {
  constexpr int kOutputs = kTileRows * 8 * kTokenTiles;
  __shared__ float sums[kWarps * kGates * kOutputs];  // [warp, gate, token, row]
  __shared__ uint32_t table[kLayout == Layout::kCodebook4 ? 256 : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int local = warp / p.split, part = warp % p.split, tile = blockIdx.x * (kWarps / p.split) + local;
  if constexpr (kLayout == Layout::kCodebook4) {
    fill_table(table, p.jobs[0].w);
    __syncthreads();
  }
  float acc[kGates][kTokenTiles][4] = {};
  if (tile < p.n_tiles) {
    const Job* job = p.jobs;
    if constexpr (kGates == 1) {
      for (int i = 1; i < p.n_jobs; ++i)
        if (tile >= p.jobs[i].first_tile) job = &p.jobs[i];
    }
    const int row_tile = tile - job->first_tile;
    Share<kLayout> next[kGates];
#pragma unroll
    for (int j = 0; j < kGates; ++j)
      if (part < p.k_tiles) next[j].load(job[j].w, row_tile, part, g, t);
    for (int k_tile = part; k_tile < p.k_tiles; k_tile += p.split) {
      Share<kLayout> share[kGates];
#pragma unroll
      for (int j = 0; j < kGates; ++j) {
        share[j] = next[j];
        if (k_tile + p.split < p.k_tiles) next[j].load(job[j].w, row_tile, k_tile + p.split, g, t);
      }
#pragma unroll
      for (int j = 0; j < kGates; ++j) multiply(acc[j], share[j], job[j].w, p, k_tile, g, t, table);
    }
  }
#pragma unroll
  for (int j = 0; j < kGates; ++j) {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      float* out = sums + (warp * kGates + j) * kOutputs + (8 * i + 2 * t) * kTileRows + g;
      out[0] = acc[j][i][0], out[kTileRows] = acc[j][i][1], out[8] = acc[j][i][2], out[kTileRows + 8] = acc[j][i][3];
    }
  }
  __syncthreads();
  if (tile < p.n_tiles) write_tile<kTokenTiles, kGates>(p, sums, local, tile);
}

template <Layout kLayout>
void launch(const Params& p, bool gated, unsigned n_blocks, cudaStream_t stream) {
  const auto start = [&](auto kernel) { kernel<<<n_blocks, kWarps * 32, 0, stream>>>(p); };
  if (gated) {
    p.n <= 8 ? start(matvec_kernel<kLayout, 1, 2>) : start(matvec_kernel<kLayout, 2, 2>);
  } else {
    p.n <= 8 ? start(matvec_kernel<kLayout, 1, 1>) : start(matvec_kernel<kLayout, 2, 1>);
  }
}

}  // namespace

bool can_matvec(const PackedWeight& w) {
  return !w.f32 && (w.layout != Layout::kDense || (w.n_in % 8 == 0 && reinterpret_cast<uintptr_t>(w.data) % 16 == 0));
}

void matvec(const Matvec& m, cudaStream_t stream) {
  CHECK(m.x.dtype == DType::kF16 && m.x.rows <= kMatvecRows);
  CHECK(m.x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.x.data) % 16 == 0);
  const bool gated = m.gate >= 0;
  Params p{};
  int n_tiles = 0;
  for (int i = 0; i < m.n_jobs; ++i) {
    const PackedWeight& w = *m.jobs[i].w;
    const Tensor& y = m.y[gated ? 0 : i];
    CHECK(w.layout == m.jobs[0].w->layout && w.codebook_low == m.jobs[0].w->codebook_low && y.dtype == m.y[0].dtype);
    p.jobs[i] = {w, m.jobs[i].bias, y.data, y.stride, gated ? 0 : n_tiles};
    n_tiles += static_cast<int>((w.n_out + kTileRows - 1) / kTileRows);
  }
  p.n_jobs = m.n_jobs;
  p.n_tiles = gated ? n_tiles / 2 : n_tiles;
  p.x = static_cast<const half*>(m.x.data);
  p.x_stride = m.x.stride;
  p.n = static_cast<int>(m.x.rows);
  p.n_in = static_cast<int>(m.x.cols);
  p.k_tiles = (p.n_in + kTileCols - 1) / kTileCols;
  p.y_f32 = m.y[0].dtype == DType::kF32;
  p.accumulate = m.accumulate;
  p.act = m.gate;
  p.split = kWarps;
  while (p.split > 1 && (p.n_tiles * p.split > 8192 || p.split > p.k_tiles)) p.split /= 2;
  const unsigned n_blocks = blocks_for(p.n_tiles, kWarps / p.split);
  switch (m.jobs[0].w->layout) {
    case Layout::kDense: return launch<Layout::kDense>(p, gated, n_blocks, stream);
    case Layout::kCodes4: return launch<Layout::kCodes4>(p, gated, n_blocks, stream);
    case Layout::kCodebook4: return launch<Layout::kCodebook4>(p, gated, n_blocks, stream);
    case Layout::kCodes8: return launch<Layout::kCodes8>(p, gated, n_blocks, stream);
  }
}

}  // namespace ingot::cuda

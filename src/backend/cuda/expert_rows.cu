// Products of few rows, each with the matrix of its own expert: what one sequence decodes, or a few. A block takes 16 outputs of a row
// (dense weights: 8), or of a whole sum of rows with their weights, so that the down projection of a token's experts and what they
// add to the residual stream is one launch. Warps share the columns, and each reads ahead. Every row reads its weights for itself:
// where many rows meet at an expert, expert_tiles.cu is for them.
#include <algorithm>

#include "backend/cuda/device.cuh"
#include "backend/cuda/experts.h"
#include "backend/cuda/matvec_step.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/unpack.cuh"

namespace ingot::cuda {

using namespace matvec_step;

namespace {

constexpr int kMostWarps = 16, kFewestWarps = 8;  // the table of a codebook is filled by 256 threads
constexpr int kMostTerms = 32;                    // a lane knows each
constexpr size_t kMostInput = 96 << 10;           // bytes of activations in shared memory
constexpr int kDenseWarps = 8, kAhead = 8;        // loads of a lane
constexpr int kChunk = 32 * 8;                    // elements of a load of a warp

struct Params {
  PackedWeight w[2];
  const float* bias[2];
  const half* x;
  int64_t x_stride, x_rows, n_rows;
  const int32_t* ids;
  const float* weights;
  int n_terms, n_in, n_steps;  // steps: of a row
  void* y;
  int64_t y_stride;
  bool y_f32;
  int act;
};

// What a lane knows of term `lane`: its expert and its weight.
struct Term {
  int expert = 0;
  float weight = 1.0f;

  __device__ Term(const Params& p, int64_t first_row, int lane) {
    if (lane >= p.n_terms) return;
    expert = p.ids[first_row + lane];
    if (p.weights != nullptr) weight = p.weights[first_row + lane];
  }
};

__device__ __forceinline__ const half* input_of(const Params& p, int64_t row) { return p.x + row * p.x_rows / p.n_rows * p.x_stride; }

// Output `row` of sum `target`. Called by whole warps.
template <int kGates>
__device__ __forceinline__ void put(const Params& p, int64_t target, int64_t row, const float (&sums)[kGates], bool writes, const Term& term) {
  float total[kGates];
#pragma unroll
  for (int j = 0; j < kGates; ++j) {
    total[j] = sums[j];
    for (int k = 0; p.bias[j] != nullptr && k < p.n_terms; ++k) {
      const int64_t expert = __shfl_sync(0xFFFFFFFFu, term.expert, k);
      const float weight = __shfl_sync(0xFFFFFFFFu, term.weight, k);
      if (writes) total[j] += weight * p.bias[j][expert * p.w[j].n_out + row];
    }
  }
  if (!writes) return;
  const float value = kGates == 2 ? act_mul(total[0], total[kGates - 1], p.act) : total[0];
  const int64_t at = target * p.y_stride + row;
  if (p.y_f32) {
    float* y = static_cast<float*>(p.y) + at;
    *y = p.weights != nullptr ? *y + value : value;
  } else {
    static_cast<half*>(p.y)[at] = from_float<half>(value);
  }
}

// The stream of one warp: copies run ahead of their use by all but one of the ring's slots.
template <class K, int kGates>
struct Stream {
  const Params& p;
  const Term& term;
  const int lane, n_items, n_warps;
  const int64_t tile;
  uint32_t slot;
  const uint32_t end;
  int item, gate = 0;

  __device__ Stream(const Params& params, const Term& term_of, const char* ring, int lane_of, int warp, int warps, int64_t tile_of)
      : p(params), term(term_of), lane(lane_of), n_items(p.n_terms * p.n_steps), n_warps(warps), tile(tile_of), slot(shared_address(ring)),
        end(slot + K::kSlots * K::kSlotBytes), item(warp) {}

  __device__ __forceinline__ void copy_next() {
    if (item < n_items) {
      const int k = item / p.n_steps, step = item - k * p.n_steps;
      const int64_t expert = __shfl_sync(0xFFFFFFFFu, term.expert, k);
      const PackedWeight& w = p.w[gate];
      const int64_t place = tile * w.k_tiles + step;
      const char* codes = static_cast<const char*>(w.data) + expert * w.expert_bytes;
      const char* scales = static_cast<const char*>(w.scales) + expert * w.expert_scale_bytes;
      const From from{codes + place * (512 * K::kPieces) + 16 * lane, scales + place * (32 * K::kScaleBytes) + K::kScaleBytes * lane};
      copy_step<K>(slot, from, lane);
    }
    end_copies();
    if (++gate == kGates) gate = 0, item += n_warps;
    slot = slot + K::kSlotBytes == end ? end - K::kSlots * K::kSlotBytes : slot + K::kSlotBytes;
  }
};

// Activations as matvec.cu has them: of each 32 columns lane t's 8 lie together; zeros up to whole steps.
__device__ __forceinline__ void arrange(half* to, const Params& p, int64_t first_row) {
  const int per_row = p.n_steps * (kTileCols / 4), n = p.n_terms * per_row;
  for (int i = threadIdx.x; i < n; i += static_cast<int>(blockDim.x)) {
    const int term = i / per_row, k = 4 * (i - term * per_row);
    const uint2 v = k < p.n_in ? *reinterpret_cast<const uint2*>(input_of(p, first_row + term) + k) : uint2{};
    *reinterpret_cast<uint2*>(to + term * p.n_steps * kTileCols + k / 32 * 32 + k % 16 * 2 + k % 32 / 16 * 4) = v;
  }
}

template <class K, int kGates>
__global__ void __launch_bounds__(32 * kMostWarps) codes_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char shared[];  // a ring for each warp, then the activations
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  __shared__ float sums[kMostWarps][kGates][kTileRows];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = static_cast<int>(blockDim.x) / 32;
  const int64_t target = blockIdx.y, first_row = target * p.n_terms;
  let_next_start();
  if constexpr (K::kLayout == Layout::kCodebook4) fill_table(table, p.w[0]);
  wait_for_previous();
  const Term term(p, first_row, lane);
  char* ring = shared + warp * (K::kSlots * K::kSlotBytes);
  half* x = reinterpret_cast<half*>(shared + n_warps * (K::kSlots * K::kSlotBytes));
  Stream<K, kGates> stream(p, term, ring, lane, warp, n_warps, blockIdx.x);
  for (int s = 0; s < K::kSlots - 1; ++s) stream.copy_next();
  arrange(x, p, first_row);
  __syncthreads();

  const uint32_t constant = (K::kMin ? 1u : 0x8000u | static_cast<uint32_t>(p.w[0].zero)) * 0x10001u;
  float acc[kGates][4] = {};
  int slot = 0;
  for (int item = warp; item < p.n_terms * p.n_steps; item += n_warps) {
    const float weight = __shfl_sync(0xFFFFFFFFu, term.weight, item / p.n_steps);
    const half* const at[1] = {x + item * kTileCols + 8 * (lane % 4)};
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
      await_copies<K::kSlots - 2>();
      __syncwarp();  // scales are copied by other lanes than use them
      stream.copy_next();
      float part[1][4] = {};
      multiply<K, 1>(part, ring + slot, at, lane, constant, table);
#pragma unroll
      for (int i = 0; i < 4; i += 2) acc[j][i] += weight * part[0][i];
      slot = slot + K::kSlotBytes == K::kSlots * K::kSlotBytes ? 0 : slot + K::kSlotBytes;
    }
  }
#pragma unroll
  for (int j = 0; j < kGates; ++j)  // all columns of the tensor core's product are this row; lane t = 0 has the first
    if (lane % 4 == 0) sums[warp][j][lane / 4] = acc[j][0], sums[warp][j][lane / 4 + 8] = acc[j][2];
  __syncthreads();
  if (warp > 0) return;
  float total[kGates] = {};
#pragma unroll
  for (int j = 0; j < kGates; ++j) {
    for (int w = 0; w < n_warps; ++w) total[j] += sums[w][j][lane % kTileRows];
    total[j] *= p.w[j].factor * 0x1p24f;
  }
  const int64_t row = int64_t{blockIdx.x} * kTileRows + lane;
  put<kGates>(p, target, row, total, lane < kTileRows && row < p.w[0].n_out, term);
}

// A warp an output. n_steps counts chunks.
template <int kGates>
__global__ void __launch_bounds__(32 * kDenseWarps) dense_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) half x[];  // [n_terms, n_in]
  constexpr int kBatch = kAhead / kGates;
  const int lane = threadIdx.x % 32, n_items = p.n_terms * p.n_steps;
  const int64_t target = blockIdx.y, first_row = target * p.n_terms, out = int64_t{blockIdx.x} * kDenseWarps + threadIdx.x / 32;
  const int64_t row = min(out, p.w[0].n_out - 1);
  start_dependent();
  const Term term(p, first_row, lane);
  uint4 v[kBatch][kGates];
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int item = first + j, k = min(item / p.n_steps, p.n_terms - 1), column = (item - k * p.n_steps) * kChunk + 8 * lane;
      const int64_t expert = __shfl_sync(0xFFFFFFFFu, term.expert, k);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const half* w = reinterpret_cast<const half*>(static_cast<const char*>(p.w[g].data) + expert * p.w[g].expert_bytes) + row * p.n_in;
        v[j][g] = item < n_items && column < p.n_in ? load_stream(w + column) : uint4{};
      }
    }
  };
  load(0);
  for (int i = 8 * static_cast<int>(threadIdx.x); i < p.n_terms * p.n_in; i += 8 * 32 * kDenseWarps) {
    const int k = i / p.n_in;
    *reinterpret_cast<uint4*>(x + i) = *reinterpret_cast<const uint4*>(input_of(p, first_row + k) + i - k * p.n_in);
  }
  __syncthreads();
  float sums[kGates] = {};
  for (int first = 0; first < n_items; first += kBatch) {
    if (first > 0) load(first);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int item = first + j, k = min(item / p.n_steps, p.n_terms - 1), column = (item - k * p.n_steps) * kChunk + 8 * lane;
      const float weight = __shfl_sync(0xFFFFFFFFu, term.weight, k);
      if (item >= n_items || column >= p.n_in) continue;
      const uint4 in = *reinterpret_cast<const uint4*>(x + k * p.n_in + column);
#pragma unroll
      for (int g = 0; g < kGates; ++g) sums[g] += weight * dot8(v[j][g], in, 0.0f);
    }
  }
#pragma unroll
  for (int g = 0; g < kGates; ++g) sums[g] = warp_sum(sums[g]);
  put<kGates>(p, target, row, sums, lane == 0 && out < p.w[0].n_out, term);
}

// Any format, size and place: a warp an output of a row.
template <class S, class Y>
__global__ void plain_kernel(const __grid_constant__ Params p, const S* x) {
  start_dependent();
  const int lane = threadIdx.x % 32;
  const int64_t i = blockIdx.x, out = int64_t{blockIdx.y} * kDenseWarps + threadIdx.x / 32, expert = p.ids[i];
  const PackedWeight& w = p.w[0];
  if (out >= w.n_out) return;
  const S* in = x + i * p.x_rows / p.n_rows * p.x_stride;
  float sum = 0;
  if (w.layout == Layout::kDense) {
    const S* row = static_cast<const S*>(w.data) + (expert * w.n_out + out) * w.n_in;
    for (int64_t k = lane; k < w.n_in; k += 32) sum += to_float(in[k]) * to_float(row[k]);
  } else {
    const int64_t row = expert * ((w.n_out + kTileRows - 1) / kTileRows * kTileRows) + out;
    for (int64_t k = lane; k < w.n_in / 8; k += 32) {
      float values[8];
      decode8<S>(w, row, k, values);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += to_float(in[8 * k + j]) * values[j];
    }
  }
  sum = warp_sum(sum) * w.factor;
  if (lane == 0) static_cast<Y*>(p.y)[i * p.y_stride + out] = from_float<Y>(sum + (p.bias[0] ? p.bias[0][expert * w.n_out + out] : 0.0f));
}

Params params_of(const ExpertMatmul& m) {
  Params p{};
  p.n_terms = m.n_terms;
  for (int j = 0; j < (m.gate >= 0 ? 2 : 1); ++j) p.w[j] = *m.w[j], p.bias[j] = m.bias[j];
  p.x = static_cast<const half*>(m.x.data);
  p.x_stride = m.x.stride, p.x_rows = m.x.rows, p.n_rows = m.n_rows;
  p.ids = m.ids, p.weights = m.weights;
  p.n_in = static_cast<int>(m.x.cols);
  p.y = m.y.data, p.y_stride = m.y.stride, p.y_f32 = m.y.dtype == DType::kF32;
  p.act = m.gate;
  return p;
}

size_t input_bytes(const ExpertMatmul& m) {
  return static_cast<size_t>(m.n_terms) * static_cast<size_t>((m.x.cols + kTileCols - 1) / kTileCols * kTileCols) * sizeof(half);
}

template <class K, int kGates>
void start(Params p, size_t input, unsigned n_sums, cudaStream_t stream) {
  p.n_steps = (p.n_in + kTileCols - 1) / kTileCols;
  constexpr size_t kRing = K::kSlots * K::kSlotBytes;
  const auto n_blocks = blocks_for(p.w[0].n_out, kTileRows);
  const bool few = static_cast<int>(n_blocks * n_sums) <= 2 * n_multiprocessors() && p.n_terms * p.n_steps * kGates > 2 * kFewestWarps;
  const int n_warps = few && kMostWarps * kRing + input + 4096 <= most_shared() ? kMostWarps : kFewestWarps;
  static const cudaError_t set = cudaFuncSetAttribute(codes_kernel<K, kGates>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(most_shared() - 4096));
  check(set, "cudaFuncSetAttribute");
  launch(codes_kernel<K, kGates>, dim3(n_blocks, n_sums), 32 * n_warps, static_cast<size_t>(n_warps) * kRing + input, stream, p);
}

template <Layout kLayout, bool kMin, bool kGroup16>
void start_codes(const Params& p, size_t input, unsigned n_sums, cudaStream_t stream) {
  using K = Kind<kLayout, kMin, kGroup16>;
  p.act >= 0 ? start<K, 2>(p, input, n_sums, stream) : start<K, 1>(p, input, n_sums, stream);
}

template <Layout kLayout>
void start_layout(const Params& p, size_t input, unsigned n_sums, cudaStream_t stream) {
  const PackedWeight& w = p.w[0];
  if (w.has_min && w.group16) return start_codes<kLayout, true, true>(p, input, n_sums, stream);
  if (w.has_min) return start_codes<kLayout, true, false>(p, input, n_sums, stream);
  if (w.group16) return start_codes<kLayout, false, true>(p, input, n_sums, stream);
  start_codes<kLayout, false, false>(p, input, n_sums, stream);
}

template <int kGates>
void start_dense(Params p, unsigned n_sums, cudaStream_t stream) {
  p.n_steps = (p.n_in + kChunk - 1) / kChunk;
  static const cudaError_t set = cudaFuncSetAttribute(dense_kernel<kGates>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostInput);
  check(set, "cudaFuncSetAttribute");
  launch(dense_kernel<kGates>, dim3(blocks_for(p.w[0].n_out, kDenseWarps), n_sums), 32 * kDenseWarps,
         static_cast<size_t>(p.n_terms) * static_cast<size_t>(p.n_in) * sizeof(half), stream, p);
}

}  // namespace

bool can_expert_matmul(const PackedWeight& w) { return !w.f32 && (w.layout != Layout::kDense || w.n_in % 8 == 0); }

bool can_expert_rows(const ExpertMatmul& m) {
  return m.n_terms <= kMostTerms && input_bytes(m) <= kMostInput && m.n_rows / m.n_terms <= 65535;
}

void expert_rows(const ExpertMatmul& m, cudaStream_t stream) {
  CHECK(m.x.dtype == DType::kF16 && m.x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.x.data) % 16 == 0);
  CHECK(m.weights == nullptr || m.y.dtype == DType::kF32);
  const Params p = params_of(m);
  const auto n_sums = static_cast<unsigned>(m.n_rows / m.n_terms);
  const size_t input = input_bytes(m);
  switch (m.w[0]->layout) {
    case Layout::kDense: return m.gate >= 0 ? start_dense<2>(p, n_sums, stream) : start_dense<1>(p, n_sums, stream);
    case Layout::kCodebook4:
      CHECK(!m.w[0]->has_min);
      if (m.w[0]->group16) return start_codes<Layout::kCodebook4, false, true>(p, input, n_sums, stream);
      return start_codes<Layout::kCodebook4, false, false>(p, input, n_sums, stream);
    case Layout::kCodes4: return start_layout<Layout::kCodes4>(p, input, n_sums, stream);
    case Layout::kCodes8: return start_layout<Layout::kCodes8>(p, input, n_sums, stream);
  }
}

void plain_expert_rows(const ExpertMatmul& m, cudaStream_t stream) {
  CHECK(m.gate < 0 && m.weights == nullptr && m.x.dtype == (m.w[0]->f32 ? DType::kF32 : DType::kF16));
  const Params p = params_of(m);
  with_type(m.x.dtype, [&](auto* px) {
    with_type(m.y.dtype, [&](auto* py) {
      using S = std::remove_pointer_t<decltype(px)>;
      using Y = std::remove_pointer_t<decltype(py)>;
      launch(plain_kernel<S, Y>, dim3(static_cast<unsigned>(m.n_rows), blocks_for(m.w[0]->n_out, kDenseWarps)), 32 * kDenseWarps, 0, stream,
             p, static_cast<const S*>(m.x.data));
    });
  });
}

}  // namespace ingot::cuda

// The kernel of dot_rows.cu: the product of one row of activations with dense weights. A warp processes one or two rows
// of weights at a time and reads each row in order, 512 bytes per load. It loads the next batch while it uses the
// current batch, also across the ends of rows, and loads the first batch before the previous kernel ends. The
// activations are in shared memory.
#pragma once
#include "backend/cuda/matmul/matvec_tiles.cuh"
#include "backend/cuda/matmul/qkv_end.h"

namespace ingot::cuda::dot_rows_kernel {

using matvec_tiles::pick;
using matvec_tiles::Shape;
using matvec_tiles::shape_of;

constexpr int kWarps = 8;
constexpr int kAhead = 8;       // loads in a batch
constexpr int kChunk = 32 * 8;  // elements in one load of a warp

struct Job {
  const half* w;
  const float* bias;
  void* y;
};

struct Params : Shape {
  Job jobs[3];
  const half* x;
  RowNorm norm;  // x is the result of this norm, if there is one
  QkvEnd end;    // with ends_qkv: the jobs are q, k and v
};

// Elements of a head that one lane finishes together: pair i of rope, or neighbours behind rope's elements.
struct HeadPair {
  int head, pair, first, second;  // first, second: in the head

  __device__ HeadPair(const QkvEnd& end, int64_t row)
      : head(static_cast<int>(row) / end.head_dim), pair(static_cast<int>(row) % end.head_dim / 2) {
    const bool split = end.split && pair < end.half_dim;
    first = split ? pair : 2 * pair;
    second = split ? pair + end.half_dim : 2 * pair + 1;
  }
};

// Where the token's first head goes in the cache.
struct CachedToken {
  half *keys = nullptr, *values = nullptr;

  __device__ void find(const QkvEnd& end) {
    const int position = *end.position;
    const int64_t at =
        end.block_table[position / end.block_size] * end.block_stride + position % end.block_size * end.head_dim;
    keys = static_cast<half*>(end.keys) + at, values = static_cast<half*>(end.values) + at;
  }
};

// A task: kRows neighbouring rows of a job, or with ends_qkv the rows of a HeadPair; with kGated, the same row of the
// first two jobs. Tasks are the tiles of the shape.
template <int kRows, bool kGated, Shape kShape>
struct Task {
  int job = 0;
  int64_t row;

  __device__ Task(const Shape& s, int task) {
    if constexpr (kGated) {
      row = task;
    } else {
      job = matvec_tiles::job_of(s, task);
      row = int64_t{task - pick(s.first_tile, job)} * kRows;
    }
  }
  __device__ const Job& job_of(const Params& p, int r) const { return p.jobs[kGated ? r : job]; }
  // The last rows of a task may not exist. The last existing row is then computed in their place, but not written.
  __device__ int64_t row_of(const Params& p, const Shape& s, int r) const {
    if (!kGated && s.ends_qkv) {
      const HeadPair at(p.end, row);
      return int64_t{at.head} * p.end.head_dim + (r == 0 ? at.first : at.second);
    }
    return kGated ? row : min(row + r, int64_t{pick(s.n_out, job)} - 1);
  }
};

template <int kRows>
struct Batch {
  static constexpr int kLoads = kAhead / kRows;  // of one row
  template <Shape kShape>
  static constexpr bool kWhole = kShape.n_in > 0 &&
                                 kShape.n_in % (kLoads * kChunk) == 0;  // known at compile time: a row is whole batches
  uint4 w[kRows][kLoads];
};

template <int kRows, bool kGated, Shape kShape>
struct Stream {
  const Params& p;
  const int lane, stride;
  int task, chunk = 0;  // chunk: the first of the next batch
  const half* w[kRows];

  __device__ Stream(const Params& params, int lane_of, int first, int stride_of)
      : p(params), lane(lane_of), stride(stride_of), task(first) {
    aim();
  }
  __device__ __forceinline__ void aim() {
    const Shape s = shape_of<kShape>(p);
    if (task >= s.n_tiles) return;
    const Task<kRows, kGated, kShape> at(s, task);
#pragma unroll
    for (int r = 0; r < kRows; ++r) w[r] = at.job_of(p, r).w + at.row_of(p, s, r) * s.n_in + 8 * lane;
  }
  __device__ __forceinline__ void load(Batch<kRows>& batch) {
    const int n_in = shape_of<kShape>(p).n_in;
    if (task >= shape_of<kShape>(p).n_tiles) return;
#pragma unroll
    for (int i = 0; i < Batch<kRows>::kLoads; ++i) {
      const int column = (chunk + i) * kChunk;
      const bool in = Batch<kRows>::template kWhole<kShape> || column + 8 * lane < n_in;
#pragma unroll
      for (int r = 0; r < kRows; ++r) batch.w[r][i] = in ? load_stream(w[r] + column) : uint4{};
    }
    chunk += Batch<kRows>::kLoads;
    if (chunk * kChunk >= n_in) {
      chunk = 0;
      task += stride;
      aim();
    }
  }
};

__device__ __forceinline__ void put(const Shape& s, const Job& job, int64_t row, float value) {
  if (s.y_f32) {
    float* y = static_cast<float*>(job.y) + row;
    *y = s.accumulate ? *y + value : value;
  } else {
    half* y = static_cast<half*>(job.y) + row;
    *y = from_float<half>(s.accumulate ? __half2float(*y) + value : value);
  }
}

// The sums of a warp.
template <int kRows, bool kGated, Shape kShape>
struct Sums {
  const Params& p;
  const half* x;
  const bool real;  // false: nothing is written
  const int lane, stride;
  const CachedToken cached;  // with ends_qkv
  int task, chunk = 0;
  float sum[kRows] = {};

  __device__ Sums(const Params& params, const half* x_of, bool is_real, int lane_of, int first, int stride_of,
                  CachedToken cached_of)
      : p(params), x(x_of), real(is_real), lane(lane_of), stride(stride_of), cached(cached_of), task(first) {}

  __device__ __forceinline__ void add(const Batch<kRows>& batch) {
    const int n_in = shape_of<kShape>(p).n_in;
#pragma unroll
    for (int i = 0; i < Batch<kRows>::kLoads; ++i) {
      const int column = (chunk + i) * kChunk + 8 * lane;
      if (!Batch<kRows>::template kWhole<kShape> && column >= n_in) break;
      const uint4 v = *reinterpret_cast<const uint4*>(x + column);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r] = dot8(batch.w[r][i], v, sum[r]);
    }
    chunk += Batch<kRows>::kLoads;
    if (chunk * kChunk < n_in) return;
    finish();
    chunk = 0;
    task += stride;
  }
  __device__ __forceinline__ void finish() {
    float total[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      total[r] = warp_sum(sum[r]);
      sum[r] = 0;
    }
    if (lane != 0 || !real) return;
    const Shape s = shape_of<kShape>(p);
    const Task<kRows, kGated, kShape> at(s, task);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float* bias = at.job_of(p, r).bias;
      if (s.has_bias && bias != nullptr) total[r] += bias[at.row_of(p, s, r)];
    }
    if constexpr (kGated) {
      put(s, p.jobs[0], at.row, act_mul(total[0], total[1], s.act));
    } else if (kRows == 2 && s.ends_qkv) {
      end_pair(at, total[0], total[kRows - 1]);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (at.row + r < pick(s.n_out, at.job)) put(s, p.jobs[at.job], at.row + r, total[r]);
    }
  }
  __device__ __forceinline__ void end_pair(const Task<kRows, kGated, kShape>& at, float a, float b) {
    const QkvEnd& end = p.end;
    const HeadPair place(end, at.row);
    if (at.job < 2 && place.pair < end.half_dim) {
      const float c = __ldcg(end.angles + place.pair), s = __ldcg(end.angles + end.half_dim + place.pair), u = a;
      a = u * c - b * s;
      b = b * c + u * s;
    }
    half* head =
        at.job == 0 ? static_cast<half*>(p.jobs[0].y) + int64_t{place.head} * end.head_dim
                    : (at.job == 1 ? cached.keys : cached.values) + int64_t{place.head} * end.block_size * end.head_dim;
    head[place.first] = from_float<half>(a), head[place.second] = from_float<half>(b);
  }
};

template <int kRows, bool kGated, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(16) half shared[];  // [n_in] activations
  __shared__ float reduce[33];
  let_next_start();
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x / 32 * gridDim.x + blockIdx.x);
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  const Shape s = shape_of<kShape>(p);
  Stream<kRows, kGated, kShape> stream(p, lane, first, stride);
  Batch<kRows> even, odd;
  stream.load(even);
  CachedToken cached;
  if (s.ends_qkv) cached.find(p.end);  // the batch was uploaded before the step began
#pragma unroll 1
  for (int pass = s.warms_instruction_cache ? 0 : 1; pass < 2; ++pass) {
    const bool real = pass == 1;
    if (real) wait_for_previous();
    if (s.has_norm) {
      norm_row(
          p.norm, s.n_in, s.n_in, reduce, real, [&](int i, uint2 v) { *reinterpret_cast<uint2*>(shared + 4 * i) = v; },
          kWarps * 32);
    } else {
#pragma unroll 4
      for (int i = threadIdx.x * 8; i < s.n_in; i += kWarps * 32 * 8)
        *reinterpret_cast<uint4*>(shared + i) = __ldcg(reinterpret_cast<const uint4*>(p.x + i));
    }
    __syncthreads();
    Sums<kRows, kGated, kShape> sums(p, shared, real, lane, first, stride, cached);
    while (sums.task < s.n_tiles) {
      if (real) stream.load(odd);
      sums.add(even);
      if (!real || sums.task >= s.n_tiles) break;
      stream.load(even);
      sums.add(odd);
    }
    __syncthreads();
  }
}

}  // namespace ingot::cuda::dot_rows_kernel

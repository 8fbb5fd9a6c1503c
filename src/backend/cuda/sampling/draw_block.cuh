// Steps of a block for one row of logits (draw.cu): read the whole row, gather some logits, and sort and sum the
// gathered logits.
#pragma once
#include <cfloat>
#include <climits>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/sampling/logit_key.cuh"

namespace ingot::cuda {

constexpr int kThreads = 1024;
constexpr int kCandidates = 2 * kThreads;  // most candidates that can be sorted: two for each thread
constexpr int kBins = 2 * kThreads;        // bins of a histogram
constexpr int kNone = INT_MAX;

struct Shared {
  Key keys[kCandidates];  // the candidates
  unsigned counts[kBins];
  double sums[32], sums_to[32];
  float tops[32];
  int ids[32];
  int n, first, last;  // counters and search results, cleared by reset()
  double before;
};

__device__ __forceinline__ void reset(Shared& s) {
  __syncthreads();
  if (threadIdx.x == 0) s.n = 0, s.first = kNone, s.last = -1;
  __syncthreads();
}

struct Row {
  const float* logits;
  const uint32_t* mask;  // null: all tokens are allowed
  int n;
  __device__ __forceinline__ float allowed(float v, int i) const {
    if (mask != nullptr && !(mask[i / 32] >> (i % 32) & 1u)) return -INFINITY;
    return isnan(v) ? -INFINITY : v;
  }
  __device__ __forceinline__ float at(int i) const { return allowed(logits[i], i); }
};

// Eight logits of a thread: two runs of four, the second 4 * kThreads after the first; -infinity past the end.
struct Eight {
  float v[8];
  __device__ static int id(int first, int j) { return first + j / 4 * (4 * kThreads) + j % 4; }
  __device__ __forceinline__ Eight(const Row& row, int first, bool aligned) {
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      const int at = id(first, j);
      if (aligned && at + 3 < row.n) {
        const float4 four = *reinterpret_cast<const float4*>(row.logits + at);
        v[j] = four.x, v[j + 1] = four.y, v[j + 2] = four.z, v[j + 3] = four.w;
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) v[j + k] = at + k < row.n ? row.logits[at + k] : -INFINITY;
      }
    }
  }
};

// Calls f(logits, first id) for the whole row, with the next eight logits in flight.
template <class F>
__device__ __forceinline__ void each_eight(const Row& row, F&& f) {
  const bool aligned = reinterpret_cast<uintptr_t>(row.logits) % 16 == 0;
  int first = 4 * static_cast<int>(threadIdx.x);
  Eight next(row, first, aligned);
  for (; first < row.n; first += 8 * kThreads) {
    Eight eight = next;
    next = Eight(row, first + 8 * kThreads, aligned);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      eight.v[j] = Eight::id(first, j) < row.n ? row.allowed(eight.v[j], Eight::id(first, j)) : -INFINITY;
    f(eight.v, first);
  }
}

// Calls f(logit, id) for all logits above -infinity.
template <class F>
__device__ __forceinline__ void each(const Row& row, F&& f) {
  each_eight(row, [&](const float(&v)[8], int first) {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (v[j] > -INFINITY) f(v[j], Eight::id(first, j));
  });
}

// Unnormalised probability. If the top is infinite, all infinite logits have equal shares.
__device__ __forceinline__ float weight(float v, float top, float inverse_temperature) {
  return v == top ? 1.0f : expf((v - top) * inverse_temperature);
}

__device__ __forceinline__ float logprob_of(float v, float top, double log_total) {
  if (!(v > -INFINITY)) return -INFINITY;
  return static_cast<float>((v == top ? 0.0 : double{v} - top) - log_total);
}

__device__ __forceinline__ double warp_scan(double v) {
#pragma unroll
  for (int i = 1; i < 32; i *= 2) {
    const double other = __shfl_up_sync(0xFFFFFFFFu, v, i);
    if (threadIdx.x % 32 >= i) v += other;
  }
  return v;
}

// The sum of v over the threads up to and including this one. total(s) is the sum over all threads, until the next
// scan.
__device__ __forceinline__ double scan(double v, Shared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const double to = warp_scan(v);
  __syncthreads();
  if (lane == 31) s.sums[warp] = to;
  __syncthreads();
  if (warp == 0) s.sums_to[lane] = warp_scan(s.sums[lane]);
  __syncthreads();
  return to + (warp > 0 ? s.sums_to[warp - 1] : 0.0);
}
__device__ __forceinline__ double total(const Shared& s) { return s.sums_to[31]; }

struct Best {
  float top;        // the largest logit
  int top_id;       // the lowest id that has it
  double total;     // of all weights at temperature 1
  float of_thread;  // the largest logit that this thread saw
};

__device__ inline Best look_at(const Row& row, Shared& s) {
  float top = -INFINITY, sum = 0;
  int id = kNone;
  each_eight(row, [&](const float(&v)[8], int first) {
    float max_of_8 = v[0];
#pragma unroll
    for (int j = 1; j < 8; ++j) max_of_8 = fmaxf(max_of_8, v[j]);
    if (max_of_8 > top) {
      sum *= __expf(top - max_of_8);
      top = max_of_8;
#pragma unroll
      for (int j = 7; j >= 0; --j)
        if (v[j] == max_of_8) id = Eight::id(first, j);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[j] == top ? 1.0f : __expf(v[j] - top);
  });
  Best best{top, id, 0, top};
#pragma unroll
  for (int i = 16; i > 0; i /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, best.top, i);
    const int other_id = __shfl_xor_sync(0xFFFFFFFFu, best.top_id, i);
    if (other > best.top || (other == best.top && other_id < best.top_id)) best.top = other, best.top_id = other_id;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.tops[threadIdx.x / 32] = best.top, s.ids[threadIdx.x / 32] = best.top_id;
  __syncthreads();
  for (int warp = 0; warp < 32; ++warp)
    if (s.tops[warp] > best.top || (s.tops[warp] == best.top && s.ids[warp] < best.top_id))
      best.top = s.tops[warp], best.top_id = s.ids[warp];
  scan(top == -INFINITY ? 0.0 : sum * static_cast<double>(weight(top, best.top, 1.0f)), s);
  best.total = total(s);
  __syncthreads();
  return best;
}

// Puts the keys for which `wanted(logit, id)` is true into s.keys, in any order, and counts them. Calls `wanted` once
// for each logit. If there are more than kCandidates, s.keys is incomplete.
template <class Wanted>
__device__ __forceinline__ int gather(const Row& row, Shared& s, Wanted&& wanted) {
  reset(s);
  each(row, [&](float v, int id) {
    if (!wanted(v, id)) return;
    const int at = atomicAdd(&s.n, 1);
    if (at < kCandidates) s.keys[at] = key_of(v, id);
  });
  __syncthreads();
  return s.n;
}

// Sorts the most likely first: a bitonic sort of the next power of two.
__device__ inline void sort_keys(Shared& s, int n) {
  int padded = 2;
  while (padded < n) padded *= 2;
  for (int i = n + static_cast<int>(threadIdx.x); i < padded; i += kThreads) s.keys[i] = 0;
  for (int size = 2; size <= padded; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      if (const int i = threadIdx.x; i < padded / 2) {
        const int low = 2 * i - (i & (stride - 1)), high = low + stride;
        const Key a = s.keys[low], b = s.keys[high];
        if ((a < b) == ((low & size) == 0)) s.keys[low] = b, s.keys[high] = a;
      }
    }
  }
  __syncthreads();
}

// Returns the k-th largest of the threads' largest logits. At least k logits are not below it. k is at most kThreads.
__device__ inline float kth_of_threads(float of_thread, int k, Shared& s) {
  __syncthreads();
  s.keys[threadIdx.x] = key_of(of_thread, threadIdx.x);
  sort_keys(s, kThreads);
  const float kth = logit_of(s.keys[k - 1]);
  __syncthreads();
  return kth;
}

// Cumulative masses of the n sorted candidates, up to and including candidates 2t and 2t + 1 of thread t.
struct Sums {
  double mass[2], total;
};
__device__ inline Sums sum_sorted(Shared& s, int n, float top) {
  const int i = 2 * static_cast<int>(threadIdx.x);
  const float w0 = i < n ? weight(logit_of(s.keys[i]), top, 1.0f) : 0.0f;
  const float w1 = i + 1 < n ? weight(logit_of(s.keys[i + 1]), top, 1.0f) : 0.0f;
  const double to = scan(double{w0} + w1, s);
  return {{to - w1, to}, total(s)};
}

}  // namespace ingot::cuda

// Ops that work head by head: rotary embeddings, writes to the KV cache, and the rest of qkv after its products.
#include <algorithm>

#include "backend/cuda/attention/cache.cuh"
#include "backend/cuda/matmul/qkv_end.h"

namespace ingot::cuda {
namespace {

__global__ void angles_kernel(float* angles, int64_t stride, const float* inv_freq, int n_freq, float magnitude,
                              const int32_t* axes, DeviceBatch batch) {
  start_dependent();
  float* row = angles + blockIdx.x * stride;
  for (int i = threadIdx.x; i < n_freq; i += blockDim.x) {
    const bool has_axes = axes != nullptr && batch.rope_positions != nullptr;
    const int position =
        has_axes ? batch.rope_positions[axes[i] * batch.axis_stride + blockIdx.x] : batch.positions[blockIdx.x];
    float s, c;
    sincosf(static_cast<float>(position) * inv_freq[i], &s, &c);
    row[i] = c * magnitude;
    row[n_freq + i] = s * magnitude;
  }
}

struct Rope {
  const float* angles;  // null: none
  int64_t stride;
  int half_dim;
  bool split;
};

Rope rope_of(const RopeArgs& a) {
  if (!a.angles) return {nullptr, 0, 0, false};
  return {a.angles.f32(), a.angles.stride, static_cast<int>(a.angles.cols / 2), a.layout == RopeLayout::kHalfSplit};
}

// Rotates pair i of a head in place.
template <class T>
__device__ __forceinline__ void turn(T* head, int i, const Rope& rope, const float* angles) {
  T& first = head[rope.split ? i : 2 * i];
  T& second = head[rope.split ? i + rope.half_dim : 2 * i + 1];
  const float c = angles[i], s = angles[rope.half_dim + i], u = to_float(first), v = to_float(second);
  first = from_float<T>(u * c - v * s);
  second = from_float<T>(v * c + u * s);
}

template <class T>
__global__ void rope_kernel(T* x, int64_t stride, int head_dim, int n_heads, Rope rope) {
  start_dependent();
  const float* angles = rope.angles + blockIdx.x * rope.stride;
  for (int i = threadIdx.x; i < n_heads * rope.half_dim; i += blockDim.x) {
    turn(x + blockIdx.x * stride + i / rope.half_dim * head_dim, i % rope.half_dim, rope, angles);
  }
}

// A warp multiplies each run of `block` elements by the Hadamard matrix of this size, as Backend::hadamard(). A lane
// holds the elements lane + 32 j, and a run begins at a multiple of its size.
template <int n>
__device__ __forceinline__ void hadamard(float (&x)[n], int block, int lane) {
#pragma unroll
  for (int s = 1; s < 32; s *= 2) {
    if (s >= block) break;
#pragma unroll
    for (float& v : x) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, v, s);
      v = (lane & s) != 0 ? other - v : other + v;
    }
  }
#pragma unroll
  for (int s = 1; s < n; s *= 2) {
    if (32 * s >= block) break;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if ((j & s) != 0) continue;
      const float u = x[j], v = x[j | s];
      x[j] = u + v, x[j | s] = u - v;
    }
  }
  const float factor = 1.0f / sqrtf(static_cast<float>(block));
#pragma unroll
  for (float& v : x) v *= factor;
}

// A warp for each 512 columns of a row. The last columns of a row may be fewer.
constexpr int kHadamardColumns = 512;
template <class T>
__global__ void hadamard_kernel(T* x, int64_t stride, int n_columns, int block) {
  start_dependent();
  constexpr int kElements = kHadamardColumns / 32;
  const int first = blockIdx.y * kHadamardColumns, lane = threadIdx.x;
  T* row = x + blockIdx.x * stride;
  float v[kElements];
#pragma unroll
  for (int j = 0; j < kElements; ++j) {
    const int i = first + lane + 32 * j;
    v[j] = i < n_columns ? to_float(row[i]) : 0.0f;
  }
  hadamard(v, block, lane);
#pragma unroll
  for (int j = 0; j < kElements; ++j) {
    const int i = first + lane + 32 * j;
    if (i < n_columns) row[i] = from_float<T>(v[j]);
  }
}

// The cache's row for a token's key (which = 0) or value (1) of one head.
__device__ __forceinline__ int64_t kv_row(const DeviceKv& kv, int layer, const DeviceBatch& batch, int token, int which,
                                          int head) {
  const int position = batch.positions[token], seq = batch.token_seq[token];
  const int64_t block = batch.block_table[int64_t{seq} * *batch.max_blocks + position / kv.block_size];
  return cached_row(kv, layer, block, position, which, head);
}

template <class T, class K, class V>
__global__ void write_kernel(DeviceKv kv, int layer, const T* k, int64_t k_stride, const T* v, int64_t v_stride,
                             DeviceBatch batch) {
  start_dependent();
  const int token = blockIdx.x, head = blockIdx.y;
  const int64_t key = kv_row(kv, layer, batch, token, 0, head), value = kv_row(kv, layer, batch, token, 1, head);
  const auto key_at = [&](int i) { return to_float(k[token * k_stride + head * kv.head_dim + i]); };
  const auto value_at = [&](int i) { return to_float(v[token * v_stride + head * kv.head_dim + i]); };
  static_assert(kIsScaled<K> == kIsScaled<V>);
  if constexpr (kIsScaled<K>) {  // one warp each
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
      store_scaled<K>(rows_of<K, V>(kv, 0), key, kv.head_dim, lane, key_at);
    } else if (!kv.values_are_keys) {
      store_scaled<V>(rows_of<K, V>(kv, 1), value, kv.head_dim, lane, value_at);
    }
  } else {
    for (int i = threadIdx.x; i < kv.head_dim; i += blockDim.x) {
      *cached_at<K>(rows_of<K, V>(kv, 0), key, kv.head_dim, i) = from_float<K>(key_at(i));
      *cached_at<V>(rows_of<K, V>(kv, 1), value, kv.head_dim, i) = from_float<V>(value_at(i));
    }
  }
}

struct Heads {
  void* data;  // [n_tokens, n * head_dim]
  int64_t stride;
  int n;
  const float* bias;
  const float* norm;
  float eps;
  void* to = nullptr;  // of q: [n_tokens, n * head_dim]
  int64_t to_stride = 0;
};

Heads heads_of(const Tensor& x, int n, const Tensor& bias, const NormArgs* norm) {
  const bool normed = norm != nullptr && norm->weight;
  return {
      x.data, x.stride, n, bias ? bias.f32() : nullptr, normed ? norm->weight.f32() : nullptr, normed ? norm->eps : 0};
}

// Two neighbouring elements, which the previous kernel may still write during a warm-up pass: never from the L1 cache.
__device__ __forceinline__ float2 load2(const half* p) {
  return __half22float2(__ldcg(reinterpret_cast<const half2*>(p)));
}
__device__ __forceinline__ float2 load2(const float* p) { return __ldcg(reinterpret_cast<const float2*>(p)); }
__device__ __forceinline__ float2 weight2(const float* p) { return *reinterpret_cast<const float2*>(p); }
template <class T>
__device__ __forceinline__ void store2(T* to, float2 v) {
  struct alignas(2 * sizeof(T)) Two {
    T first, second;
  };
  *reinterpret_cast<Two*>(to) = {from_float<T>(v.x), from_float<T>(v.y)};
}

// Pairs i and i + 1 of a head, i even. A pair has the elements that rope rotates together first, then neighbours among
// the others. If rope splits a head in halves, both first elements are neighbours, and both second elements. Otherwise,
// the elements of each pair are neighbours. In both cases, a lane loads and stores two elements at once.
struct Pairs {
  int first, second;  // where two neighbours begin, twice
  bool transposed;    // the neighbours are of different pairs

  __device__ Pairs(int i, const Rope& rope)
      : first(rope.split && i < rope.half_dim ? i : 2 * i),
        second(rope.split && i < rope.half_dim ? i + rope.half_dim : 2 * i + 2),
        transposed(rope.split && i < rope.half_dim) {}
  // Turns the elements at `first` and at `second` into pairs, and back.
  __device__ __forceinline__ void exchange(float2& a, float2& b) const {
    if (!transposed) return;
    const float y = a.y;
    a.y = b.x, b.x = y;
  }
};

// A warp rotates the queries or keys of a head: [dim].
template <int n>
__device__ __forceinline__ void rotate_staged(float* head, int dim, int block, int lane) {
  float x[n];
#pragma unroll
  for (int j = 0; j < n; ++j) x[j] = lane + 32 * j < dim ? head[lane + 32 * j] : 0.0f;
  hadamard(x, block, lane);
#pragma unroll
  for (int j = 0; j < n; ++j)
    if (lane + 32 * j < dim) head[lane + 32 * j] = x[j];
  __syncwarp();
}

// A warp processes one head of a token after another: q heads, then k, then v. Each lane holds two neighbouring pairs,
// or kFours times two, and for all heads the cosine and sine of each pair.
template <class T, class K, class V, int kFours>
__global__ void __launch_bounds__(256)
    finish_kernel(const __grid_constant__ Heads q, const __grid_constant__ Heads k, const __grid_constant__ Heads v,
                  const __grid_constant__ Rope rope, const __grid_constant__ DeviceKv kv, int layer,
                  const __grid_constant__ DeviceBatch batch, bool warms_instruction_cache) {
  constexpr bool kRotates = std::is_same_v<K, CachedNibbles>;
  // A warp's head before quantization.
  __shared__ float staged[kIsScaled<K> ? 256 / 32 : 1][kIsScaled<K> ? 128 * kFours : 1];
  let_next_start();
  const int lane = threadIdx.x % 32, dim = kv.head_dim, token = blockIdx.x,
            n_warps = static_cast<int>(gridDim.y * blockDim.x / 32);
  const int64_t keys = kv_row(kv, layer, batch, token, 0, 0), values = kv_row(kv, layer, batch, token, 1, 0);
#pragma unroll 1
  for (int pass = warms_instruction_cache ? 0 : 1; pass < 2; ++pass) {
    const bool real = pass == 1;
    if (real) wait_for_previous();
    float2 cosine[kFours], sine[kFours];
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      const int i = 2 * (lane + 32 * j);
      const bool turns = i < rope.half_dim;
      const float* angles = rope.angles + token * rope.stride + i;
      cosine[j] = turns ? load2(angles) : make_float2(1, 1);
      sine[j] = turns ? load2(angles + rope.half_dim) : make_float2(0, 0);
    }
    for (int index = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) / 32; index < q.n + k.n + v.n;
         index += n_warps) {
      const int kind = index < q.n ? 0 : index < q.n + k.n ? 1 : 2;
      const Heads& heads = kind == 0 ? q : kind == 1 ? k : v;
      const int head = index - (kind == 0 ? 0 : kind == 1 ? q.n : q.n + k.n);
      const T* row = static_cast<const T*>(heads.data) + token * heads.stride + int64_t{head} * dim;
      float2 x[kFours][2];  // a pair each
      float squares = 0;
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const int i = 2 * (lane + 32 * j);
        if (x[j][0] = x[j][1] = {}; 2 * i >= dim) continue;
        const Pairs at(i, rope);
        x[j][0] = load2(row + at.first), x[j][1] = load2(row + at.second);
        if (heads.bias) {
          const float2 first = weight2(heads.bias + head * dim + at.first),
                       second = weight2(heads.bias + head * dim + at.second);
          x[j][0].x += first.x, x[j][0].y += first.y, x[j][1].x += second.x, x[j][1].y += second.y;
        }
#pragma unroll
        for (const float2& pair : x[j]) squares += pair.x * pair.x + pair.y * pair.y;
      }
      float inverse = 1.0f;
      if (heads.norm) inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + heads.eps);
      const int64_t cached = (kind == 1 ? keys : values) + int64_t{head} * kv.block_size;
      float* const stage = staged[kIsScaled<K> ? threadIdx.x / 32 : 0];
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const int i = 2 * (lane + 32 * j);
        if (2 * i >= dim) continue;
        const Pairs at(i, rope);
        float2 &a = x[j][0], &b = x[j][1];
        if (heads.norm) {
          const float2 first = weight2(heads.norm + at.first), second = weight2(heads.norm + at.second);
          a.x *= inverse * first.x, a.y *= inverse * first.y, b.x *= inverse * second.x, b.y *= inverse * second.y;
        }
        at.exchange(a, b);
        if (kind < 2) {
          a = {a.x * cosine[j].x - a.y * sine[j].x, a.y * cosine[j].x + a.x * sine[j].x};
          b = {b.x * cosine[j].y - b.y * sine[j].y, b.y * cosine[j].y + b.x * sine[j].y};
        }
        at.exchange(a, b);
        if (!real) continue;
        if (kind == 0 && !kRotates) {
          T* to = static_cast<T*>(q.to) + token * q.to_stride + int64_t{head} * dim;
          store2(to + at.first, a), store2(to + at.second, b);
        } else if constexpr (kIsScaled<K>) {
          store2(stage + at.first, a), store2(stage + at.second, b);
        } else {
          static_assert(std::is_same_v<K, V>);  // so keys and values are rows of one array
          store2(cached_at<K>(rows_of<K, V>(kv, 0), cached, dim, at.first), a);
          store2(cached_at<K>(rows_of<K, V>(kv, 0), cached, dim, at.second), b);
        }
      }
      if constexpr (kRotates) {
        if (!real) continue;
        __syncwarp();
        if (kind < 2) rotate_staged<4 * kFours>(stage, dim, kv.key_rotation, lane);
        if (kind == 0) {
          T* to = static_cast<T*>(q.to) + token * q.to_stride + int64_t{head} * dim;
          for (int i = 2 * lane; i < dim; i += 64) store2(to + i, {stage[i], stage[i + 1]});
          __syncwarp();
        }
      }
      if constexpr (kIsScaled<K>) {
        if (!real || kind == 0) continue;
        __syncwarp();
        const auto staged_at = [&](int i) { return stage[i]; };
        if (std::is_same_v<K, V> || kind == 1)
          store_scaled<K>(rows_of<K, V>(kv, 0), cached, dim, lane, staged_at);
        else
          store_scaled<V>(rows_of<K, V>(kv, 1), cached, dim, lane, staged_at);
        __syncwarp();
      }
    }
  }
}

}  // namespace

void angles_of_positions(const Tensor& angles, const Tensor& inv_freq, float magnitude, const Tensor& axes,
                         const DeviceBatch& batch, Device& device) {
  if (angles.rows == 0) return;
  launch(device, angles_kernel, dim3(static_cast<unsigned>(angles.rows)), 64, 0, angles.f32(), angles.stride,
         inv_freq.f32(), static_cast<int>(inv_freq.cols), magnitude, axes ? axes.i32() : nullptr, batch);
}

void rope_rows(const Tensor& x, int n_heads, const RopeArgs& args, Device& device) {
  if (x.rows == 0) return;
  with_type(x.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    launch(device, rope_kernel<T>, dim3(static_cast<unsigned>(x.rows)), 256, 0, static_cast<T*>(x.data), x.stride,
           static_cast<int>(x.cols / n_heads), n_heads, rope_of(args));
  });
}

void hadamard_rows(const Tensor& x, int block, Device& device) {
  if (x.rows == 0) return;
  CHECK(block <= kHadamardColumns && x.cols % block == 0);
  with_type(x.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    const dim3 grid(static_cast<unsigned>(x.rows), static_cast<unsigned>(blocks_for(x.cols, kHadamardColumns)));
    launch(device, hadamard_kernel<T>, grid, 32, 0, static_cast<T*>(x.data), x.stride, static_cast<int>(x.cols), block);
  });
}

void write_kv(const DeviceKv& kv, int layer, const Tensor& k, const Tensor& v, const DeviceBatch& batch,
              Device& device) {
  if (k.rows == 0) return;
  CHECK(k.dtype == v.dtype);
  with_type(k.dtype, [&](auto* p) {
    with_cached(kv, [&](auto* pk, auto* pv) {
      using T = std::remove_pointer_t<decltype(p)>;
      using K = std::remove_pointer_t<decltype(pk)>;
      using V = std::remove_pointer_t<decltype(pv)>;
      const dim3 grid(static_cast<unsigned>(k.rows), static_cast<unsigned>(kv.n_kv_heads));
      launch(device, write_kernel<T, K, V>, grid, 64, 0, kv, layer, static_cast<const T*>(k.data), k.stride,
             static_cast<const T*>(v.data), v.stride, batch);
    });
  });
}

bool can_finish_qkv(const QkvArgs& a) { return a.head_dim % 4 == 0 && (!a.rope.angles || a.rope.angles.cols % 4 == 0); }

std::optional<QkvEnd> qkv_end(const QkvArgs& a, const DeviceKv& kv, const DeviceBatch& batch) {
  if (a.x.rows != 1 || a.q_norm.weight || a.k_norm.weight || kv.dtype != DType::kF16 || kv.n_parts != 2 ||
      a.q.dtype != DType::kF16 || a.head_dim % 2 != 0)
    return {};
  const Rope rope = rope_of(a.rope);
  const int64_t page = int64_t{kv.block_size} * kv.head_dim, part = kv.n_kv_heads * page;
  auto* keys = static_cast<half*>(kv.data) + int64_t{a.layer} * kv.n_blocks * 2 * part;
  return QkvEnd{.angles = rope.angles,
                .half_dim = rope.half_dim,
                .split = rope.split,
                .head_dim = a.head_dim,
                .keys = keys,
                .values = keys + part,
                .block_stride = 2 * part,
                .block_size = kv.block_size,
                .position = batch.positions,
                .block_table = batch.block_table};
}

void finish_qkv(const QkvArgs& a, const Tensor& q_product, const Tensor& k_product, const Tensor& v_product,
                const DeviceKv& kv, const DeviceBatch& batch, Device& device) {
  if (a.x.rows == 0) return;
  CHECK(a.q.dtype == q_product.dtype && a.q.dtype == k_product.dtype && a.q.dtype == v_product.dtype);
  Heads q = heads_of(q_product, a.n_heads, a.bq, &a.q_norm);
  q.to = a.q.data, q.to_stride = a.q.stride;
  const Heads k = heads_of(k_product, a.n_kv_heads, a.bk, &a.k_norm);
  const Heads v = heads_of(v_product, a.n_kv_heads, a.bv, nullptr);
  CHECK(kv.head_dim <= 512 && (!a.rope.angles || a.rope.angles.cols <= kv.head_dim));
  constexpr int kThreads = 256;
  // Blocks of a token: as many as run at once.
  const int64_t n_at_once = int64_t{2048 / kThreads} * device.n_multiprocessors();
  const auto n_blocks =
      static_cast<unsigned>(std::clamp<int64_t>(n_at_once / a.x.rows, 1, blocks_for(q.n + k.n + v.n, kThreads / 32)));
  const dim3 grid(static_cast<unsigned>(a.x.rows), n_blocks);
  with_type(a.q.dtype, [&](auto* p) {
    with_cached(kv, [&](auto* pk, auto* pv) {
      using T = std::remove_pointer_t<decltype(p)>;
      using K = std::remove_pointer_t<decltype(pk)>;
      using V = std::remove_pointer_t<decltype(pv)>;
      const auto start = [&](auto kernel) {
        launch(device, kernel, grid, kThreads, 0, q, k, v, rope_of(a.rope), kv, a.layer, batch,
               device.chip().has_dependent_launch && a.x.rows == 1);
      };
      kv.head_dim <= 128 ? start(finish_kernel<T, K, V, 1>) : start(finish_kernel<T, K, V, 4>);
    });
  });
}

}  // namespace ingot::cuda

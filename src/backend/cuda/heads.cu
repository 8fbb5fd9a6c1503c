// Verbs that work head by head: rotary embeddings, the KV cache, and what qkv does after its products.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {
namespace {

__global__ void angles_kernel(float* angles, int64_t stride, const float* inv_freq, int n_freq, float magnitude,
                              const int32_t* positions) {
  float* row = angles + blockIdx.x * stride;
  for (int i = threadIdx.x; i < n_freq; i += blockDim.x) {
    float s, c;
    sincosf(static_cast<float>(positions[blockIdx.x]) * inv_freq[i], &s, &c);
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

// Turns pair i of a head in place.
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
  const float* angles = rope.angles + blockIdx.x * rope.stride;
  for (int i = threadIdx.x; i < n_heads * rope.half_dim; i += blockDim.x) {
    turn(x + blockIdx.x * stride + i / rope.half_dim * head_dim, i % rope.half_dim, rope, angles);
  }
}

// Where a token's key (which = 0) or value (1) of one head lies.
template <class K>
__device__ __forceinline__ K* kv_row(const DeviceKv& kv, int layer, const DeviceBatch& batch, int token, int which, int head) {
  const int position = batch.positions[token], seq = batch.token_seq[token];
  const int64_t block = batch.block_table[int64_t{seq} * *batch.max_blocks + position / kv.block_size];
  const int64_t page = ((int64_t{layer} * kv.n_blocks + block) * 2 + which) * kv.n_kv_heads + head;
  return static_cast<K*>(kv.data) + (page * kv.block_size + position % kv.block_size) * kv.head_dim;
}

template <class T, class K>
__global__ void write_kernel(DeviceKv kv, int layer, const T* k, int64_t k_stride, const T* v, int64_t v_stride, DeviceBatch batch) {
  const int token = blockIdx.x, head = blockIdx.y;
  K* key = kv_row<K>(kv, layer, batch, token, 0, head);
  K* value = kv_row<K>(kv, layer, batch, token, 1, head);
  for (int i = threadIdx.x; i < kv.head_dim; i += blockDim.x) {
    key[i] = from_float<K>(to_float(k[token * k_stride + head * kv.head_dim + i]));
    value[i] = from_float<K>(to_float(v[token * v_stride + head * kv.head_dim + i]));
  }
}

struct Heads {
  void* data;  // [n_tokens, n * head_dim]
  int64_t stride;
  int n;
  const float* bias;
  const float* norm;
  float eps;
};

Heads heads_of(const Tensor& x, int n, const Tensor& bias, const NormArgs* norm) {
  const bool normed = norm != nullptr && norm->weight;
  return {x.data, x.stride, n, bias ? bias.f32() : nullptr, normed ? norm->weight.f32() : nullptr, normed ? norm->eps : 0};
}

// One warp a head of a token: q heads, then k, then v. The head lies in shared memory while it changes.
template <class T, class K>
__global__ void finish_kernel(Heads q, Heads k, Heads v, Rope rope, DeviceKv kv, int layer, DeviceBatch batch) {
  extern __shared__ float shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = kv.head_dim, token = blockIdx.x;
  const int index = blockIdx.y * (blockDim.x / 32) + warp;
  if (index >= q.n + k.n + v.n) return;
  const int kind = index < q.n ? 0 : index < q.n + k.n ? 1 : 2;
  const Heads& heads = kind == 0 ? q : kind == 1 ? k : v;
  const int head = index - (kind == 0 ? 0 : kind == 1 ? q.n : q.n + k.n);
  T* row = static_cast<T*>(heads.data) + token * heads.stride + head * dim;
  float* values = shared + warp * dim;
  float squares = 0;
  for (int i = lane; i < dim; i += 32) {
    const float x = to_float(row[i]) + (heads.bias ? heads.bias[head * dim + i] : 0.0f);
    values[i] = x;
    squares += x * x;
  }
  if (heads.norm) {
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + heads.eps);
    for (int i = lane; i < dim; i += 32) values[i] *= inverse * heads.norm[i];
  }
  __syncwarp();
  if (rope.angles && kind < 2) {
    for (int i = lane; i < rope.half_dim; i += 32) turn(values, i, rope, rope.angles + token * rope.stride);
    __syncwarp();
  }
  if (kind == 0) {
    for (int i = lane; i < dim; i += 32) row[i] = from_float<T>(values[i]);
  } else {
    K* to = kv_row<K>(kv, layer, batch, token, kind - 1, head);
    for (int i = lane; i < dim; i += 32) to[i] = from_float<K>(values[i]);
  }
}

}  // namespace

void angles_of_positions(const Tensor& angles, const Tensor& inv_freq, float magnitude, const int32_t* positions, cudaStream_t stream) {
  if (angles.rows == 0) return;
  angles_kernel<<<static_cast<unsigned>(angles.rows), 64, 0, stream>>>(angles.f32(), angles.stride, inv_freq.f32(),
                                                                       static_cast<int>(inv_freq.cols), magnitude, positions);
}

void rope_rows(const Tensor& x, int n_heads, const RopeArgs& args, cudaStream_t stream) {
  if (x.rows == 0) return;
  with_type(x.dtype, [&](auto* p) {
    rope_kernel<<<static_cast<unsigned>(x.rows), 256, 0, stream>>>(static_cast<decltype(p)>(x.data), x.stride,
                                                                   static_cast<int>(x.cols / n_heads), n_heads, rope_of(args));
  });
}

void write_kv(const DeviceKv& kv, int layer, const Tensor& k, const Tensor& v, const DeviceBatch& batch, cudaStream_t stream) {
  if (k.rows == 0) return;
  CHECK(k.dtype == v.dtype);
  with_type(k.dtype, [&](auto* p) {
    with_kv_type(kv.dtype, [&](auto* c) {
      using T = std::remove_pointer_t<decltype(p)>;
      using K = std::remove_pointer_t<decltype(c)>;
      const dim3 grid(static_cast<unsigned>(k.rows), static_cast<unsigned>(kv.n_kv_heads));
      write_kernel<T, K><<<grid, 64, 0, stream>>>(kv, layer, static_cast<T*>(k.data), k.stride, static_cast<T*>(v.data), v.stride, batch);
    });
  });
}

void finish_qkv(const QkvArgs& a, bool add_biases, const DeviceKv& kv, const DeviceBatch& batch, cudaStream_t stream) {
  if (a.x.rows == 0) return;
  CHECK(a.q.dtype == a.k.dtype && a.q.dtype == a.v.dtype);
  const Tensor none;
  const Heads q = heads_of(a.q, a.n_heads, add_biases ? a.bq : none, &a.q_norm);
  const Heads k = heads_of(a.k, a.n_kv_heads, add_biases ? a.bk : none, &a.k_norm);
  const Heads v = heads_of(a.v, a.n_kv_heads, add_biases ? a.bv : none, nullptr);
  constexpr int kWarps = 4;
  const dim3 grid(static_cast<unsigned>(a.x.rows), blocks_for(q.n + k.n + v.n, kWarps));
  with_type(a.q.dtype, [&](auto* p) {
    with_kv_type(kv.dtype, [&](auto* c) {
      using T = std::remove_pointer_t<decltype(p)>;
      using K = std::remove_pointer_t<decltype(c)>;
      finish_kernel<T, K><<<grid, kWarps * 32, kWarps * kv.head_dim * sizeof(float), stream>>>(q, k, v, rope_of(a.rope), kv, a.layer, batch);
    });
  });
}

}  // namespace ingot::cuda

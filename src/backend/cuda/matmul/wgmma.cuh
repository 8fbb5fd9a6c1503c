// Hopper's warpgroup products and tile copies in PTX (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and
// "cp.async.bulk.tensor"). A matrix in shared memory is panels of 64 halves a row; the 16-byte pieces of a row are
// swizzled by row % 8.
#pragma once
#include <cuda.h>

#include <cstdint>

// Only code for sm_90a may call them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define INGOT_WGMMA 1
#else
#define INGOT_WGMMA 0
#endif

namespace ingot::cuda {

// ---- barriers in shared memory ----
__device__ __forceinline__ void init_barrier(uint32_t barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals) : "memory");
}
__device__ __forceinline__ void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits until the phase with this parity is over.
__device__ __forceinline__ void await(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Makes this thread's writes to shared memory visible to copies and products.
__device__ __forceinline__ void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void warpgroup_barrier(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

// ---- copies ----
// Copies the box at column x and row y of a matrix.
__device__ __forceinline__ void fetch_tile(uint32_t to, const CUtensorMap& map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// ---- products ----
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// To be called before products that add to v.
template <int n>
__device__ __forceinline__ void fence_products(float (&v)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(v[i])::"memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending commits are open; they write v.
template <int kPending, int n>
__device__ __forceinline__ void await_products(float (&v)[n]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(v[i])::"memory");
}

// Describes a matrix in shared memory: `leading` bytes between panels (if transposed), `stride` bytes between groups of
// 8 rows.
__device__ __forceinline__ uint64_t matrix(uint32_t address, int leading, int stride) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | uint64_t{1} << 62;
}

#define INGOT_8(d, i)                                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define INGOT_32(d, i) INGOT_8(d, i), INGOT_8(d, i + 8), INGOT_8(d, i + 16), INGOT_8(d, i + 24)
#define INGOT_NAMES_32                                                                                                 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define INGOT_NAMES_48 INGOT_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define INGOT_NAMES_64                                                                                                 \
  INGOT_NAMES_32                                                                                                       \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%" \
  "60,%61,%62,%63"

// d [64 x 128] (+)= a [64 x 16] b [128 x 16]^T, where all rows have 16 contiguous halves; starts from zeros unless
// `add`.
__device__ __forceinline__ void wgmma_128(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" INGOT_NAMES_64 "}, %64, %65, add, 1, 1, 0, 0;\n}"
      : INGOT_32(d, 0), INGOT_32(d, 32)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// d [64 x kDim] (+)= a [64 x 16] b [16 x kDim], with a in registers as in mma(). If kTransposed is false: b [kDim x 16]^T,
// with rows of contiguous halves.
template <int kDim, bool kTransposed = true>
__device__ __forceinline__ void wgmma_weights(float (&d)[kDim / 2], const uint32_t* a, uint64_t b, bool add = true) {
  if constexpr (kDim == 128) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" INGOT_NAMES_64
        "}, {%64,%65,%66,%67}, %68, add, 1, 1, %70;\n}"
        : INGOT_32(d, 0), INGOT_32(d, 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposed ? 1 : 0));
  } else if constexpr (kDim == 96) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" INGOT_NAMES_48
        "}, {%48,%49,%50,%51}, %52, add, 1, 1, %54;\n}"
        : INGOT_32(d, 0), INGOT_8(d, 32), INGOT_8(d, 40)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposed ? 1 : 0));
  } else {
    static_assert(kDim == 64);
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" INGOT_NAMES_32
        "}, {%32,%33,%34,%35}, %36, add, 1, 1, %38;\n}"
        : INGOT_32(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposed ? 1 : 0));
  }
}
#undef INGOT_8
#undef INGOT_32
#undef INGOT_NAMES_32
#undef INGOT_NAMES_48
#undef INGOT_NAMES_64

}  // namespace ingot::cuda

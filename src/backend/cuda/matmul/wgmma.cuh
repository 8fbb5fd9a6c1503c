// Hopper's warpgroup products and tile copies in PTX (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and
// "cp.async.bulk.tensor"). A matrix in shared memory consists of panels with rows of 64 halves. The 16-byte pieces of a
// row are swizzled by row % 8.
#pragma once
#include <cuda.h>

#include <cstdint>

// Only code for sm_90a may use wgmma and setmaxnreg.
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
// Copies a box of a tensor of four dimensions, at (0, 0, z, w).
__device__ __forceinline__ void fetch_box(uint32_t to, const CUtensorMap& map, int z, int w, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(&map), "r"(0), "r"(z), "r"(w), "r"(barrier)
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

// Must be called before products that add to v.
template <int n>
__device__ __forceinline__ void fence_products(float (&v)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(v[i])::"memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending committed groups are in flight. v: their accumulators.
template <int kPending, int n>
__device__ __forceinline__ void await_products(float (&v)[n]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(v[i])::"memory");
}

// Describes a matrix in shared memory: `leading` bytes between panels (if transposed), `stride` bytes between groups of
// 8 rows. Panels of 32 halves have pieces swizzled by row / 2 % 4.
template <int kColumns = 64>
__device__ __forceinline__ uint64_t matrix(uint32_t address, int leading, int stride) {
  static_assert(kColumns == 64 || kColumns == 32);
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | uint64_t{kColumns == 64 ? 1 : 2} << 62;
}

#define INGOT_8(d, i)                                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define INGOT_16(d, i) INGOT_8(d, i), INGOT_8(d, i + 8)
#define INGOT_32(d, i) INGOT_16(d, i), INGOT_16(d, i + 16)
#define INGOT_64(d, i) INGOT_32(d, i), INGOT_32(d, i + 32)
#define INGOT_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define INGOT_NAMES_32 INGOT_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define INGOT_NAMES_40 INGOT_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define INGOT_NAMES_48 INGOT_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define INGOT_NAMES_56 INGOT_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define INGOT_NAMES_64 INGOT_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define INGOT_NAMES_96                                                                                                 \
  INGOT_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%" \
                 "88,%89,%90,%91,%92,%93,%94,%95"
#define INGOT_NAMES_128                                                                                               \
  INGOT_NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%" \
                 "116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// d [64 x kKeys] (+)= a [64 x 16] b [kKeys x 16]^T, where all rows have 16 contiguous halves; starts from zeros unless
// `add`.
template <int kKeys>
__device__ __forceinline__ void wgmma_scores(float (&d)[kKeys / 2], uint64_t a, uint64_t b, bool add) {
#define INGOT_SCORES(n, names, a_name, b_name, add_name, ...)                                                      \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_name                                                    \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" names "}, " a_name ", " b_name      \
               ", add, 1, 1, 0, 0;\n}"                                                                             \
               : __VA_ARGS__                                                                                       \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
  if constexpr (kKeys == 128) {
    INGOT_SCORES("128", INGOT_NAMES_64, "%64", "%65", "%66", INGOT_64(d, 0));
  } else if constexpr (kKeys == 112) {
    INGOT_SCORES("112", INGOT_NAMES_56, "%56", "%57", "%58", INGOT_32(d, 0), INGOT_16(d, 32), INGOT_8(d, 48));
  } else if constexpr (kKeys == 96) {
    INGOT_SCORES("96", INGOT_NAMES_48, "%48", "%49", "%50", INGOT_32(d, 0), INGOT_16(d, 32));
  } else if constexpr (kKeys == 80) {
    INGOT_SCORES("80", INGOT_NAMES_40, "%40", "%41", "%42", INGOT_32(d, 0), INGOT_8(d, 32));
  } else {
    static_assert(kKeys == 64);
    INGOT_SCORES("64", INGOT_NAMES_32, "%32", "%33", "%34", INGOT_32(d, 0));
  }
#undef INGOT_SCORES
}

// d [64 x kDim] (+)= a [64 x 16] b [16 x kDim], with a in registers as in mma(). If kTransposed is false: b
// [kDim x 16]^T, with rows of contiguous halves.
template <int kDim, bool kTransposed = true>
__device__ __forceinline__ void wgmma_weights(float (&d)[kDim / 2], const uint32_t* a, uint64_t b, bool add = true) {
#define INGOT_WEIGHTS(n, names, a_names, b_name, add_name, transposed_name, ...)                                     \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_name                                                      \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" names "}, {" a_names "}, " b_name     \
               ", add, 1, 1, " transposed_name ";\n}"                                                                \
               : __VA_ARGS__                                                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),                      \
                 "n"(kTransposed ? 1 : 0))
  if constexpr (kDim == 256) {
    INGOT_WEIGHTS("256", INGOT_NAMES_128, "%128,%129,%130,%131", "%132", "%133", "%134", INGOT_64(d, 0),
                  INGOT_64(d, 64));
  } else if constexpr (kDim == 192) {
    INGOT_WEIGHTS("192", INGOT_NAMES_96, "%96,%97,%98,%99", "%100", "%101", "%102", INGOT_64(d, 0), INGOT_32(d, 64));
  } else if constexpr (kDim == 128) {
    INGOT_WEIGHTS("128", INGOT_NAMES_64, "%64,%65,%66,%67", "%68", "%69", "%70", INGOT_64(d, 0));
  } else if constexpr (kDim == 96) {
    INGOT_WEIGHTS("96", INGOT_NAMES_48, "%48,%49,%50,%51", "%52", "%53", "%54", INGOT_32(d, 0), INGOT_16(d, 32));
  } else if constexpr (kDim == 64) {
    INGOT_WEIGHTS("64", INGOT_NAMES_32, "%32,%33,%34,%35", "%36", "%37", "%38", INGOT_32(d, 0));
  } else {
    static_assert(kDim == 32);
    INGOT_WEIGHTS("32", INGOT_NAMES_16, "%16,%17,%18,%19", "%20", "%21", "%22", INGOT_16(d, 0));
  }
#undef INGOT_WEIGHTS
}
#undef INGOT_8
#undef INGOT_16
#undef INGOT_32
#undef INGOT_64
#undef INGOT_NAMES_16
#undef INGOT_NAMES_32
#undef INGOT_NAMES_40
#undef INGOT_NAMES_48
#undef INGOT_NAMES_56
#undef INGOT_NAMES_64
#undef INGOT_NAMES_96
#undef INGOT_NAMES_128

}  // namespace ingot::cuda

// Which kernels an x86-64 machine can run. The same sets as in cmake/cpu_kernels.cmake.
#include <cpuid.h>

#include <algorithm>

#include "backend/cpu/amx/amx.h"
#include "backend/cpu/isa.h"

namespace ingot::cpu {

namespace portable { extern const Kernels kKernels; }
namespace avx2 { extern const Kernels kKernels; }
namespace avx_vnni { extern const Kernels kKernels; }
namespace avx512 { extern const Kernels kKernels; }
namespace avx512bf16 { extern const Kernels kKernels; }

namespace {

// CMake defines each macro as 0 or 1.
constexpr bool kEncodesAvxVnniAsAvx512 = INGOT_TEST_AVX_VNNI;
constexpr bool kHasAmxTiles = INGOT_AMX;  // only on Linux, which amx_unit.cc asks for the unit

// __builtin_cpu_supports of Clang 14 knows neither f16c nor avxvnni.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1 << 4) != 0;
}

// Adds the set with the matrix unit if this build has its tiles and the process may use the unit.
void add_amx(std::vector<const Kernels*>& found) {
  if constexpr (kHasAmxTiles) {
    if (!amx::is_usable()) return;
    static const Kernels kAmx = [] {
      Kernels set = avx512bf16::kKernels;
      set.isa = "amx";
      set.block_tiles = &amx::kBf16Tiles, set.block_runs = &amx::kBf16Runs, set.block_tile = amx::kTokens;
      if (amx::has_int8()) set.byte_unit = &amx::kByteUnit;
      set.peak_bf16 = amx::peak_bf16;
      return set;
    }();
    found.push_back(&kAmx);
  }
}

}  // namespace

std::vector<const Kernels*> find_kernels() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  std::vector<const Kernels*> found;
  const bool has_bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  if (has_avx512 && has_bf16) add_amx(found), found.push_back(&avx512bf16::kKernels);
  if (has_avx512) found.push_back(&avx512::kKernels);
  if (kEncodesAvxVnniAsAvx512 ? has_avx512 : has_avx2 && has_avx_vnni()) found.push_back(&avx_vnni::kKernels);
  if (has_avx2) found.push_back(&avx2::kKernels);
  found.push_back(&portable::kKernels);
  return found;
}

std::vector<PeakProduct> peak_products() {
  std::vector<PeakProduct> products;
  const auto has = [](const Kernels& set) { return std::ranges::count(available_kernels(), &set) > 0; };
  if constexpr (kHasAmxTiles) {
    if (has(avx512bf16::kKernels) && amx::is_usable()) {
      if (amx::has_int8()) products.push_back({"int8 tiles", amx::peak_int8});
      products.push_back({"bf16 tiles", amx::peak_bf16});
    }
  }
  if (has(avx512::kKernels)) products.push_back({"int8 AVX-512", avx512::kKernels.peak_int8});
  if (has(avx512bf16::kKernels)) products.push_back({"bf16 AVX-512", avx512bf16::kKernels.peak_bf16});
  if (has(avx512::kKernels)) products.push_back({"f32 AVX-512", avx512::kKernels.peak_f32});
  if (has(avx_vnni::kKernels)) products.push_back({"int8 AVX-VNNI", avx_vnni::kKernels.peak_int8});
  if (has(avx2::kKernels)) products.push_back({"int8 AVX2", avx2::kKernels.peak_int8});
  if (has(avx2::kKernels)) products.push_back({"f32 AVX2", avx2::kKernels.peak_f32});
  if (products.empty()) products.push_back({"f32", portable::kKernels.peak_f32});
  return products;
}

}  // namespace ingot::cpu

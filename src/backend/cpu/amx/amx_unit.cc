#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/amx/amx.h"

namespace ingot::cpu::amx {

bool is_usable() {
  constexpr unsigned kBf16 = 1 << 22, kTile = 1 << 24;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kBf16) == 0 || (edx & kTile) == 0) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

bool has_int8() {
  constexpr unsigned kInt8 = 1 << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInt8) != 0;
}

}  // namespace ingot::cpu::amx

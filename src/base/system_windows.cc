#include <windows.h>

#include <array>
#include <bit>
#include <cerrno>

#include "base/system.h"

namespace ingot {

size_t available_memory_bytes() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) != 0 ? status.ullAvailPhys : ~size_t{0};
}

void* take_pages(size_t n_bytes) { return VirtualAlloc(nullptr, n_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }
void free_pages(void* memory, size_t) { VirtualFree(memory, 0, MEM_RELEASE); }
void ask_for_large_pages(void*, size_t) {}  // large pages need a privilege that most users lack
void give_back_memory() {}

int cpus_by_affinity() {
  DWORD_PTR ours = 0, machine = 0;
  return GetProcessAffinityMask(GetCurrentProcess(), &ours, &machine) != 0 ? std::popcount(ours) : 0;
}

int current_cpu() { return static_cast<int>(GetCurrentProcessorNumber()); }

// A thread's affinity mask covers 64 CPUs.
bool run_on_cpus(const std::vector<int>& cpus) {
  DWORD_PTR mask = 0;
  for (const int cpu : cpus)
    if (cpu < 64) mask |= DWORD_PTR{1} << cpu;
  if (SetThreadAffinityMask(GetCurrentThread(), mask) != 0) return true;
  errno = EINVAL;
  return false;
}
bool interleave_pages(void*, size_t, const std::vector<int>&) {
  errno = ENOSYS;
  return false;
}

std::string host_name() {
  std::array<char, 256> name{};
  DWORD size = name.size();
  return GetComputerNameExA(ComputerNameDnsHostname, name.data(), &size) != 0 ? name.data() : "localhost";
}

// Knuth, Morris and Pratt 1977: border[n] is the length of the longest end of the needle's first n bytes that is also a
// beginning of the needle, and not all of them.
size_t find_in_linear_time(std::string_view text, std::string_view needle) {
  std::vector<size_t> border(needle.size() + 1, 0);
  const auto longer = [&](size_t n, char c) {  // the length of the match after c, which follows a match of n bytes
    while (n > 0 && (n == needle.size() || needle[n] != c)) n = border[n];
    return needle[n] == c ? n + 1 : 0;
  };
  for (size_t i = 1; i < needle.size(); ++i) border[i + 1] = longer(border[i], needle[i]);
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    n = longer(n, text[i]);
    if (n == needle.size()) return i + 1 - n;
  }
  return std::string_view::npos;
}

std::string process_limit() { return "Windows has no limit on processes"; }

void wait_while(const WaitWord& word, uint32_t value) {
  WaitOnAddress(const_cast<WaitWord*>(&word), &value, sizeof value, INFINITE);
}
void wake_one(WaitWord& word) { WakeByAddressSingle(&word); }
void wake_all(WaitWord& word) { WakeByAddressAll(&word); }

size_t raise_open_files(size_t wanted) { return wanted; }  // Windows has no small limit on handles

}  // namespace ingot

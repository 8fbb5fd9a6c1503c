// What this process may use of the system: system_posix.cc and system_windows.cc have what differs between systems.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Memory that can be taken now without swapping: the smaller of what the system and the control group have left.
size_t available_memory_bytes();

// Zeroed memory in whole pages; null if there is not enough.
void* take_pages(size_t n_bytes);
void free_pages(void* memory, size_t n_bytes);
void ask_for_large_pages(void* memory, size_t n_bytes);  // only a hint: nothing depends on the answer

int cpus_by_affinity();  // the CPUs that this process may run on; 0 if unknown
int current_cpu();       // on which the caller runs; -1 if unknown
bool run_on_cpus(const std::vector<int>& cpus);  // the calling thread, from now on; false with errno if refused

// Takes the pages that nothing has touched yet in turn from these memory nodes; false with errno if refused.
bool interleave_pages(void* memory, size_t n_bytes, const std::vector<int>& nodes);

// The limit on the user's processes, for messages: "RLIMIT_NPROC is 4".
std::string process_limit();

// Raises the limit of open files and connections to `wanted` if the system lets it. Returns the limit.
size_t raise_open_files(size_t wanted);

// A word that threads wait on, as with std::atomic's wait and notify. (Those of MinGW's GCC 12 may miss a wake-up.)
using WaitWord = std::atomic<uint32_t>;
void wait_while(const WaitWord& word, uint32_t value);  // until it differs; may return earlier
void wake_one(WaitWord& word);
void wake_all(WaitWord& word);

std::string host_name();  // "localhost" if unknown
// As text.find(needle), but in linear time for every text. `needle` is not empty.
size_t find_in_linear_time(std::string_view text, std::string_view needle);

std::string human_bytes(size_t bytes);  // "1.2 GiB"

}  // namespace ingot

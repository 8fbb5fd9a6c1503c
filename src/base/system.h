// Memory, CPUs, limits and other system calls. Implemented in system_posix.cc with system_linux.cc or
// system_apple.cc, and in system_windows.cc.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Memory that can be allocated now without swapping: the smallest of the system's and the control group's free memory,
// and of the room below the process's own limit (RLIMIT_AS).
size_t available_memory_bytes();

void give_back_memory();  // returns freed memory to the system, as far as possible

// Zeroed memory in whole pages; null if there is not enough.
void* take_pages(size_t n_bytes);
void free_pages(void* memory, size_t n_bytes);
void ask_for_large_pages(void* memory, size_t n_bytes);  // only a hint: nothing depends on the answer

int cpus_by_affinity();  // the number of CPUs that this process may run on; 0 if unknown
int current_cpu();       // the CPU on which the caller runs; -1 if unknown
bool run_on_cpus(const std::vector<int>& cpus);  // binds the calling thread; false with errno if refused

// Pages not yet touched will be allocated from these memory nodes in turn; false with errno if refused.
bool interleave_pages(void* memory, size_t n_bytes, const std::vector<int>& nodes);

// The limit on the user's processes, for messages: "RLIMIT_NPROC is 4".
std::string process_limit();

// Raises the limit of open files and connections to `wanted`, or as far as the system allows. Returns the limit.
size_t raise_open_files(size_t wanted);

// A word that threads wait on, as with std::atomic's wait and notify. (In MinGW's GCC 12, std::atomic may miss a
// wake-up.)
using WaitWord = std::atomic<uint32_t>;
void wait_while(const WaitWord& word, uint32_t value);  // waits until the word is not `value`; may return earlier
void wake_one(WaitWord& word);
void wake_all(WaitWord& word);

std::string host_name();  // "localhost" if unknown
// As text.find(needle), but in linear time for every text. `needle` is not empty.
size_t find_in_linear_time(std::string_view text, std::string_view needle);

std::string human_bytes(size_t bytes);  // "1.2 GiB"

}  // namespace ingot

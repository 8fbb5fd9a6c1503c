// What this process may use of the machine.
#pragma once
#include <cstddef>
#include <string>

namespace ingot {

// Memory that can be taken now without swapping: the smaller of the system's and the control group's.
size_t available_memory_bytes();

std::string human_bytes(size_t bytes);  // "1.2 GiB"

}  // namespace ingot

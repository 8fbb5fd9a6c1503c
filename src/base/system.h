// The memory that this process may use.
#pragma once
#include <cstddef>
#include <string>

namespace ingot {

// Memory that can be taken now without swapping: the smaller of what the system and the control group have left.
size_t available_memory_bytes();

std::string human_bytes(size_t bytes);  // "1.2 GiB"

}  // namespace ingot

// A function that Asio lacks, implemented in socket_posix.cc and socket_windows.cc.
#pragma once
#include <cstdint>

namespace ingot {

// Whether the other side may still read: it has not closed both directions, and the socket has no error.
bool is_connected(uintptr_t socket);

}  // namespace ingot

// What Asio does not say of a socket: socket_posix.cc and socket_windows.cc.
#pragma once
#include <cstdint>

namespace ingot {

// Whether the other side may still read: its end is not closed in both directions and has no error.
bool is_connected(uintptr_t socket);

}  // namespace ingot

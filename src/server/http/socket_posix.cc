#include <poll.h>

#include "server/http/socket.h"

namespace ingot {

bool is_connected(uintptr_t socket) {
  pollfd one{.fd = static_cast<int>(socket), .events = 0, .revents = 0};
  return ::poll(&one, 1, 0) >= 0 && (one.revents & (POLLHUP | POLLERR)) == 0;
}

}  // namespace ingot

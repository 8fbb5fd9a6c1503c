#include <winsock2.h>

#include "server/http/socket.h"

namespace ingot {

bool is_connected(uintptr_t socket) {
  WSAPOLLFD one{.fd = socket, .events = 0, .revents = 0};
  return WSAPoll(&one, 1, 0) >= 0 && (one.revents & (POLLHUP | POLLERR)) == 0;
}

}  // namespace ingot

// Fetches a small file from a URL that a user of a server gave: an image of a request. Such a URL must not reach what
// only the server can reach. So every address is checked when a connection to it is opened, whatever the name resolved
// to before, also after redirects. Proxies, cookies and passwords of this machine are not used.
#pragma once
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace ingot {

// Whether the bytes of an IPv4 address (4) or an IPv6 address (16) belong to the public Internet: not to this machine,
// a private network, a link, a group, or a block that is reserved (RFC 6890, RFC 8190), also inside an IPv6 address.
bool is_public_address(std::span<const uint8_t> address);

struct PublicFetch {
  size_t max_bytes = size_t{32} << 20;
  std::chrono::seconds timeout{15};  // of the whole transfer
  int max_redirects = 5;
  bool (*allows)(std::span<const uint8_t> address) = is_public_address;
};

// Throws Error: the URL is neither http nor https, its address is not public, the server answers with another status
// than 200, the file is too large, or the transfer fails. The message names the URL's host, never what was read.
std::vector<std::byte> fetch_public(const std::string& url, const PublicFetch& options);

}  // namespace ingot

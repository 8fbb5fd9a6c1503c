#include "io/hub/public_fetch.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "io/hub/libcurl.h"

namespace ingot {
namespace {

struct AddressBlock {
  std::array<uint8_t, 16> first;
  int n_bits;
};

// The blocks of IPv4 that are not public.
constexpr AddressBlock kClosedV4[] = {
    {{0}, 8},              // this network
    {{10}, 8},             // private
    {{100, 64}, 10},       // shared by a provider's customers
    {{127}, 8},            // loopback
    {{169, 254}, 16},      // link-local, and the facts of cloud machines
    {{172, 16}, 12},       // private
    {{192, 0, 0}, 24},     // protocol assignments
    {{192, 0, 2}, 24},     // documentation
    {{192, 88, 99}, 24},   // relays of 6to4
    {{192, 168}, 16},      // private
    {{198, 18}, 15},       // measurements
    {{198, 51, 100}, 24},  // documentation
    {{203, 0, 113}, 24},   // documentation
    {{224}, 3},            // groups, reserved, broadcast
};
// The public part of IPv6, and the blocks in it that are not.
constexpr AddressBlock kPublicV6 = {{0x20}, 3};
constexpr AddressBlock kClosedV6[] = {
    {{0x20, 0x01, 0x00}, 23},        // protocol assignments, Teredo
    {{0x20, 0x01, 0x0d, 0xb8}, 32},  // documentation
    {{0x20, 0x02}, 16},              // 6to4: contains any IPv4 address
    {{0x3f, 0xff}, 20},              // documentation
};
constexpr AddressBlock kMappedV4 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96};

bool is_in(std::span<const uint8_t> address, const AddressBlock& block) {
  for (int bit = 0; bit < block.n_bits; ++bit) {
    const uint8_t mask = uint8_t(0x80 >> bit % 8);
    if ((address[bit / 8] & mask) != (block.first[bit / 8] & mask)) return false;
  }
  return true;
}

struct CurlCloser {
  void operator()(CURL* handle) const { libcurl().easy_cleanup(handle); }
};

struct PublicTransfer {
  const PublicFetch& options;
  std::vector<std::byte> bytes = {};
  bool is_refused = false, is_large = false;
};

// libcurl calls this function for each address before it connects.
curl_socket_t open_if_allowed(void* data, curlsocktype, curl_sockaddr* address) {
  auto* transfer = static_cast<PublicTransfer*>(data);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&address->addr);
  // The address begins at byte 4 of sockaddr_in and at byte 8 of sockaddr_in6.
  const bool is_v4 = address->family == AF_INET, is_v6 = address->family == AF_INET6;
  const bool allowed = (is_v4 && transfer->options.allows({bytes + 4, 4})) ||
                       (is_v6 && address->addrlen >= 24 && transfer->options.allows({bytes + 8, 16}));
  if (allowed) return socket(address->family, address->socktype, address->protocol);
  transfer->is_refused = true;
  return CURL_SOCKET_BAD;
}

size_t keep_public_bytes(char* data, size_t, size_t n_bytes, void* to) {
  auto* transfer = static_cast<PublicTransfer*>(to);
  transfer->is_large = transfer->bytes.size() + n_bytes > transfer->options.max_bytes;
  if (transfer->is_large) return 0;  // ends the transfer
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  try {
    transfer->bytes.insert(transfer->bytes.end(), begin, begin + n_bytes);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  return n_bytes;
}

// The host of a URL, for messages. Throws Error for a URL of another scheme than http and https.
std::string host_of(const std::string& url) {
  const LibCurl& curl = libcurl();
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl.url(), curl.url_cleanup);
  const bool is_url = curl.url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (!is_url || curl.url_get(parsed.get(), which, &text, 0) != CURLUE_OK)
      throw Error("the URL '{}' is not valid", printable(url, 100));
    const std::unique_ptr<char, void (*)(void*)> owner(text, curl.free);
    return std::string(text);
  };
  const std::string scheme = part(CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https")
    throw Error("the URL '{}' is not valid: it must begin with https:// or http://", printable(url, 100));
  return printable(part(CURLUPART_HOST), 100);
}

void set_public_options(CURL* handle, const std::string& url, PublicTransfer& transfer) {
  const LibCurl& curl = libcurl();
  const PublicFetch& o = transfer.options;
  curl.easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl.easy_setopt(handle, CURLOPT_PROXY, "");
  curl.easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl.easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl.easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  curl.easy_setopt(handle, CURLOPT_MAXREDIRS, long{o.max_redirects});
  curl.easy_setopt(handle, CURLOPT_TIMEOUT, static_cast<long>(o.timeout.count()));
  curl.easy_setopt(handle, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(o.max_bytes));
  curl.easy_setopt(handle, CURLOPT_USERAGENT, "ingot");
  curl.easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, open_if_allowed);
  curl.easy_setopt(handle, CURLOPT_OPENSOCKETDATA, &transfer);
  curl.easy_setopt(handle, CURLOPT_WRITEFUNCTION, keep_public_bytes);
  curl.easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
}

}  // namespace

bool is_public_address(std::span<const uint8_t> address) {
  const auto is_in_block = [&](const AddressBlock& block) { return is_in(address, block); };
  if (address.size() == 4) return std::ranges::none_of(kClosedV4, is_in_block);
  if (address.size() != 16) return false;
  if (is_in(address, kMappedV4)) return is_public_address(address.subspan(12));
  return is_in(address, kPublicV6) && std::ranges::none_of(kClosedV6, is_in_block);
}

std::vector<std::byte> fetch_public(const std::string& url, const PublicFetch& options) {
  const LibCurl& curl = libcurl();
  const std::string host = host_of(url);
  const std::unique_ptr<CURL, CurlCloser> handle(curl.easy_init());
  if (handle == nullptr) throw std::bad_alloc();
  PublicTransfer transfer{options};
  set_public_options(handle.get(), url, transfer);
  const CURLcode code = curl.easy_perform(handle.get());
  long status = 0;
  curl.easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  if (transfer.is_refused && code != CURLE_OK)
    throw Error("{}: the address is not public: this server fetches images from the Internet only", host);
  if (transfer.is_large || code == CURLE_FILESIZE_EXCEEDED)
    throw Error("{}: the file has more than {} bytes", host, options.max_bytes);
  if (code != CURLE_OK) throw Error("{}: {}", host, curl.easy_strerror(code));
  if (status != 200) throw Error("{}: the server answers with status {}", host, status);
  return std::move(transfer.bytes);
}

}  // namespace ingot

// Which addresses are public, and that no connection leads to another one, also after a redirect.
#include "io/hub/public_fetch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "io/refused.h"

namespace ingot {
namespace {

bool is_public(const char* text) {
  uint8_t bytes[16];
  if (inet_pton(AF_INET, text, bytes) == 1) return is_public_address({bytes, 4});
  EXPECT_EQ(inet_pton(AF_INET6, text, bytes), 1) << text;
  return is_public_address({bytes, 16});
}

TEST(PublicFetch, PublicAddresses) {
  for (const char* text : {"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0",
                           "192.167.255.255", "223.255.255.255", "2606:4700::1", "2a00:1450::1", "::ffff:8.8.8.8"})
    EXPECT_TRUE(is_public(text)) << text;
}

TEST(PublicFetch, OtherAddresses) {
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "100.64.0.1",
                           "127.0.0.1",
                           "127.255.0.1",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.1",
                           "192.0.2.1",
                           "192.168.1.1",
                           "198.18.0.1",
                           "198.19.255.255",
                           "224.0.0.1",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "::127.0.0.1",
                           "fe80::1",
                           "fc00::1",
                           "fd12::1",
                           "ff02::1",
                           "2001:db8::1",
                           "2001::1",
                           "2002:7f00:1::1",
                           "64:ff9b::7f00:1",
                           "3fff::1"})
    EXPECT_FALSE(is_public(text)) << text;
  EXPECT_FALSE(is_public_address({}));
}

// Answers each connection with the next of some texts.
class CannedServer {
 public:
  explicit CannedServer(std::vector<std::string> answers) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), n), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &n), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const std::string& answer : answers) {
        const int client = ::accept(socket_, nullptr, nullptr);
        if (client < 0) return;
        char request[4096];
        if (::read(client, request, sizeof request) > 0) ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
        ::close(client);
      }
    });
  }
  ~CannedServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  std::string url(const char* host = "127.0.0.1") const { return fmt::format("http://{}:{}/cat.png", host, port_); }
  int port() const { return port_; }

 private:
  int socket_, port_ = 0;
  std::thread thread_;
};

std::string canned(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", body.size(), body);
}
std::string canned_redirect(const std::string& to) {
  return fmt::format("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngone", to);
}

// One address is "public" here.
constexpr auto kOnlyLocalhost = [](std::span<const uint8_t> a) {
  return a.size() == 4 && a[0] == 127 && a[1] == 0 && a[2] == 0 && a[3] == 1;
};

TEST(PublicFetch, BytesArrive) {
  const CannedServer server({canned("meow")});
  const std::vector<std::byte> bytes = fetch_public(server.url(), {.allows = kOnlyLocalhost});
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "meow");
}

TEST(PublicFetch, RedirectsAreFollowedToPublicAddressesOnly) {
  const CannedServer last({canned("meow")});
  const CannedServer first(
      {canned_redirect(last.url()), canned_redirect(last.url("127.0.0.2")), canned_redirect("file:///etc/passwd")});
  EXPECT_EQ(fetch_public(first.url(), {.allows = kOnlyLocalhost}).size(), 4u);
  EXPECT_EQ(refusal([&] { fetch_public(first.url(), {.allows = kOnlyLocalhost}); }),
            "127.0.0.1: the address is not public: this server fetches images from the Internet only");
  EXPECT_NE(refusal([&] { fetch_public(first.url(), {.allows = kOnlyLocalhost}); }), "");
}

TEST(PublicFetch, ThisMachineIsRefused) {
  const CannedServer server({});
  for (const char* host : {"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0", "2130706433", "0x7f.1"})
    EXPECT_NE(refusal([&] { fetch_public(server.url(host), {}); }), "") << host;
}

TEST(PublicFetch, OtherTransfersAreRefused) {
  const CannedServer server({canned(std::string(100, 'x')), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + std::string(100, 'x')});
  const PublicFetch options{.max_bytes = 50, .allows = kOnlyLocalhost};
  EXPECT_EQ(refusal([&] { fetch_public(server.url(), options); }), "127.0.0.1: the file has more than 50 bytes");
  EXPECT_EQ(refusal([&] { fetch_public(server.url(), options); }), "127.0.0.1: the server answers with status 404");
  EXPECT_EQ(refusal([&] { fetch_public(server.url(), options); }), "127.0.0.1: the file has more than 50 bytes");
  for (const char* url : {"file:///etc/passwd", "ftp://example.com/x", "gopher://x", "http://", "", "no url"})
    EXPECT_NE(refusal([&] { fetch_public(url, options); }), "") << url;
}

}  // namespace
}  // namespace ingot

// WebSocket: the handshake of RFC 6455, frames of clients in pieces of any size, and frames that are wrong.
#include "server/http/web_socket.h"

#include <gtest/gtest.h>

#include <random>

#include "test_seed.h"

namespace ingot {
namespace {

HttpRequest handshake() {
  return {.headers = {{"upgrade", "WebSocket"},
                      {"connection", "keep-alive, Upgrade"},
                      {"sec-websocket-version", "13"},
                      {"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="}}};
}

int refused_status(const HttpRequest& request) {
  try {
    accept_socket(request);
  } catch (const ApiError& error) {
    return error.status();
  }
  return 0;
}

TEST(WebSocket, TheHandshakeIsThatOfTheStandard) {
  HttpHeaders answer = {{"Upgrade", "websocket"},
                        {"Connection", "Upgrade"},
                        {"Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}};  // RFC 6455, section 1.3
  EXPECT_EQ(accept_socket(handshake()), answer);
  HttpRequest request = handshake();
  request.headers.emplace_back("sec-websocket-protocol", "realtime, openai-insecure-api-key.secret");
  answer.emplace_back("Sec-WebSocket-Protocol", "realtime");
  EXPECT_EQ(accept_socket(request), answer);
  request = handshake();
  request.headers[2].second = "8";
  EXPECT_EQ(refused_status(request), 426);
  request = handshake();
  request.headers[3].second = "short";
  EXPECT_EQ(refused_status(request), 400);
  request = handshake();
  request.headers.erase(request.headers.begin());
  EXPECT_EQ(refused_status(request), 426);
}

// A masked frame, as clients send them.
std::string client_frame(int first_byte, const std::string& payload) {
  const std::string mask = "\x37\xfa\x21\x3d";
  std::string out(1, static_cast<char>(first_byte));
  if (payload.size() <= 125) {
    out += static_cast<char>(0x80 | payload.size());
  } else if (payload.size() <= 0xFFFF) {
    out += static_cast<char>(0x80 | 126);
    out += static_cast<char>(payload.size() >> 8), out += static_cast<char>(payload.size());
  } else {
    out += static_cast<char>(0x80 | 127);
    for (int i = 7; i >= 0; --i) out += static_cast<char>(payload.size() >> 8 * i);
  }
  out += mask;
  for (size_t i = 0; i < payload.size(); ++i) out += static_cast<char>(payload[i] ^ mask[i % 4]);
  return out;
}

TEST(WebSocket, FramesComeInPiecesOfAnySize) {
  const std::string large(70000, 'x');
  const std::string bytes = client_frame(0x81, "Hello") + client_frame(0x01, "one ") + client_frame(0x89, "ping") +
                            client_frame(0x80, "message") + client_frame(0x81, large) + client_frame(0x81, "") +
                            client_frame(0x88, "\x03\xe8");
  for (const size_t n : {size_t{1}, size_t{3}, size_t{1000}, bytes.size()}) {
    SocketReader reader(1 << 20);
    std::string in;
    std::vector<std::pair<SocketFrame, std::string>> found;
    for (size_t at = 0; at < bytes.size(); at += n) {
      in += bytes.substr(at, n);
      std::string_view left = in;
      while (auto message = reader.next(left)) found.emplace_back(message->kind, message->bytes);
      in = std::string(left);
    }
    const std::vector<std::pair<SocketFrame, std::string>> expected = {
        {SocketFrame::kText, "Hello"}, {SocketFrame::kPing, "ping"}, {SocketFrame::kText, "one message"},
        {SocketFrame::kText, large},   {SocketFrame::kText, ""},     {SocketFrame::kClose, "\x03\xe8"}};
    EXPECT_EQ(found, expected) << n;
    EXPECT_TRUE(in.empty());
  }
}

int fault_of(const std::string& frames, size_t max_bytes = 1000) {
  SocketReader reader(max_bytes);
  std::string_view bytes = frames;
  try {
    while (reader.next(bytes)) {}
  } catch (const SocketReader::Fault& fault) {
    return fault.code;
  }
  return 0;
}

TEST(WebSocket, WrongFramesEndTheConnection) {
  EXPECT_EQ(fault_of(socket_frame(SocketFrame::kText, "without a mask ....")), 1002);
  EXPECT_EQ(fault_of(client_frame(0xC1, "extension")), 1002);
  EXPECT_EQ(fault_of(client_frame(0x83, "unknown")), 1002);
  EXPECT_EQ(fault_of(client_frame(0x80, "the middle of nothing")), 1002);
  EXPECT_EQ(fault_of(client_frame(0x01, "one") + client_frame(0x81, "another")), 1002);
  EXPECT_EQ(fault_of(client_frame(0x09, "a ping in parts")), 1002);
  EXPECT_EQ(fault_of(client_frame(0x89, std::string(126, 'p'))), 1002);
  EXPECT_EQ(fault_of(client_frame(0x81, std::string(1001, 'x'))), 1009);
  EXPECT_EQ(fault_of(client_frame(0x01, std::string(600, 'x')) + client_frame(0x80, std::string(600, 'x'))), 1009);
  EXPECT_EQ(fault_of(client_frame(0x81, std::string(1000, 'x'))), 0);
  // The length of a part that makes the message's length 5, if lengths may overflow.
  const std::string large_part(
      "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xfb"
      "mask",
      14);
  EXPECT_EQ(fault_of(client_frame(0x01, "0123456789") + large_part), 1009);
}

// Damaged and random frames give messages of at most the limit, or a fault.
TEST(WebSocket, RandomBytesAreRead) {
  std::mt19937 random(test_seed());
  SCOPED_TRACE(test_seed());
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = client_frame(0x01, std::string(random() % 300, 'a')) + client_frame(0x80, "b");
    for (int i = 0; i < 40; ++i) bytes += static_cast<char>(random());
    for (size_t i = random() % 4; i > 0; --i) bytes[random() % bytes.size()] = static_cast<char>(random());
    SocketReader reader(256);
    std::string in;
    try {
      for (const char byte : bytes) {
        in += byte;
        std::string_view left = in;
        while (auto message = reader.next(left)) EXPECT_LE(message->bytes.size(), 256u);
        EXPECT_LE(left.size(), 14u);  // the head of a frame
        in = std::string(left);
      }
    } catch (const SocketReader::Fault& fault) {
      EXPECT_TRUE(fault.code == 1002 || fault.code == 1009);
    }
  }
}

TEST(WebSocket, FramesOfTheServer) {
  EXPECT_EQ(socket_frame(SocketFrame::kText, "Hello"), "\x81\x05Hello");
  EXPECT_EQ(socket_frame(SocketFrame::kPing, std::string(200, 'a')).substr(0, 4), std::string("\x89\x7e\x00\xc8", 4));
  EXPECT_EQ(socket_frame(SocketFrame::kText, std::string(65536, 'a')).substr(0, 10),
            std::string("\x81\x7f\0\0\0\0\0\1\0\0", 10));
  EXPECT_EQ(close_payload(1000, "bye"),
            "\x03\xe8"
            "bye");
}

}  // namespace
}  // namespace ingot

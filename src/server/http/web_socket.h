// WebSocket (RFC 6455) on a connection whose request asks for it: the answer to the handshake, frames that the server
// sends, and a reader for those of the client, which takes bytes as they come.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/requests/http.h"

namespace ingot {

enum class SocketFrame : uint8_t { kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

// Throws ApiError (400, 426) if the request is no handshake. Returns the headers of the answer 101.
HttpHeaders accept_socket(const HttpRequest& request);

std::string socket_frame(SocketFrame kind, std::string_view payload);
// The payload of a frame that closes the connection.
std::string close_payload(int code, std::string_view why);

class SocketReader {
 public:
  struct Message {
    SocketFrame kind = SocketFrame::kText;
    std::string bytes;
  };
  // A fault of the client, after which the connection closes.
  struct Fault {
    int code;  // of the close frame
    const char* why;
  };

  explicit SocketReader(size_t max_bytes) : max_bytes_(max_bytes) {}  // of a message
  // Takes bytes from the front of `in`. Returns the next message or control frame, if it is complete. Throws Fault.
  std::optional<Message> next(std::string_view& in);

 private:
  bool read_head(std::string_view& in);

  const size_t max_bytes_;
  bool in_frame_ = false, is_final_ = false, in_message_ = false;
  SocketFrame kind_ = SocketFrame::kText, of_message_ = SocketFrame::kText;
  uint64_t left_ = 0;  // payload bytes of the frame
  size_t masked_ = 0;  // payload bytes taken
  unsigned char mask_[4] = {};
  std::string message_, control_;
};

}  // namespace ingot

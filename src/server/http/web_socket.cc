#include "server/http/web_socket.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/base64.h"

namespace ingot {
namespace {

constexpr std::string_view kHandshakeKey = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
constexpr std::string_view kRealtimeProtocol = "realtime";  // a browser that offers protocols wants one chosen
constexpr uint64_t kMaxControl = 125;
constexpr int kProtocolFault = 1002, kTooLarge = 1009;

// Whether a header's list has the token, in any case.
bool lists(const std::string* header, std::string_view token) {
  if (header == nullptr) return false;
  std::string lower = *header;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find(token) != lower.npos;
}

}  // namespace

HttpHeaders accept_socket(const HttpRequest& request) {
  if (!lists(request.header("upgrade"), "websocket") || !lists(request.header("connection"), "upgrade"))
    throw ApiError(426, "this route speaks WebSocket: send Upgrade: websocket and Connection: Upgrade");
  const std::string* version = request.header("sec-websocket-version");
  if (version == nullptr || *version != "13") throw ApiError(426, "Sec-WebSocket-Version must be 13");
  const std::string* key = request.header("sec-websocket-key");
  const auto bytes = key == nullptr ? std::nullopt : from_base64(*key);
  if (!bytes || bytes->size() != 16) throw ApiError(400, "Sec-WebSocket-Key must have 16 bytes in Base64");
  const std::string text = *key + std::string(kHandshakeKey);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned n = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &n, EVP_sha1(), nullptr) != 1)
    throw ApiError(500, "the handshake could not be computed");
  const std::string accept = to_base64({reinterpret_cast<const char*>(digest.data()), n});
  HttpHeaders headers = {{"Upgrade", "websocket"}, {"Connection", "Upgrade"}, {"Sec-WebSocket-Accept", accept}};
  if (lists(request.header("sec-websocket-protocol"), kRealtimeProtocol))
    headers.emplace_back("Sec-WebSocket-Protocol", kRealtimeProtocol);
  return headers;
}

std::string socket_frame(SocketFrame kind, std::string_view payload) {
  std::string out(1, static_cast<char>(0x80 | static_cast<uint8_t>(kind)));
  const size_t n = payload.size();
  const int n_length = n <= kMaxControl ? 0 : n <= 0xFFFF ? 2 : 8;
  out += static_cast<char>(n_length == 0 ? n : n_length == 2 ? 126 : 127);
  for (int i = n_length - 1; i >= 0; --i) out += static_cast<char>(n >> 8 * i);
  return out.append(payload);
}

std::string close_payload(int code, std::string_view why) {
  return std::string{static_cast<char>(code >> 8), static_cast<char>(code)}.append(why.substr(0, kMaxControl - 2));
}

// Reads the head of a frame, if all of it is there.
bool SocketReader::read_head(std::string_view& in) {
  if (in.size() < 2) return false;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(in[i]); };
  const size_t n_length = (byte(1) & 0x7F) == 126 ? 2 : (byte(1) & 0x7F) == 127 ? 8 : 0;
  if (in.size() < 2 + n_length + 4) return false;
  uint64_t length = byte(1) & 0x7F;
  if (n_length > 0) length = 0;
  for (size_t i = 0; i < n_length; ++i) length = length << 8 | byte(2 + i);
  const uint8_t opcode = byte(0) & 0x0F;
  const bool is_control = opcode >= 8;
  if ((byte(0) & 0x70) != 0) throw Fault{kProtocolFault, "extensions were not agreed on"};
  if ((byte(1) & 0x80) == 0) throw Fault{kProtocolFault, "a client's frames must be masked"};
  if (opcode > 10 || (opcode > 2 && opcode < 8)) throw Fault{kProtocolFault, "unknown kind of frame"};
  is_final_ = (byte(0) & 0x80) != 0;
  if (is_control && (!is_final_ || length > kMaxControl)) throw Fault{kProtocolFault, "a control frame is too long"};
  if (!is_control && (opcode == 0) != in_message_) throw Fault{kProtocolFault, "frames of messages are mixed"};
  if (!is_control && length > max_bytes_ - message_.size()) throw Fault{kTooLarge, "the message is too long"};
  if (opcode != 0) kind_ = static_cast<SocketFrame>(opcode);
  if (opcode == 0) kind_ = of_message_;
  if (!is_control) of_message_ = kind_, in_message_ = true;
  for (size_t i = 0; i < 4; ++i) mask_[i] = byte(2 + n_length + i);
  in.remove_prefix(2 + n_length + 4);
  left_ = length, masked_ = 0, in_frame_ = true;
  control_.clear();
  return true;
}

std::optional<SocketReader::Message> SocketReader::next(std::string_view& in) {
  for (;;) {
    if (!in_frame_ && !read_head(in)) return std::nullopt;
    const bool is_control = static_cast<uint8_t>(kind_) >= 8;
    std::string& to = is_control ? control_ : message_;
    const auto n = static_cast<size_t>(std::min<uint64_t>(left_, in.size()));
    for (size_t i = 0; i < n; ++i) to += static_cast<char>(static_cast<uint8_t>(in[i]) ^ mask_[masked_++ % 4]);
    in.remove_prefix(n);
    left_ -= n;
    if (left_ > 0) return std::nullopt;
    in_frame_ = false;
    if (is_control) {
      const SocketFrame kind = kind_;
      return Message{kind, std::move(control_)};
    }
    if (!is_final_) continue;
    in_message_ = false;
    return Message{of_message_, std::exchange(message_, {})};
  }
}

}  // namespace ingot

// The bytes of a request's head, checked before any parser sees them: what is ambiguous is refused rather than read one
// way, for a proxy in front may have read it the other (request smuggling, RFC 9112 sections 2.2, 5 and 6). Then the
// head as an HttpRequest, with the one path that is both routed and asked for a key. Pure functions of bytes.
#pragma once
#include <cstdint>
#include <optional>

#include "server/http/http.h"

namespace ingot {

struct HttpLimits {
  size_t request_line_bytes = 8 << 10;
  size_t head_bytes = 16 << 10;
  size_t header_count = 100;
  size_t body_bytes = 16 << 20;
};

// How the body of a request is delimited.
struct BodyFraming {
  bool chunked = false;
  uint64_t length = 0;  // unless chunked
};

struct HttpHead {
  HttpRequest request;  // without its body
  BodyFraming body;
  bool is_head = false;  // HEAD, whose answer has no body
  bool is_http_1_1 = true;
  bool keep_alive = true;
  bool expects_continue = false;
};

// Bytes of the head at the front of `bytes`, its blank line included; nothing while it is not all there. Throws
// ApiError (400, 414, 431) for a head that is too long already, or whose first bytes cannot begin one.
std::optional<size_t> head_length(std::string_view bytes, const HttpLimits& limits);

// `head` is what head_length measured. Throws ApiError: 400, 405, 411, 413, 414, 415, 431, 501, 505. After any of them
// the connection cannot be used any more.
HttpHead parse_head(std::string_view head, const HttpLimits& limits);

}  // namespace ingot
